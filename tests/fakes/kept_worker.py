"""A real worker that sizes contexts for one test after another: starting one takes longer than all that a test asks.

What it answered is remembered by the header that was read, as many tests plan the same model at several widths.
"""

import atexit
import hashlib
import os
import threading
from collections.abc import Callable, Iterator

from ggbench.engines.contract import DEFAULT_TIMEOUT_S, EngineConfig, EstimateMemory, Source, Workload
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Event, Ready
from ggbench.engines.llama.engine import LlamaEngine, launch

_READ_BY_LLAMA = ("CUDA", "GGML", "HIP", "LD_", "LLAMA", "OMP", "VK_")
"""First letters of the variables that change what a worker answers."""
_kept: dict[object, tuple[LlamaEngine, list[Ready]]] = {}
_answers: dict[object, list[Event | Ending]] = {}


class KeptEngine:
    """An engine that asks the kept worker for sizes; a model is loaded by a worker of its own.

    So are sizes over RPC servers, which have one client each.
    """

    def __init__(
        self,
        cancel: threading.Event,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._start: Callable[[], LlamaEngine] = lambda: launch(cancel, timeout_s=timeout_s)
        self._own: LlamaEngine | None = None
        self._is_greeted = False

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        self._own = self._own or self._start()
        return self._own.open(source, setup, reserve_bytes=reserve_bytes)

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        if isinstance(workload, EstimateMemory) and workload.setup.rpc_servers:
            self._own = self._own or self._start()
        if self._own is not None:
            yield from self._own.run(workload)
            return
        key = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_READ_BY_LLAMA)))
        if key not in _kept:
            _kept[key] = launch(threading.Event()), []
        engine, greetings = _kept[key]
        if greetings and not self._is_greeted:
            yield greetings[-1]
        self._is_greeted = True
        asked = key, _asked(workload)
        if asked in _answers:
            yield from _answers[asked]
            return
        answer: list[Event | Ending] = []
        for event in engine.run(workload):
            if isinstance(event, Ready):
                greetings.append(event)
            else:
                answer.append(event)
            yield event
        if answer and isinstance(answer[-1], Completed):
            _answers[asked] = answer

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


def _asked(workload: Workload) -> object:
    """Return what decides the sizes of a workload: the header and the length of its file in place of their path."""
    assert isinstance(workload, EstimateMemory) and workload.source.path, workload
    with workload.source.path.open("rb") as file:
        n_bytes = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        header = hashlib.sha1(file.read(n_bytes)).digest()
    return header, workload.source.path.stat().st_size, workload.setup, workload.devices


@atexit.register
def end_kept_workers() -> None:
    for engine, _ in _kept.values():
        engine.close()
    _kept.clear()
