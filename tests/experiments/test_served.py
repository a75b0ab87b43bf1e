"""Runs on a server, from target to stored result, on scripted streams."""

import threading
from collections.abc import Callable

import pytest

from ggbench.engines.contract import Engine, EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.http.endpoint import EndpointConfig
from ggbench.engines.http.engine import HttpEngine
from ggbench.engines.http.messages import OfferedModel
from ggbench.experiments.decode.measure import EXPERIMENT as DECODE
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.speed.measure import EXPERIMENT as SPEED
from ggbench.experiments.speed.record import SpeedResult, SpeedSettings
from ggbench.machine.environment import environment
from ggbench.models.served_models import ServedModel
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Experiment, Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run, Settings
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from tests.fakes.server_items import NETWORK_NS, PROMPT_NS_PER_TOKEN, Script, ScriptedServer, on_a_line, step_ns

SETUP = EndpointConfig("http://s", "tiny")
OFFERED = OfferedModel("tiny", quant="Q4_K - Medium", n_params=1000, tensor_bytes=700, n_ctx_train=2048)
TARGET = Target("tiny", "q4_k_m", "endpoint", source=ServedModel(OFFERED, SETUP))
Runner = Callable[..., Run]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, store: Store) -> Runner:
    def run_it(experiment: Experiment, settings: Settings, script: Script | None = None, **server: object) -> Run:
        scripted = ScriptedServer(script or on_a_line(), **server)  # type: ignore[arg-type]
        monkeypatch.setattr("ggbench.engines.http.engine.Server", lambda *_, **__: scripted)

        def launch(setup: EngineConfig, cancel: threading.Event) -> Engine:
            return HttpEngine(cancel, timeout_s=5)

        rig = RunContext(launch=launch, threads=2, describe_environment=environment, store=store)
        *_, finished = run_job(rig, Job(experiment, TARGET, SETUP, settings))
        assert isinstance(finished, Finished)
        assert finished.run.run_id is not None
        read = read_run(store, store.load_run(finished.run.run_id))
        assert (read.result, read.outcome, read.reason) == (
            finished.run.result,
            finished.run.outcome,
            finished.run.reason,
        )
        assert scripted.closed
        return read

    return run_it


def test_a_decode_of_a_server_finds_w_and_b(run: Runner) -> None:
    found = run(DECODE, DecodeSettings(2300))
    result = found.result
    assert isinstance(result, DecodeResult)
    assert result.fit is not None and result.latency is not None and result.serving is not None
    assert result.fit.w_tokens_per_ms == pytest.approx(200, rel=1e-6)
    assert result.fit.b_ms == pytest.approx(10, rel=1e-6)
    assert (result.n_gen, result.prefill_ms, result.limit) == (2300, 25.0, None)
    assert (result.serving.clock, result.serving.server) == ("server", "llama-server b1")
    assert result.serving.ttft_ms == pytest.approx((25 * PROMPT_NS_PER_TOKEN + NETWORK_NS) / 1e6)
    assert (found.memory.n_ctx, found.memory.kv_bytes, found.memory.total_bytes) == (4096, None, None)
    assert (found.subject.source, found.subject.quant, found.subject.bpw) == ("endpoint", "q4_k_m", 5.6)
    assert found.head.environment is not None
    assert found.head.environment.server == "llama-server b1"
    assert found.head.command == "ggbench decode http://s tiny -n 2300"


def test_a_server_that_speculates_has_a_speed_alone(run: Runner) -> None:
    """No token was timed alone; with what was drafted and accepted."""
    result = run(DECODE, DecodeSettings(1100), on_a_line(sizes=(4, 2), n_drafted=900)).result
    assert isinstance(result, DecodeResult)
    assert result.latency is not None and result.serving is not None
    assert (result.fit, result.n_gen) == (None, 1100)
    assert result.latency.tok_s == pytest.approx(1100e9 / sum(step_ns(25, n) for n in range(1, 1101)))
    assert (result.latency.p50_ms, result.unsteady) == (None, "")
    assert (result.serving.n_drafted, result.serving.n_accepted) == (900, 450)


def test_tokens_that_nobody_counted_have_a_rate_and_no_line(run: Runner) -> None:
    script = on_a_line(sizes=(3,), counts=False, has_clock=False)
    result = run(DECODE, DecodeSettings(600), script, clock="client").result
    assert isinstance(result, DecodeResult)
    assert result.fit is None or result.fit.w_ci95 is None
    assert result.latency is not None and result.serving is not None
    assert result.latency.tok_s == pytest.approx(600e9 / sum(step_ns(25, n) for n in range(1, 601)), rel=1e-6)
    assert "201 chunks" in result.serving.remarks[0]


def test_concurrent_requests_have_rates_of_their_own(run: Runner) -> None:
    result = run(SPEED, SpeedSettings((64,), 128, (1, 3))).result
    assert isinstance(result, SpeedResult)
    one, three = result.cases
    decode_ns = sum(step_ns(64, n) for n in range(1, 129))
    prefill_ns = 64 * PROMPT_NS_PER_TOKEN + NETWORK_NS
    assert one.latency is not None and three.prefill_ms == pytest.approx(prefill_ns / 1e6, rel=1e-6)
    assert one.decode_tok_s == pytest.approx(128e9 / decode_ns)
    assert three.decode_tok_s == pytest.approx(3 * 128e9 / decode_ns, rel=0.01)
    assert three.tok_s_qwen2_5 == pytest.approx(3 * 128e9 / (prefill_ns + decode_ns), rel=1e-6)
    assert three.tok_s_qwen3 == pytest.approx(3 * 192e9 / (prefill_ns + decode_ns), rel=1e-6)
    assert three.ended.memory_bytes is None
    assert result.serving is not None


def test_users_of_a_server_have_a_speed_each_and_together(run: Runner) -> None:
    """Each request has the line of a single one; the server has four slots."""
    found = run(DECODE, DecodeSettings(2300, repeat=2, n_seqs=4))
    result = found.result
    assert isinstance(result, DecodeResult)
    decode_ns = sum(step_ns(25, n) for n in range(1, 2301))
    assert result.latency is not None and result.fit is not None
    assert (result.n_seqs, result.n_gen, result.unsteady) == (4, 4600, "")
    assert result.latency.tok_s == pytest.approx(2300e9 / decode_ns, rel=0.01)
    assert result.tok_s_together == pytest.approx(4 * 2300e9 / decode_ns, rel=0.01)
    assert result.fit.w_tokens_per_ms == pytest.approx(200, rel=0.01)
    assert "--parallel 4" in found.head.command
    crowded = run(DECODE, DecodeSettings(300, n_seqs=6)).result
    assert isinstance(crowded, DecodeResult)
    assert crowded.unsteady == "the server has 4 slots, so 2 of 6 users waited"


def test_a_case_longer_than_the_servers_context_is_a_row_with_its_reason(run: Runner) -> None:
    result = run(SPEED, SpeedSettings((16, 4096), 8, (1,))).result
    assert isinstance(result, SpeedResult)
    assert [each.ended.outcome for each in result.cases] == [Outcome.COMPLETED, Outcome.FAILED]
    assert "context of 4,096" in result.cases[1].ended.reason
