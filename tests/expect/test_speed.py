"""What is known of a quant's speed, from runs that were stored."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect import machine_runs as module
from ggbench.expect.machine_runs import MachineRuns
from ggbench.expect.session_time import session_time
from ggbench.expect.sessions import Conversation, Turn
from ggbench.expect.speed import expected_curves, speed_at
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.forecast.record import ForecastResult, ForecastSettings
from ggbench.experiments.prefill.record import PrefillResult, PrefillSettings
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.description import Device, Machine, MainMemory
from ggbench.machine.environment import environment as environment_of
from ggbench.machine.host import describe_cpu
from ggbench.machine.records import Imported
from ggbench.models.subject import Subject
from ggbench.runs.run import Result, Run, RunHead, Settings
from ggbench.runs.store.database import Store
from ggbench.sizing.budget import described_budget
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory
from ggbench.sizing.theory.limits import decode_limit
from ggbench.stats.decode_timing import Bandwidth, DepthSpeed, LatencySummary, LineFit, PrefillSpeed
from ggbench.stats.intervals import Estimate, t_95
from ggbench.stats.speed_curve import SpeedCurve
from tests.conftest import TINY
from tests.fakes.engine import VERSIONS

BANDWIDTH = Bandwidth(20e9, "measured")
BUDGET = Budget(host=DeviceMemory(HOST_DEVICE, 1 << 34, bandwidth=BANDWIDTH))
HERE = environment_of(VERSIONS)
ELSEWHERE = Imported(tool="ggbench 0.1.0", file="x.zip", file_sha256="1", content_sha256="2")
ON_CPU = Memory(buffers=(DeviceBuffers("CPU", weight_bytes=100),))
FORECAST = ForecastResult(
    "twins of 2 and 6 of 32 layers", Estimate(100.0, 90.0, 110.0), Estimate(40.0, 30.0, 50.0),
    ((1, Estimate(10.0, 9.0, 11.0)), (4096, Estimate(5.0, 4.5, 5.5))), ((512, Estimate(900.0, 800.0, 1000.0)),),
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(module, "describe_cpu", lambda: replace(describe_cpu(), last_level_cache_bytes=None))
    with Store.open(tmp_path / "results.sqlite") as opened:
        yield opened


def _file(n_layer: int = 2) -> ModelFile:
    return build_model(replace(TINY, n_layer=n_layer), f"tiny-{n_layer}")


def _latency(ms: float) -> LatencySummary:
    return LatencySummary(ms, ms, 1e3 / ms, (0.99e3 / ms, 1.01e3 / ms))


def _decode(file: ModelFile, share: float = 0.5, unsteady: str = "") -> DecodeResult:
    limit = decode_limit(file, BANDWIDTH)
    assert limit.w_tokens_per_ms is not None
    w, b_ms = limit.w_tokens_per_ms * share, limit.b_ms / share
    fit = LineFit(1000, w, (0.9 * w, 1.1 * w), b_ms, (0.9 * b_ms, 1.1 * b_ms))
    return DecodeResult(25, 1000, None, fit, _latency(b_ms + 524 / w), limit, unsteady)


def _add(
    store: Store, file: ModelFile, result: Result, kind: str = "decode", settings: Settings | None = None,
    *, outcome: Outcome = Outcome.COMPLETED, **head: Any,  # noqa: ANN401 - of several types
) -> int:  # fmt: skip
    subject = Subject(
        model="tiny", quant="f32", source="twin", shape_key=file.shape_key, weight_bytes=1000, n_layer=file.n_layer,
        architecture=file.architecture, n_embd=file.n_embd, n_params=file.n_params,
    )  # fmt: skip
    made = RunHead(
        kind=kind, subject=subject, settings=settings or DecodeSettings(1000),
        **{"setup": LlamaConfig(n_ctx=1280), "environment": HERE, **head},
    )  # fmt: skip
    return store.add(Run(head=made, outcome=outcome, memory=ON_CPU, result=result))


def _all(
    store: Store | None, file: ModelFile, setup: LlamaConfig | None = None, budget: Budget = BUDGET, n_seqs: int = 1
) -> tuple[SpeedCurve, ...]:
    placement = Placement.of(file, setup or LlamaConfig(), budget)
    return expected_curves(placement, MachineRuns(store, budget), n_seqs)


def _one(
    store: Store | None, file: ModelFile, setup: LlamaConfig | None = None, budget: Budget = BUDGET, n_seqs: int = 1
) -> SpeedCurve:
    return _all(store, file, setup, budget, n_seqs)[0]


def test_without_any_run_others_rows_say_how_fast_it_is(store: Store) -> None:
    """An estimate is no faster than the bandwidth allows; without a bandwidth there is none."""
    file, limit = _file(), decode_limit(_file(), BANDWIDTH)
    known = _one(store, file)
    assert known.basis == "published"
    first = known.step_ms_at(1)
    assert limit.b_ms <= first.low < first.value < first.high < math.inf
    assert known.step_ms_at(5000).value > first.value
    assert _all(store, file, budget=Budget(host=DeviceMemory(HOST_DEVICE, 1 << 34))) == ()


def test_a_run_of_the_same_tensors_is_the_surest(store: Store) -> None:
    file = _file()
    number = _add(store, file, _decode(file, 0.5))
    _add(store, file, FORECAST, "forecast", ForecastSettings())
    _add(store, file, _decode(file, 0.1, unsteady="busy"))
    known, limit = _one(store, file), decode_limit(file, BANDWIDTH)
    assert (known.basis, known.source) == ("measured", f"run {number}")
    assert known.step_ms_at(1).value == pytest.approx(limit.b_ms / 0.5)
    assert known.prefill_ms == FORECAST.prefill_ms
    prefill = PrefillResult((PrefillSpeed(256, 300.0, 853.0, 3, (800.0, 900.0)),))
    _add(store, file, prefill, "prefill", PrefillSettings((256,)))
    assert [n for n, _ in _one(store, file).prefill_ms] == [256]


def test_prompts_that_nobody_read_here_take_what_others_measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the time of a session is known, and says what it rests on."""
    file, step = _file(), Estimate(10.0, 9.0, 11.0)
    others = SpeedCurve("published", "others", ((1, step), (32768, step)), FORECAST.prefill_ms)
    monkeypatch.setattr("ggbench.expect.speed.published_curve", lambda placement, is_here: others)
    number = _add(store, file, _decode(file, 0.5))
    found = session_time([_one(store, file)], Conversation("own", (Turn(512, 30),), ""))
    assert found is not None and found.total_s is not None and found.first_wait_s is not None
    assert (found.tok_s.basis, found.tok_s.source) == ("measured", f"run {number}")
    assert (found.total_s.basis, found.total_s.source, found.first_wait_s.value) == ("published", "others", 0.9)
    prefill = PrefillResult((PrefillSpeed(256, 300.0, 853.0, 3, (800.0, 900.0)),))
    _add(store, file, prefill, "prefill", PrefillSettings((256,)))
    measured = session_time([_one(store, file)], Conversation("own", (Turn(512, 30),), ""))
    assert measured is not None and measured.total_s is not None and measured.total_s.basis == "measured"


