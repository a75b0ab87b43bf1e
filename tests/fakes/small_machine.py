"""A machine whose largest context is known, and a search on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import SearchFinished

from ggbench.catalog.selector import Target
from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Crashed, Ending, Failed, OutOfMemory
from ggbench.experiments.maxctx import MaxctxSettings, run_maxctx
from ggbench.machine.environment import environment
from ggbench.records.machine import Gpu
from ggbench.records.run import Certificate
from ggbench.records.setup import LlamaSetup
from ggbench.units import MIB
from tests.fakes.engine import FakeEngine

LIMIT = 100 * MIB
COMPUTE = 8 * MIB
UNSEEN = 20 * MIB
"""What a context takes here that no log tells."""
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
    cancel: threading.Event = field(default_factory=threading.Event)
    cancel_at_alloc: int = 0
    engines: list[FakeEngine] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    proven: list[int] = field(default_factory=list)
    loads: list[protocol.LoadModel] = field(default_factory=list)
    _dry: bool = False

    def rig(self) -> Rig:
        """Every worker of it is this machine."""

        def launch(event: threading.Event) -> FakeEngine:
            self.engines.append(FakeEngine(event, self.answer))
            return self.engines[-1]

        return Rig(launch=launch, threads=2, describe_environment=environment, cancel=self.cancel)

    def answer(self, request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        """One request."""
        match request:
            case protocol.LoadModel(dry=dry):
                assert isinstance(request, protocol.LoadModel)
                self._dry = dry
                if dry and not self.dry_loads:
                    yield Failed("load", "unknown architecture")
                    return
                if not self.device.startswith("CPU"):
                    using = f"llama_prepare_model_devices: using device {self.device} (Card) ({CARD_ID})"
                    yield protocol.Log(2, f"{using} - 23552 MiB free")
                self.loads.append(request)
                yield protocol.ModelLoaded(0.1, 1000, 2000, 4096, 1024, None if dry else LIMIT)
            case protocol.MakeContext(n_ctx=n_ctx):
                if not self._dry:
                    self.allocated.append(n_ctx)
                    if len(self.allocated) == self.cancel_at_alloc:
                        self.cancel.set()
                    if n_ctx > self.edge:
                        yield self._failure("context")
                        return
                kv = self.kv_bytes * (n_ctx if self.grows else 1024) / MIB
                if not self._dry:
                    yield protocol.Log(2, f"llama_kv_cache:        {self.device} KV buffer size = {kv:.2f} MiB")
                yield protocol.Log(2, f"llama_kv_cache: size = {kv:.2f} MiB ( {n_ctx} cells, 2 layers, 1/1 seqs)")
                yield protocol.Log(
                    2, f"sched_reserve:        {self.device} compute buffer size = {COMPUTE / MIB:.2f} MiB"
                )
                left = LIMIT - COMPUTE - UNSEEN - round(kv * MIB)
                yield protocol.ContextMade(0.1, n_ctx, 512, 512, None if self._dry else left)
            case protocol.ProveContext():
                n_ctx = self.allocated[-1]
                self.proven.append(n_ctx)
                yield protocol.Filling(0.5)
                if n_ctx > self.decode_edge:
                    yield self._failure("decode")
                    return
                yield protocol.ContextProven(0.1, 512, 1, 1, "copied", full=self.fills, left_bytes=0)
        yield Completed()

    def _failure(self, stage: protocol.Stage) -> Ending:
        if self.failing is Crashed:
            return Crashed(-9, ("last words",))
        return OutOfMemory(stage, "failed to allocate")


def settings(limit_bytes: int = LIMIT, **fields: bool) -> MaxctxSettings:
    return MaxctxSettings(LlamaSetup(memory_limit_bytes=limit_bytes), **fields)


def search(rig: Rig, target: Target, asked: MaxctxSettings) -> SearchFinished:
    *_, finished = run_maxctx(rig, (target,), asked)
    assert isinstance(finished, SearchFinished)
    return finished


def certified(rig: Rig, target: Target, asked: MaxctxSettings) -> Certificate:
    finished = search(rig, target, asked)
    assert finished.error is None, finished.error
    return finished.certificate
