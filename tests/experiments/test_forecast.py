"""Forecasts over fake workers whose steps take what their layers and their cache cost."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import BatchAtDepth, Request
from ggbench.engines.endings import Completed, Ending, Outcome, OutOfMemory
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig, LoadModel
from ggbench.errors import DoesNotFit
from ggbench.experiments.forecast import layer_twins
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import ForecastResult, ForecastSettings
from ggbench.files import PART_SUFFIX
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine.host import Cpu
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from ggbench.paths import forecasts_dir
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished, PointMeasured, Working
from ggbench.runs.run import Run
from ggbench.runs.session import run_context
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.sizing import layer_sample
from ggbench.sizing.layer_sample import MODEL_ERROR, step_cost, twin_layers
from tests.conftest import TINY
from tests.fakes.engine import Answer, FakeWorker, fake_rig, obey

BASE_NS, LAYER_NS_PER_BYTE, KV_NS_PER_BYTE, BATCH_NS_PER_BYTE = 40e6, 0.05, 0.2, 2.0


class _Costly:
    """Workers whose steps take what the model that each was given costs, one after the other slower by `drift`."""

    def __init__(
        self,
        paths: list[Path],
        drift: float = 0.0,
        dies_after: int | None = None,
        warm_up_ns: int = 1,
        *,
        is_one: bool = False,
    ) -> None:
        """`is_one` worker has all twins, one after the other."""
        self._is_one = is_one
        self._paths, self._drift, self._left, self._warm_up_ns = paths, drift, dies_after, warm_up_ns
        self._n_asked = 0

    def __call__(self, request: Request) -> Iterator[protocol.Message | Ending]:
        match request:
            case LoadModel(path=path):
                self._paths.append(Path(path))
                yield from obey(request)
            case BatchAtDepth(n_gen=2):
                yield from (Steps(3, [1, self._warm_up_ns], []), Completed())
            case BatchAtDepth():
                self._n_asked += 1
                if self._left is not None and self._n_asked > self._left:
                    yield OutOfMemory("decode", "killed")
                else:
                    yield from self._timed(request)
            case _:
                yield from obey(request)

    def _timed(self, request: BatchAtDepth) -> Iterator[protocol.Message | Ending]:
        """The first of three in each round is of the smaller twin, the others are of the larger."""
        of_larger = self._is_one or (len(self._paths) > 1 and self._n_asked % 3 != 1)
        file = read_model_file(self._paths[-1 if of_larger else 0])
        cost, slower = step_cost(file, range(file.n_layer)), 1 + self._drift * (self._n_asked // 3)
        layers_ns = (BASE_NS + LAYER_NS_PER_BYTE * cost.layer_bytes) * slower
        first = request.n_depth + 2
        steps = [round(layers_ns + KV_NS_PER_BYTE * cost.kv_bytes(n)) for n in range(first, first + request.n_gen)]
        yield Steps(first, steps, [])
        if request.n_batch:
            yield PromptRead(request.n_batch, round(BATCH_NS_PER_BYTE * cost.layer_bytes))
        yield Completed()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(layer_sample, "WHOLE_BYTES", 0)
    monkeypatch.setattr(layer_sample, "LARGER_BYTES", 0)
    monkeypatch.setattr(layer_twins, "describe_cpu", lambda: Cpu("test", 1, 1, None))
    return cached_twin("many", replace(TINY, n_layer=16), "q4_k_m", tmp_path)


def _run(
    model: Path, answer: Answer, store: Store | None = None, setup: LlamaConfig | None = None
) -> tuple[Run, list[FakeWorker]]:
    rig, workers = fake_rig(store, {0: answer, 1: answer})
    job = Job(EXPERIMENT, resolve_one(parse_model(str(model))), setup or LlamaConfig(), ForecastSettings())
    *_, end = run_job(rig, job)
    assert isinstance(end, Finished)
    return end.run, workers


def _result(run: Run) -> ForecastResult:
    assert isinstance(run.result, ForecastResult)
    return run.result


def test_twins_of_few_layers_tell_what_all_layers_cost(model: Path) -> None:
    paths: list[Path] = []
    run, workers = _run(model, _Costly(paths))
    found, cost = _result(run), step_cost(read_model_file(model), range(16))
    base_ms = (BASE_NS + LAYER_NS_PER_BYTE * cost.layer_bytes) / 1e6
    assert run.outcome is Outcome.COMPLETED
    assert found.basis == "twins of 2 and 6 of 16 layers"
    assert found.b_ms is not None
    assert found.b_ms.value == pytest.approx(base_ms + KV_NS_PER_BYTE * cost.kv_bytes(1) / 1e6, rel=1e-4)
    assert found.w_tokens_per_ms is not None
    assert found.w_tokens_per_ms.value == pytest.approx(1e6 / (KV_NS_PER_BYTE * cost.kv.read_growth()), rel=1e-4)
    far = dict(found.tok_s)[8192]
    assert far.value == pytest.approx(1e3 / (base_ms + KV_NS_PER_BYTE * cost.kv_bytes(8192) / 1e6), rel=1e-4)
    assert far.low < far.value < far.high
    batch_ms = BATCH_NS_PER_BYTE * cost.layer_bytes / 1e6
    assert dict(found.prefill_ms)[512].value == pytest.approx(2 * batch_ms, rel=1e-4)
    assert [path.exists() for path in paths] == [False, False]
    assert list(forecasts_dir().iterdir()) == []
    assert all(worker.closed for worker in workers)


def test_twins_on_a_server_take_turns_in_one_worker(model: Path) -> None:
    """A server answers one client at a time, so each twin is timed in all rounds before the next one is loaded."""
    paths: list[Path] = []
    run, workers = _run(model, _Costly(paths, is_one=True), setup=LlamaConfig(rpc_servers=("a:1",)))
    alone, _ = _run(model, _Costly([]))
    assert run.outcome is Outcome.COMPLETED
    assert _result(run).b_ms == _result(alone).b_ms
    assert len(workers) == 1
    assert len(set(paths)) == 2


def test_rounds_that_differ_widen_the_interval(model: Path) -> None:
    steady, _ = _run(model, _Costly([]))
    noisy, _ = _run(model, _Costly([], drift=0.1))
    narrow, wide = _result(steady).b_ms, _result(noisy).b_ms
    assert narrow is not None and wide is not None
    assert (narrow.high - narrow.low) / narrow.value == pytest.approx(2 * MODEL_ERROR)
    assert (wide.high - wide.low) / wide.value > 3 * MODEL_ERROR


def test_a_worker_that_dies_leaves_the_rounds_before(model: Path, tmp_path: Path) -> None:
    answer = _Costly([], dies_after=8)
    with Store.open(tmp_path / "results.sqlite") as store:
        run, _ = _run(model, answer, store)
        assert run.outcome is Outcome.OUT_OF_MEMORY
        assert _result(run).b_ms is not None
        assert run.run_id is not None
        stored = replace(store.load_run(run.run_id), result_json=None)
        assert read_run(store, stored).result == run.result
    assert list(forecasts_dir().iterdir()) == []


def test_a_large_cache_asks_for_more_layers(model: Path) -> None:
    file = read_model_file(model)
    (few, _), cache_bytes = twin_layers(file, None), 2 * round(step_cost(file, range(2)).layer_bytes)
    more = twin_layers(file, cache_bytes)[0]
    outside = (file.active_weight_bytes or 0) - step_cost(file, range(16)).layer_bytes
    assert len(few) < len(more)
    assert step_cost(file, more).layer_bytes + outside > cache_bytes
    assert twin_layers(file, 10**12) == (tuple(range(16)),)


def test_what_it_takes_is_said_before_anything_is_written(model: Path) -> None:
    rig, _ = fake_rig(None, {0: (answer := _Costly([])), 1: answer})
    progress = list(
        run_job(rig, Job(EXPERIMENT, resolve_one(parse_model(str(model))), LlamaConfig(), ForecastSettings()))
    )
    said = [each for each in progress if isinstance(each, PointMeasured)]
    (text,) = (each.text for each in said if each.text.startswith("writes "))
    assert text.endswith(f" to {forecasts_dir()}")
    kinds = [type(each) for each in progress]
    written = next(i for i, each in enumerate(progress) if isinstance(each, Working) and each.stage == "write")
    assert kinds.index(PointMeasured) < written


def test_twins_that_a_killed_forecast_left_are_removed(model: Path) -> None:
    left = forecasts_dir() / f".left{PART_SUFFIX}"
    left.mkdir(parents=True)
    (left / "twin-0.gguf").touch()
    _run(model, _Costly([]))
    assert not left.exists()


def test_a_disk_without_room_is_an_error_before_anything_is_written(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    rig, workers = fake_rig()
    *_, end = run_job(rig, Job(EXPERIMENT, resolve_one(parse_model(str(model))), LlamaConfig(), ForecastSettings()))
    assert isinstance(end, Finished) and isinstance(end.error, DoesNotFit)
    assert "free, and the twins need" in end.error.message
    assert "XDG_CACHE_HOME" in end.error.hint
    assert not workers
    assert list(forecasts_dir().iterdir()) == []


@pytest.mark.llama
def test_llama_cpp_loads_twins_that_share_a_file(model: Path) -> None:
    job = Job(
        EXPERIMENT, resolve_one(parse_model(str(model))), LlamaConfig(threads=1),
        ForecastSettings(n_depth=257, n_gen=2, rounds=2),
    )  # fmt: skip
    *_, end = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(end, Finished)
    assert end.run.outcome is Outcome.COMPLETED, end.run.reason
    assert _result(end.run).basis == "twins of 2 and 6 of 16 layers"
    assert _result(end.run).b_ms is not None
    assert list(forecasts_dir().iterdir()) == []