def test_users_at_once_have_a_run_of_as_many_or_an_estimate_from_one(store: Store) -> None:
    file, limit = _file(), decode_limit(_file(), BANDWIDTH)
    _add(store, file, _decode(file))
    alone = _one(store, file, n_seqs=4)
    assert alone.basis == "scaled"
    low, high = alone.step_ms_at(1).low, alone.step_ms_at(1).high
    assert low == pytest.approx(limit.b_ms / 0.5, rel=0.2) and high == pytest.approx(4 * low, rel=0.5)
    result = replace(_decode(file, 0.25), n_seqs=4)
    number = _add(store, file, result, settings=DecodeSettings(1000, n_seqs=4))
    known = _one(store, file, n_seqs=4)
    assert (known.basis, known.source) == ("measured", f"run {number}")
    assert _one(store, file).source == f"run {number - 1}"
    assert _one(store, file, LlamaConfig(kv_unified=True), n_seqs=4).basis == "scaled"


def test_a_speed_that_only_an_unsteady_run_has_is_marked_so(store: Store) -> None:
    file = _file()
    _add(store, file, _decode(file, 0.1, unsteady="busy"))
    assert not _one(store, file).is_steady
    expected = speed_at(_all(store, file), 1)
    assert expected is not None and not expected.is_steady
    _add(store, file, _decode(file, 0.5))
    assert _one(store, file).is_steady


def test_an_unsteady_run_can_be_left_out(store: Store) -> None:
    """A pick then sees what it would without the run."""
    file = _file()
    _add(store, file, _decode(file, 0.1, unsteady="busy"))
    for n_seqs in (1, 4):
        steady = MachineRuns(store, BUDGET, only_steady=True)
        curves = expected_curves(Placement.of(file, LlamaConfig(), BUDGET), steady, n_seqs)
        assert curves == _all(None, file, n_seqs=n_seqs)


def test_a_depth_that_was_measured_is_expected_there_and_nowhere_else(store: Store) -> None:
    file = _file()
    at = DecodeResult(4096, 384, depths=(DepthSpeed(4096, 128, 50.0, 3, (49.0, 51.0)),))
    number = _add(store, file, at, settings=DecodeSettings(128, depths=(4096,)))
    known = _all(store, file)
    assert [speed is None or speed.basis for speed in (speed_at(known, 1), speed_at(known, 8192))] == ["published"] * 2
    unused = speed_at(known, 8192)
    assert unused is not None and unused.source.endswith(f"; run {number} timed tokens 4097 to 4224")
    found = speed_at(known, 4100)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((50, 49, 51))
    assert (found.basis, found.source) == ("measured", f"run {number}")
    _add(store, file, _decode(file))
    lined = _all(store, file)
    assert [speed_at(lined, n) == found for n in (1, 4100, 4300)] == [False, True, False]


