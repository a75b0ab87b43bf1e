"""llama.cpp as an engine: a child process that is started when it is needed, and again after it has died."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator

import msgspec
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import DEFAULT_TIMEOUT_S, EngineConfig, Request, Source, Workload
from ggbench.engines.endings import Completed, Crashed, Ending, Failed
from ggbench.engines.events import Allocated, Event, Loaded, MemoryKind, Opened
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.logs import parse_allocations
from ggbench.engines.llama.rpc_client import explained, find_unusable
from ggbench.engines.process import Transport, WorkerProcess

CONFIG = LlamaConfig

_AMX_HINT = "llama.cpp's AMX code is known for this; ./scripts/ggbench builds it without"
"""Source: llama.cpp issue 20824; on some machines the first batch after repacking for AMX faults."""


def launch(
    cancel: threading.Event, *, timeout_s: float = DEFAULT_TIMEOUT_S, hold: threading.Event | None = None
) -> LlamaEngine:
    """Start an engine whose worker ends when `cancel` is set, and waits between two steps while `hold` is."""
    return LlamaEngine(lambda: WorkerProcess(cancel, timeout_s, hold=hold))


class LlamaEngine:
    """One worker with llama.cpp in it, and the model that it has loaded."""

    def __init__(self, start: Callable[[], Transport]) -> None:
        """Starts the first worker at once, since it takes a while to be ready."""
        self._start = start
        self._worker: Transport | None = start()
        self._loaded: LoadModel | None = None
        """What the worker has in memory; None where nothing is."""
        self._asked: LoadModel | None = None
        """The last load that this worker was asked for; None before the first."""
        self._load_log: list[str] = []
        self._context_log: list[str] = []
        self._places: dict[str, MemoryKind] = {}
        self._tensor_bytes: int | None = None

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Load the model and make a context. Without an n_ctx the model alone is loaded.

        A loaded model stays where only what concerns the context differs. `reserve_bytes` of each GPU in use are left
        free.
        """
        return self._open(source, setup, reserve_bytes=reserve_bytes)

    def estimate_memory(self, source: Source, setup: EngineConfig) -> Iterator[Event | Ending]:
        """Read the header alone, allocate nothing and report what it would be; the file may be sparse."""
        return self._open(source, setup, dry=True)

    def _open(
        self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0, dry: bool = False
    ) -> Iterator[Event | Ending]:
        if not isinstance(setup, LlamaConfig) or source.path is None:
            yield Failed("load", "llama.cpp loads GGUF files only")
            return
        n_threads = 0 if setup.memory_limit_bytes is None else max(setup.threads or 0, setup.threads_batch or 0)
        load = LoadModel(str(source.path), setup.load_part, reserve_bytes, dry, n_threads)
        ending: Ending = Completed()
        if load != self._loaded or self._worker is None:
            if self._asked is not None and _lasting(load) != _lasting(self._asked):
                self.close()
            if self._asked is None and (unusable := find_unusable(setup.rpc_servers)):
                yield Failed("load", "; ".join(unusable.values()))
                return
            self._worker = self._worker or self._start()
            self._loaded, self._asked, self._load_log, self._context_log = None, load, [], []
            self._tensor_bytes = None
            ending = yield from self._call(self._worker, load, self._load_log)
            if isinstance(ending, Completed):
                self._loaded = load
        if isinstance(ending, Completed) and setup.n_ctx is not None:
            self._context_log = []
            ending = yield from self._call(self._worker, MakeContext(setup), self._context_log)
        yield ending

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Carry out a workload on what is open."""
        if self._worker is None:
            yield Failed(workload.stage, "no model is open")
        else:
            yield (yield from self._call(self._worker, workload, []))

    def unsupported(self, workload: type[Workload]) -> str:
        """Nothing: llama.cpp carries out every workload there is."""
        return ""

    def close(self) -> None:
        """End the worker; may be called twice, and a later `open` starts another."""
        if self._worker is not None:
            self._worker.close()
        self._worker = self._loaded = self._asked = None

    def _call(self, worker: Transport, request: Request, log: list[str]) -> Generator[Event | Ending, None, Ending]:
        """Events of one request; returns its ending. What it logs goes to `log`."""
        ending: Ending = Failed(request.stage, "the worker ended without an answer")
        is_reported = False
        for item in worker.call(request):
            match item:
                case protocol.Log(text=text):
                    log.append(text)
                case protocol.Devices(places):
                    self._places = places
                case Loaded() | Opened():
                    is_reported = True
                    if isinstance(item, Loaded):
                        self._tensor_bytes = item.tensor_bytes
                    yield self._allocated()
                    yield item
                case Ending():
                    ending = item
                case protocol.Done() | protocol.Refused():
                    pass  # the transport has turned them into an ending
                case _:
                    yield item
        if log and not is_reported and not isinstance(request, Workload):
            yield self._allocated()
        if isinstance(ending, Crashed) and ending.returncode == -signal.SIGSEGV and self._uses_amx():
            ending = replace(ending, hint=_AMX_HINT)
        servers = self._asked.setup.rpc_servers if self._asked else ()
        if ending.is_final:
            self.close()
        return explained(ending, request.stage, servers) if servers else ending

    def _uses_amx(self) -> bool:
        return any(each.device == "AMX" for each in self._allocated().buffers)

    def _allocated(self) -> Allocated:
        found = parse_allocations([*self._load_log, *self._context_log], self._places)
        return msgspec.structs.replace(found, tensor_bytes=self._tensor_bytes)


def _lasting(load: LoadModel) -> tuple[object, ...]:
    """What a worker takes once, before its first load: the servers whose devices it has, and its limit if any."""
    setup = load.setup
    if setup.memory_limit_bytes is None and not load.reserve_bytes:
        return setup.rpc_servers
    return (
        setup.rpc_servers,
        setup.memory_limit_bytes,
        load.reserve_bytes,
        setup.n_gpu_layers != 0,
        setup.main_gpu,
        load.n_threads,
    )
