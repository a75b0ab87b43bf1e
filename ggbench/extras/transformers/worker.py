"""The child process of Transformers: reads requests from stdin, reports to the pipe whose number is its argument.

It never uses the network: a checkpoint is in a folder before it is loaded.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Workload
from ggbench.engines.events import Loaded, Opened, Ready
from ggbench.engines.protocol import EventPipe, serve
from ggbench.extras.transformers.config import CheckpointRequest, LoadCheckpoint, MakeCache
from ggbench.extras.transformers.model import (
    TransformersModel,
    is_memory_error,
    one_line,
)
from ggbench.extras.transformers.workloads import carry_out

_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class TransformersWorker:
    def __init__(self, pipe: EventPipe) -> None:
        os.environ.update(_QUIET)
        logging.disable(logging.WARNING)  # bitsandbytes logs in every product
        self._pipe = pipe
        self._model = TransformersModel()
        pipe.send(Ready(os.getpid(), self._model.versions))

    def carry_out(self, request: Request) -> None:
        try:
            self._dispatch(request)
        except protocol.Refusal as refusal:
            self._pipe.send(protocol.Refused(refusal.stage, refusal.out_of_memory, str(refusal)))
        except Exception as error:
            is_memory = is_memory_error(error, is_limited=self._model.is_limited)
            message = one_line(error)
            error.__traceback__ = None  # its frames hold tensors
            self._pipe.send(protocol.Refused(request.stage, is_memory, message))
            self._recover()  # last, as GPU calls no longer work after some errors
        else:
            self._pipe.send(protocol.Done())

    def _dispatch(self, request: Request) -> None:
        started, model, send = time.perf_counter(), self._model, self._pipe.send
        match request:
            case LoadCheckpoint(folder, setup):
                model.load(Path(folder), setup)
                send(model.allocated)
                send(Loaded(time.perf_counter() - started, model.left_bytes, model.allocated.tensor_bytes))
            case MakeCache(setup):
                model.make_cache(setup)
                send(model.allocated)
                send(Opened(time.perf_counter() - started, setup.n_ctx, left_bytes=model.left_bytes))
            case Workload():
                carry_out(model, request, self._pipe.send)
                send(model.allocated)

    def _recover(self) -> None:
        """Free the memory of a failed request, so that the next one starts from the same state."""
        self._model.cache = None
        self._model.release()


def main() -> None:
    serve(TransformersWorker, CheckpointRequest)


if __name__ == "__main__":
    main()
