"""llama.cpp as an engine: a child process, started on demand and again after it dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import (
    DEFAULT_TIMEOUT_S,
    DescribedDevice,
    EngineConfig,
    EstimateMemory,
    ProveContext,
    Request,
    Source,
    Workload,
)
from ggbench.engines.endings import Completed, Ending, Failed
from ggbench.engines.events import Allocated, Event, Loaded, MemoryKind, Opened
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.logs import parse_allocations
from ggbench.engines.llama.rpc import explained
from ggbench.engines.process import Transport, WorkerEngine, WorkerProcess
from ggbench.errors import BindingFailed, GgbenchError, UsageError

CONFIGS = {LlamaConfig.engine: LlamaConfig}

_ERRORS: Mapping[str, Callable[[str], GgbenchError]] = {"start": BindingFailed, "devices": UsageError}
"""Errors of a worker that refused at one of these stages."""


def launch(cancel: threading.Event, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> LlamaEngine:
    """Start an engine whose worker stops when `cancel` is set."""
    return LlamaEngine(lambda: WorkerProcess(cancel, timeout_s))


class LlamaEngine(WorkerEngine):
    """A worker with llama.cpp, and its loaded model."""

    def __init__(self, start: Callable[[], Transport]) -> None:
        """Start the first worker at once, since it takes a while to be ready."""
        super().__init__(start)
        self._worker = start()
        self._loaded: LoadModel | None = None
        """Memory use of the worker."""
        self._asked: LoadModel | None = None
        """The last load requested from this worker."""
        self._logs: dict[type[Request], list[protocol.Log]] = {}
        """The log of the last request of each kind since the load."""
        self._log: list[protocol.Log] = []
        """The log of the running request."""
        self._is_reported = False
        self._places: dict[str, MemoryKind] = {}
        self._tensor_bytes: int | None = None

    def open(
        self,
        source: Source,
        setup: EngineConfig,
        *,
        reserve_bytes: int = 0,
        dry: bool = False,
        described: tuple[DescribedDevice, ...] = (),
    ) -> Iterator[Event | Ending]:
        """Load the model and create a context; without an n_ctx, only load the model.

        A loaded model stays if only context settings differ. `reserve_bytes` of each GPU in use are left free.
        """
        if not isinstance(setup, LlamaConfig) or source.path is None:
            yield Failed("load", "llama.cpp loads GGUF files only")
            return
        draft = "" if source.draft is None else str(source.draft)
        load = LoadModel(
            str(source.path), setup.load_part, reserve_bytes, dry, _n_threads(setup), described, draft
        )
        ending = yield from self._load(load)
        if isinstance(ending, Completed) and setup.n_ctx is not None:
            drafts = not dry and (draft or setup.mtp)
            request = MakeContext(setup.of_target(), setup.for_draft()) if drafts else MakeContext(setup)
            ending = yield from self._call(request)
        yield ending

    def _load(self, load: LoadModel) -> Generator[Event | Ending, None, Ending]:
        """Load the model unless it is loaded already."""
        if load == self._loaded and self._worker is not None:
            return Completed()
        if self._asked is not None and _lasting(load) != _lasting(self._asked):
            self.close()
        self._worker = self._worker or self._start()
        self._loaded, self._asked, self._tensor_bytes = None, load, None
        self._logs.clear()
        ending = yield from self._call(load)
        if isinstance(ending, Completed):
            self._loaded = load
        return ending

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Run a workload on the open model, or size a context in place of it.

        A worker that failed to decode at the end of a context is stopped: its backends may hold what they allocated.
        """
        if isinstance(workload, EstimateMemory):
            yield from self.open(workload.source, workload.setup, dry=True, described=workload.devices)
            return
        ending = yield from self._call(workload)
        if isinstance(workload, ProveContext) and not isinstance(ending, Completed):
            self.close()
        yield ending

    def close(self) -> None:
        super().close()
        self._loaded = self._asked = None

    def _call(self, request: Request) -> Generator[Event | Ending, None, Ending]:
        self._log = self._logs[type(request)] = []
        self._is_reported = False
        servers = self._asked.setup.rpc_servers if self._asked else ()
        ending = yield from super()._call(request)
        if self._log and not self._is_reported and not isinstance(request, Workload):
            yield self._allocated()
        if isinstance(ending, Failed) and ending.stage in _ERRORS:
            ending = replace(ending, error=_ERRORS[ending.stage](ending.message))
        return explained(ending, request.stage, servers) if servers else ending

    def _note(self, message: protocol.Log | protocol.Devices) -> None:
        if isinstance(message, protocol.Log):
            self._log.append(message)
        else:
            self._places = message.places

    def _events(self, event: Event) -> Iterable[Event]:
        if not isinstance(event, Loaded | Opened):
            return (event,)
        self._is_reported = True
        if isinstance(event, Loaded):
            self._tensor_bytes = event.tensor_bytes
        return (self._allocated(), event)

    def _allocated(self) -> Allocated:
        lines = [*self._logs.get(LoadModel, []), *self._logs.get(MakeContext, [])]
        own, draft = (
            parse_allocations((line.text for line in lines if line.of_draft is of_draft), self._places)
            for of_draft in (False, True)
        )
        return replace(own, tensor_bytes=self._tensor_bytes, draft_buffers=draft.buffers)


def _n_threads(setup: LlamaConfig) -> int:
    """Return how many threads to start before a memory limit is set; 0 without one."""
    return 0 if setup.memory_limit_bytes is None else max(setup.threads or 0, setup.threads_batch or 0)


def _lasting(load: LoadModel) -> tuple[object, ...]:
    """Return the parts of a load that a worker accepts only once: its RPC servers, a draft, and any limit.

    One that sized contexts dry keeps freed memory, which a measurement would count.
    """
    setup = load.setup
    once = load.dry, setup.rpc_servers, load.path if load.draft or setup.mtp else "", load.draft
    if setup.memory_limit_bytes is None and not load.reserve_bytes:
        return once
    limit = (
        setup.memory_limit_bytes,
        load.reserve_bytes,
        setup.n_gpu_layers != 0,
        setup.main_gpu,
        setup.devices,
        load.n_threads,
    )
    return (*once, *limit)
