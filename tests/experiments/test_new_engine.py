"""The test of the design: an engine is one module with its setup, and every experiment that it can do runs on it."""

import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import ClassVar

import msgspec
import pytest

from ggbench.engines.contract import Engine, EngineConfig, Source, Workload, engine_module
from ggbench.engines.endings import Completed, Ending, Failed, Outcome
from ggbench.engines.events import Allocated, Event, Opened, PromptRead, Ready, Steps
from ggbench.engines.memory import DeviceBuffers, Place
from ggbench.engines.workloads import Decode, Prefill
from ggbench.errors import StoreError, Unsupported
from ggbench.experiments.maxctx.measure import EXPERIMENT as MAXCTX
from ggbench.experiments.maxctx.record import MaxctxSettings
from ggbench.machine.condition import environment
from ggbench.models.subject import reproduce
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from tests.fakes.recorded import decode_job, decoded


class ServerSetup(EngineConfig, msgspec.Struct, frozen=True):
    engine: ClassVar[str] = "test_server"

    url: str = "http://127.0.0.1:8080"
    slots: int = 1


class ServerEngine:
    """Times steps by its own clock, on a server that does not say what it allocated on this machine."""

    def __init__(self) -> None:
        self.closed = False

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        assert isinstance(setup, ServerSetup)
        yield Ready(None, {"llama_cpp": "a server's"})
        yield Allocated((DeviceBuffers("RPC0", Place.REMOTE, weight_bytes=1 << 20),))
        yield Opened(0.1)
        yield Completed()

    def estimate_memory(self, source: Source, setup: EngineConfig) -> Iterator[Event | Ending]:
        yield Failed("context", "not said")

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Prompts and decodes, on a line: B 20 ms, W 100 tokens/ms."""
        match workload:
            case Prefill(n_prompt, repeat):
                yield from (PromptRead(n_prompt, 5_000_000) for _ in range(repeat))
            case Decode(n_prompt, n_gen):
                step_ns = [20_000_000 + (n_prompt + n) * 10_000 for n in range(n_gen)]
                yield Steps(n_prompt + 1, step_ns, [], "words", clock="client")
            case _:
                yield Failed(workload.stage, "not asked of a server")
                return
        yield Completed()

    def unsupported(self, workload: type[Workload]) -> str:
        return "" if workload in (Prefill, Decode) else "a server has no such request"

    def close(self) -> None:
        self.closed = True


ENGINES: list[ServerEngine] = []


def launch(cancel: threading.Event, *, timeout_s: float, hold: threading.Event | None) -> Engine:
    ENGINES.append(ServerEngine())
    return ENGINES[-1]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("ggbench.engines.test_server.engine")
    module.CONFIG, module.launch = ServerSetup, launch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ggbench.engines.test_server.engine", module)
    ENGINES.clear()


def rig_of(store: Store | None = None) -> RunContext:
    """One that finds the engine by the setup's name of it."""

    def start(setup: EngineConfig, cancel: threading.Event) -> Engine:
        return engine_module(setup.engine).launch(cancel, timeout_s=1, hold=None)

    return RunContext(launch=start, threads=2, describe_environment=environment, store=store)


def test_a_decode_runs_on_a_new_engine(target: Target, store: Store) -> None:
    *_, finished = run_job(rig_of(store), decode_job(target, 400, ServerSetup(slots=2)))
    assert isinstance(finished, Finished)
    run = finished.run
    assert run.outcome is Outcome.COMPLETED, run.reason
    result = decoded(run)
    assert result.fit is not None
    assert result.fit.w_tokens_per_ms == pytest.approx(100, rel=0.01)
    assert result.fit.b_ms == pytest.approx(20, rel=0.01)
    assert result.latency is not None and result.latency.sample_p50_ms is None
    assert (result.limit, result.prefill_ms) == (None, 5)
    assert (run.memory.n_ctx, run.memory.kv_bytes, run.memory.peak_bytes) == (None, None, None)
    assert run.memory.weights_on_gpu
    assert [engine.closed for engine in ENGINES] == [True]
    assert run.head.command == f"ggbench decode {target.path} -n 400 --slots 2"

    assert run.run_id is not None
    stored = store.load_run(run.run_id)
    assert stored.engine == "test_server"
    read = read_run(store, stored)
    assert (read.head.setup, read.result, read.memory) == (ServerSetup(slots=2), result, run.memory)


def test_what_an_engine_cannot_do_is_a_run_with_its_reason(target: Target, store: Store) -> None:
    *_, finished = run_job(rig_of(store), Job(MAXCTX, target, ServerSetup(), MaxctxSettings()))
    assert isinstance(finished, Finished)
    assert isinstance(finished.error, Unsupported)
    assert (finished.run.outcome, finished.run.reason) == (Outcome.FAILED, finished.error.message)
    assert all(engine.closed for engine in ENGINES)


def test_an_engine_that_is_not_there_is_an_error(target: Target) -> None:
    for name in ("nonesuch", "logs", "../evil", ""):
        with pytest.raises(StoreError, match="no engine"):
            engine_module(name)


def test_a_setups_own_fields_are_its_options() -> None:
    assert reproduce("decode", ("m",), ServerSetup(slots=4), {}) == "ggbench decode m --slots 4"
