"""The child process of llama.cpp: reads requests from stdin, reports to the pipe whose number is its argument."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import time
from collections.abc import Iterator

from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import ProveContext, Request, Workload
from ggbench.engines.events import Event, Loaded, MemoryKind, Opened, Opening, Proving, Ready
from ggbench.engines.failure_lines import is_out_of_memory, out_of_memory_line, wanted_bytes
from ggbench.engines.llama.c_functions import llama_library
from ggbench.engines.llama.config import LlamaRequest, LoadModel, MakeContext
from ggbench.engines.llama.ggml_devices import GgmlDevices
from ggbench.engines.llama.memory_limits import (
    GpuMemory,
    keep_freed_memory,
    left_bytes,
    limit_memory,
    start_threads,
)
from ggbench.engines.llama.model import LlamaModel, chosen_devices
from ggbench.engines.llama.speculation import check_vocabularies
from ggbench.engines.protocol import EventPipe, serve


class Worker:
    def __init__(self, pipe: EventPipe) -> None:
        self._send = pipe.send
        self._warnings: list[str] = []
        self._errors: list[str] = []
        self._missing_bytes: int | None = None
        """Bytes that this request's first failed allocation lacked; None if none failed, or nothing is limited."""
        self._gpus: GpuMemory | None = None
        """None before a load, or if no layer is on a GPU."""
        self._is_limited = False
        self._model = LlamaModel(self._send_log, self._left_bytes)
        self._draft: LlamaModel | None = None
        """A draft model, or the same model for the context of its MTP layers; None before either is needed."""
        self._is_drafting = False
        """Whether llama.cpp is at work for the draft."""
        self._send(Ready(os.getpid(), self._model.versions))

    def carry_out(self, request: Request) -> None:
        """Answer one request with its events and `Done`, or with `Refused`."""
        self._warnings.clear()
        self._errors.clear()
        self._missing_bytes = None
        try:
            self._dispatch(request)
        except protocol.Refusal as refusal:
            blame = out_of_memory_line(self._warnings)
            logged = blame or next(iter(self._errors), "")  # the first names the cause
            message = str(refusal) if refusal.out_of_memory else logged or str(refusal)
            missing = self._missing_bytes if blame else None
            is_memory = bool(blame) or refusal.out_of_memory
            self._send(protocol.Refused(refusal.stage, is_memory, message, missing))
        except MemoryError:
            message = "the worker itself ran out of memory"
            self._send(protocol.Refused(request.stage, out_of_memory=True, message=message))
        else:
            self._send(protocol.Done())

    def _dispatch(self, request: Request) -> None:
        match request:
            case LoadModel():
                self._load(request)
            case MakeContext():
                self._make_context(request)
            case Workload():
                self._work(request)

    def _load(self, request: LoadModel) -> None:
        started, setup = time.perf_counter(), request.setup
        self._model.add_servers(setup.rpc_servers)
        devices = GgmlDevices(llama_library())
        described = {each.name: MemoryKind.GPU for each in request.described}
        self._send(protocol.Devices({**devices.places, **described}))
        if request.dry:
            keep_freed_memory()
        else:  # before any memory limit, which might leave no room for numpy
            importlib.import_module("ggbench.engines.llama.workloads")
        if not self._is_limited:
            is_on_gpu = setup.n_gpu_layers and not described
            self._gpus = GpuMemory(devices, chosen_devices(devices, setup)) if is_on_gpu else None
            self._limit(request)
        self._free_draft()  # it may be one of the model that is freed next
        self._model.load(
            request.path,
            setup,
            devices,
            lambda share: self._send(Opening(share)),
            dry=request.dry,
            described=request.described,
        )
        model = self._model
        if request.draft:
            with self._drafting() as draft:
                draft.load(request.draft, setup.for_draft(), devices, lambda _: None, dry=False)
            check_vocabularies(model, draft)
            model.draft = draft
        self._send(
            Loaded(time.perf_counter() - started, self._left_bytes(), model.tensor_bytes, model.description)
        )

    def _make_context(self, request: MakeContext) -> None:
        started = time.perf_counter()
        self._free_draft()
        sizes = self._model.make_context(request.setup)
        if request.draft is not None:
            with self._drafting() as draft:
                if request.draft.ctx_type == "mtp":
                    draft.handle = self._model.handle
                draft.make_context(replace(request.draft, n_ctx=sizes[0]))
        self._send(Opened(time.perf_counter() - started, *sizes, self._left_bytes()))

    def _work(self, request: Workload) -> None:
        # imports numpy, which sizing contexts does not need
        from ggbench.engines.llama.workloads import carry_out

        self._model.check_outputs(request)
        carry_out(self._model, request, self._send)
        if isinstance(request, ProveContext) and self._draft and self._draft.handle is not self._model.handle:
            with self._drafting() as draft:  # MTP layers decode only with the model's own output
                carry_out(draft, request, self._send_progress)

    def _free_draft(self) -> None:
        if self._draft is not None:
            self._draft.free_context()

    def _send_progress(self, event: Event) -> None:
        if isinstance(event, Proving):
            self._send(event)

    @contextlib.contextmanager
    def _drafting(self) -> Iterator[LlamaModel]:
        """Mark the log as the draft's; a `LlamaModel` takes llama.cpp's log from the one before."""
        self._is_drafting = True
        try:
            self._draft = self._draft or LlamaModel(self._send_log, self._left_bytes)
            yield self._draft
        finally:
            self._is_drafting = False

    def _limit(self, request: LoadModel) -> None:
        limit_bytes = request.setup.memory_limit_bytes
        if self._gpus:
            self._gpus.shrink(limit_bytes, request.reserve_bytes)
        elif limit_bytes is not None:
            start_threads(ctypes.CDLL(str(llama_library())), request.n_threads)
            limit_memory(limit_bytes)
        self._is_limited = limit_bytes is not None or request.reserve_bytes > 0

    def _left_bytes(self) -> int | None:
        return self._gpus.left_bytes if self._gpus else left_bytes()

    def _send_log(self, level: int, text: str) -> None:
        if level >= protocol.LOG_WARN:
            self._warnings.append(text.strip())
            self._note_missing(text.strip())
        if level >= protocol.LOG_ERROR and text.strip():
            self._errors.append(text.strip())
        self._send(protocol.Log(level, text, self._is_drafting))

    def _note_missing(self, line: str) -> None:
        """Record how much the first failure lacks; after llama.cpp has cleaned up, that is unknown."""
        wanted = wanted_bytes(line) if is_out_of_memory(line) else None
        left = left_bytes()
        if self._missing_bytes is None and wanted is not None and left is not None and wanted > left:
            self._missing_bytes = wanted - left


def main() -> None:
    serve(Worker, LlamaRequest)


if __name__ == "__main__":
    main()
