"""A machine whose largest context is known, and a search on it."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from ggbench.engines import protocol
from ggbench.engines.contract import EngineConfig, ProveContext, Request, Stage
from ggbench.engines.endings import Completed, Crashed, Ending, Failed, OutOfMemory
from ggbench.engines.events import ContextProven, Loaded, MemoryKind, Opened, Proving
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.experiments.maxctx.measure import EXPERIMENT
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings
from ggbench.machine.environment import environment
from ggbench.machine.records import Gpu
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.units import MIB
from tests.fakes.engine import FakeWorker, obey

LIMIT = 100 * MIB
COMPUTE = 8 * MIB
UNSEEN = 20 * MIB
CARD_ID = "0000:01:00.0"
CARD = Gpu(0, "Card", "GPU-1", "00000000:01:00.0", 24 << 30, 23 << 30, None, None, None)


@dataclass
class SmallMachine:
    """Answers as a worker with a memory limit would; contexts up to `edge` work, decodes up to `decode_edge`."""

    kv_bytes: int
    edge: int
    decode_edge: int = 1 << 31
    failing: type[Ending] = OutOfMemory
    grows: bool = True
    fills: bool = True
    dry_loads: bool = True
    device: str = "CPU"
    unseen_bytes: int = UNSEEN
    """What a context takes that no log reports."""
    says_missing: bool = False
    """Whether a context that fails reports by how much."""
    cancel: threading.Event = field(default_factory=threading.Event)
    cancel_at_alloc: int = 0
    workers: list[FakeWorker] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    proven: list[int] = field(default_factory=list)
    loads: list[LoadModel] = field(default_factory=list)
    _dry: bool = False

    def rig(self, store: Store | None = None) -> RunContext:
        def start(cancel: threading.Event) -> FakeWorker:
            self.workers.append(FakeWorker(cancel, self.answer))
            return self.workers[-1]

        def launch(_setup: EngineConfig, cancel: threading.Event) -> LlamaEngine:
            return LlamaEngine(lambda: start(cancel))

        return RunContext(launch=launch, threads=2, describe_environment=environment, store=store, cancel=self.cancel)

    def answer(self, request: Request) -> Iterator[protocol.Message | Ending]:
        match request:
            case LoadModel(dry=dry):
                self._dry = dry
                if dry and not self.dry_loads:
                    yield Failed("load", "unknown architecture")
                    return
                yield protocol.Devices({"CPU": MemoryKind.HOST, "CUDA0": MemoryKind.GPU})
                if not self.device.startswith("CPU"):
                    using = f"llama_prepare_model_devices: using device {self.device} (Card) ({CARD_ID})"
                    yield protocol.Log(2, f"{using} - 23552 MiB free")
                self.loads.append(request)
                yield Loaded(0.1, None if dry else LIMIT)
            case MakeContext(setup):
                n_ctx = setup.n_ctx or 0
                if not self._dry:
                    self.allocated.append(n_ctx)
                    if len(self.allocated) == self.cancel_at_alloc:
                        self.cancel.set()
                    if n_ctx > self.edge:
                        yield self._failure("context", (n_ctx - self.edge) * self.kv_bytes)
                        return
                kv = self.kv_bytes * (n_ctx if self.grows else 1024) / MIB
                if not self._dry:
                    yield protocol.Log(2, f"llama_kv_cache:        {self.device} KV buffer size = {kv:.2f} MiB")
                yield protocol.Log(2, f"llama_kv_cache: size = {kv:.2f} MiB ( {n_ctx} cells, 2 layers, 1/1 seqs)")
                yield protocol.Log(
                    2, f"sched_reserve:        {self.device} compute buffer size = {COMPUTE / MIB:.2f} MiB"
                )
                left = LIMIT - COMPUTE - self.unseen_bytes - round(kv * MIB)
                yield Opened(0.1, n_ctx, 512, 512, None if self._dry else left)
            case ProveContext():
                n_ctx = self.allocated[-1]
                self.proven.append(n_ctx)
                yield Proving(0.5)
                if n_ctx > self.decode_edge:
                    yield self._failure("decode")
                    return
                yield ContextProven(full=self.fills, left_bytes=0)
            case _:
                yield from obey(request)
                return
        yield Completed()

    def _failure(self, stage: Stage, missing_bytes: int = 0) -> Ending:
        if self.failing is Crashed:
            return Crashed.exited("llama.cpp", -9, "last words")
        return OutOfMemory(stage, "failed to allocate", missing_bytes=missing_bytes if self.says_missing else None)


def limited(limit_bytes: int = LIMIT) -> LlamaConfig:
    return LlamaConfig(memory_limit_bytes=limit_bytes)


def search(
    rig: RunContext, target: Target, setup: LlamaConfig | None = None, *, prove: bool = True, beyond_train: bool = True
) -> Finished:
    job = Job(EXPERIMENT, target, setup or limited(), MaxctxSettings(prove=prove, beyond_train=beyond_train))
    *_, finished = run_job(rig, job)
    assert isinstance(finished, Finished)
    return finished


def found(
    rig: RunContext, target: Target, setup: LlamaConfig | None = None, **settings: bool
) -> tuple[MaxctxResult, Run]:
    finished = search(rig, target, setup, **settings)
    assert finished.error is None, finished.error
    return context_of(finished.run), finished.run


def context_of(run: Run) -> MaxctxResult:
    assert isinstance(run.result, MaxctxResult)
    return run.result