def test_a_forecast_comes_before_other_runs(store: Store) -> None:
    file = _file()
    for n_layer in (3, 4):
        _add(store, _file(n_layer), _decode(_file(n_layer)))
    _add(store, file, FORECAST, "forecast", ForecastSettings())
    known = _one(store, file)
    assert (known.basis, known.source) == ("forecast", "twins of 2 and 6 of 32 layers")
    assert known.step_ms[0] == (1, Estimate(100.0, 1e3 / 11, 1e3 / 9))


def test_other_runs_say_what_share_of_the_bound_is_reached(store: Store) -> None:
    file, limit = _file(), decode_limit(_file(), BANDWIDTH)
    _add(store, _file(3), _decode(_file(3), 0.9))
    _add(store, _file(3), _decode(_file(3), 0.4))
    assert _one(store, file).basis == "published"
    _add(store, _file(4), _decode(_file(4), 0.5))
    known = _one(store, file)
    assert known.basis == "scaled"
    assert known.source == "this machine's other runs reach 40 to 50 % of the bandwidth (2 models)"
    found = known.step_ms_at(1)
    assert found.value == pytest.approx(limit.b_ms / math.sqrt(0.4 * 0.5))
    variance = (3 * 0.25**2 + math.log(0.5 / 0.4) ** 2 / 2) / 4
    factor = math.exp(t_95(4) * math.sqrt(1.5 * variance))
    assert (found.low, found.high) == pytest.approx((found.value / factor, found.value * factor))
    faster = Budget(host=DeviceMemory(HOST_DEVICE, 1 << 34, bandwidth=Bandwidth(40e9, "given")))
    assert _one(store, file, budget=faster).step_ms_at(1).value == pytest.approx(found.value)


def test_an_unsteady_run_says_nothing_about_other_models(store: Store) -> None:
    """Not even if it hides an older steady run of the same setting."""
    file = _file()
    for n_layer in (3, 4):
        _add(store, _file(n_layer), _decode(_file(n_layer), 0.5))
    before = _one(store, file).step_ms_at(1)
    for n_layer in (3, 4, 5):
        _add(store, _file(n_layer), _decode(_file(n_layer), 0.01, unsteady="busy"))
    assert _one(store, file).step_ms_at(1) == before


@pytest.mark.parametrize(
    "changed",
    [
        {"environment": replace(HERE, cpu="another")},
        {"environment": replace(HERE, n_cores=(HERE.n_cores or 0) + 1)},
        {"environment": replace(HERE, llama_cpp_python="0.0.1")}, {"environment": None},
        {"environment": replace(HERE, imported=ELSEWHERE)}, {"setup": LlamaConfig(type_k="q8_0")},
        {"setup": LlamaConfig(threads=(HERE.n_cores or 0) + 1)}, {"outcome": Outcome.INTERRUPTED},
    ],
)  # fmt: skip
def test_what_was_run_otherwise_says_nothing(store: Store, changed: dict[str, Any]) -> None:
    file = _file()
    for each in (file, _file(3), _file(4)):
        _add(store, each, _decode(each), **changed)
    assert _one(store, file).basis == "published"


def test_what_does_not_decide_the_speed_may_differ(store: Store) -> None:
    """The context's length, a memory limit, and without a GPU what would go there."""
    file = _file()
    _add(store, file, _decode(file))
    setup = LlamaConfig(n_ctx=8192, n_gpu_layers=0, memory_limit_bytes=1 << 30, mmap=False)
    assert _one(store, file, setup).basis == "measured"


def test_a_step_that_reads_from_two_memories_has_an_estimate() -> None:
    """A token reads one memory after the other; a quantized cache is not assumed to be read faster."""
    machine = Machine(
        (Device("card", 24 << 30, "given", Bandwidth(200e9, "card's")),), MainMemory(64 << 30, Bandwidth(20e9, "RAM's"))
    )
    budget, file = described_budget(machine, reserve_bytes=0), _file(4)
    setups = {
        "all": LlamaConfig(), "half": LlamaConfig(n_gpu_layers=2), "q8_0": LlamaConfig(type_k="q8_0", type_v="q8_0"),
    }  # fmt: skip
    curves = {name: _one(None, file, setup, budget) for name, setup in setups.items()}
    steps = {name: curve.step_ms_at(8192).value for name, curve in curves.items()}
    assert steps["q8_0"] == steps["all"] < steps["half"] < 10 * steps["all"]
    assert curves["half"].basis == "published"
