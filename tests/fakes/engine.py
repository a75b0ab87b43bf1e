"""An engine that replays recorded events, and a rig around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from ggbench.experiments.rig import Rig

from ggbench.engine import protocol
from ggbench.engine.endings import Cancelled, Completed, Ending
from ggbench.machine.environment import environment
from ggbench.records.speed import Bandwidth
from ggbench.store.database import Store

LOG = (
    "load_tensors:   CPU_Mapped model buffer size =   100.00 MiB",
    "llama_kv_cache:        CPU KV buffer size =    24.00 MiB",
    "resolve_fused_ops: Flash Attention enabled",
    "sched_reserve:        CPU compute buffer size =    30.00 MiB",
)
Answer = Callable[[protocol.Request], Iterator[protocol.Event | Ending]]


class FakeEngine:
    """Answers requests as the worker would, with latencies on a line: B 10 ms, W 200 tokens/ms."""

    def __init__(self, cancel: threading.Event, answer: Answer | None = None) -> None:
        self.requests: list[protocol.Request] = []
        self.closed = False
        self._cancel = cancel
        self._answer = answer or obey

    def call(self, request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        first = not self.requests
        self.requests.append(request)
        if first:
            yield protocol.Ready(1, "0.3.36", "test", "CPU : TEST = 1")
        for item in self._answer(request):
            if self._cancel.is_set():
                yield Cancelled()
                return
            yield item

    def close(self) -> None:
        self.closed = True


def obey(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
    """What a worker in good health tells."""
    match request:
        case protocol.LoadModel():
            yield protocol.Log(2, LOG[0])
            yield protocol.ModelLoaded(0.1, 1000, 2000, 4096, 1024)
        case protocol.MakeContext(n_ctx=n_ctx):
            yield from (protocol.Log(2, line) for line in LOG[1:])
            yield protocol.ContextMade(0.1, n_ctx, 512, 512)
        case protocol.Prefill(n_prompt, repeat):
            for round_number in range(repeat):
                yield protocol.Prefilled(n_prompt, (n_prompt + round_number) * 1_000_000)
        case protocol.Decode(n_prompt, n_gen, phase):
            yield protocol.Prefilled(n_prompt, n_prompt * 1_000_000)
            for start in range(n_prompt + 1, n_prompt + 1 + n_gen, 100):
                positions = range(start, min(start + 100, n_prompt + 1 + n_gen))
                step_ns = [10_000_000 + (n - 1) * 5_000 + n % 7 * 1000 for n in positions]
                yield protocol.Decoded(phase, start, step_ns, [50_000] * len(step_ns))
    yield Completed()


def fake_rig(
    store: Store | None = None, answers: dict[int, Answer] | None = None, cancel: threading.Event | None = None
) -> tuple[Rig, list[FakeEngine]]:
    """A rig whose n-th engine answers as `answers[n]` says, else obeys; and the engines that it started."""
    engines: list[FakeEngine] = []

    def launch(event: threading.Event) -> FakeEngine:
        engines.append(FakeEngine(event, (answers or {}).get(len(engines))))
        return engines[-1]

    rig = Rig(
        launch=launch,
        threads=2,
        describe_environment=environment,
        store=store,
        cpu_bandwidth=Bandwidth(20e9, "measured in a test"),
        cancel=cancel or threading.Event(),
    )
    return rig, engines
