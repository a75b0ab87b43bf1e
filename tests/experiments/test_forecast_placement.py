"""Forecasts of models that are split between a GPU and main memory, over fake workers on both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import BatchAtDepth, DecodeAtDepth, Request
from ggbench.engines.endings import Completed, Ending, Outcome
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig, LoadModel
from ggbench.experiments.forecast import layer_twins, twin_timer
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import ForecastResult, ForecastSettings
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine import environment as environments
from ggbench.machine.environment import environment
from ggbench.machine.host import Cpu
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run
from ggbench.sizing import layer_sample
from ggbench.sizing.layer_sample import step_cost
from tests.conftest import TINY
from tests.fakes.engine import GPU, FakeWorker, fake_rig, obey, on_gpu

BASE_NS = {"CPU": 40e6, "GPU": 4e6}
NS_PER_BYTE = {"CPU": 0.05, "GPU": 0.005}
KV_NS_PER_BYTE = {"CPU": 0.2, "GPU": 0.02}
KEPT_NS_PER_BYTE = 0.03
"""For a layer on the GPU with experts in main memory."""


class _Placed:
    """A worker whose steps take what its layers cost where they are; without a GPU all are in main memory."""

    def __init__(self, has_gpu: bool = True) -> None:
        self._has_gpu = has_gpu
        self._file: ModelFile | None = None
        self._setup = LlamaConfig()

    def __call__(self, request: Request) -> Iterator[protocol.Message | Ending]:
        match request:
            case LoadModel(path=path, setup=setup):
                self._file, self._setup = read_model_file(Path(path)), setup
                yield from (on_gpu if self._where == "GPU" else obey)(request)
            case DecodeAtDepth(n_depth, n_gen):
                assert self._file is not None
                cost = step_cost(self._file, range(self._file.n_layer))
                per_byte = KEPT_NS_PER_BYTE if self._setup.cpu_moe else NS_PER_BYTE[self._where]
                layers_ns = BASE_NS[self._where] + per_byte * cost.layer_bytes
                positions = range(n_depth + 2, n_depth + 2 + n_gen)
                yield Steps(
                    n_depth + 2,
                    [round(layers_ns + KV_NS_PER_BYTE[self._where] * cost.kv_bytes(n)) for n in positions],
                    [],
                )
                if isinstance(request, BatchAtDepth) and request.n_batch:
                    yield PromptRead(request.n_batch, round(10 * per_byte * cost.layer_bytes))
                yield Completed()
            case _:
                yield from obey(request)

    @property
    def _where(self) -> str:
        return "GPU" if self._setup.n_gpu_layers and self._has_gpu else "CPU"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(layer_sample, "WHOLE_BYTES", 0)
    monkeypatch.setattr(layer_sample, "LARGER_BYTES", 0)
    monkeypatch.setattr(layer_twins, "describe_cpu", lambda: Cpu("test", 1, 1, None))
    for module in (twin_timer, environments):
        monkeypatch.setattr(module, "list_gpus", lambda: (GPU,))
    monkeypatch.setattr(twin_timer, "gpu_backends", lambda: ("cuda",))
    return cached_twin("many", replace(TINY, n_layer=16), "q8_0", tmp_path)


def _run(model: Path, setup: LlamaConfig, *, has_gpu: bool = True) -> tuple[Run, list[FakeWorker]]:
    rig, workers = fake_rig(None, {number: _Placed(has_gpu) for number in range(2)})
    rig = replace(rig, describe_environment=lambda versions: replace(environment(versions), gpus=(GPU,)))
    *_, end = run_job(rig, Job(EXPERIMENT, resolve_one(parse_model(str(model))), setup, ForecastSettings()))
    assert isinstance(end, Finished)
    assert end.run.outcome is Outcome.COMPLETED, end.run.reason
    return end.run, workers


def _found(run: Run) -> ForecastResult:
    assert isinstance(run.result, ForecastResult)
    return run.result


def _latency_ms(run: Run, n: int) -> float:
    return 1e3 / dict(_found(run).tok_s)[n].value


def test_layers_on_both_are_counted_by_where_they_are(model: Path) -> None:
    run, workers = _run(model, LlamaConfig(n_gpu_layers=9))
    file = read_model_file(model)
    in_main_memory, on_the_gpu = step_cost(file, range(8)), step_cost(file, range(8, 16))
    for n in (1, 8192):
        layers_ns = NS_PER_BYTE["CPU"] * in_main_memory.layer_bytes + NS_PER_BYTE["GPU"] * on_the_gpu.layer_bytes
        kv_ns = KV_NS_PER_BYTE["CPU"] * in_main_memory.kv_bytes(n) + KV_NS_PER_BYTE["GPU"] * on_the_gpu.kv_bytes(n)
        assert _latency_ms(run, n) == pytest.approx((BASE_NS["GPU"] + layers_ns + kv_ns) / 1e6, rel=1e-3)
    batch_ns = 10 * (NS_PER_BYTE["CPU"] * in_main_memory.layer_bytes + NS_PER_BYTE["GPU"] * on_the_gpu.layer_bytes)
    assert dict(_found(run).prefill_ms)[512].value == pytest.approx(2 * batch_ns / 1e6, rel=1e-3)
    assert _found(run).basis == "twins of 2 and 6 of 16 layers, 8 on the GPU"
    assert _found(run).limit is None
    assert len(workers) == 2
    assert all(worker.closed for worker in workers)


def test_experts_of_some_layers_may_stay_in_main_memory(model: Path) -> None:
    experts = replace(
        TINY, architecture="qwen2moe", n_layer=16, n_expert=4, n_expert_used=2, n_ff_expert=256, n_ff_shared_expert=512
    )
    mixture = cached_twin("experts", experts, "q8_0", model.parent)
    run, workers = _run(mixture, LlamaConfig(n_cpu_moe=4))
    file = read_model_file(mixture)
    kept, others = step_cost(file, range(4)), step_cost(file, range(4, 16))
    layers_ns = KEPT_NS_PER_BYTE * kept.layer_bytes + NS_PER_BYTE["GPU"] * others.layer_bytes
    kv_ns = KV_NS_PER_BYTE["GPU"] * step_cost(file, range(16)).kv_bytes(1)
    assert _latency_ms(run, 1) == pytest.approx((BASE_NS["GPU"] + layers_ns + kv_ns) / 1e6, rel=1e-3)
    assert _found(run).basis.endswith("12 on the GPU, 4 on the GPU with their experts in main memory")
    loaded = [each.setup for each in workers[0].requests if isinstance(each, LoadModel)]
    assert [each.cpu_moe for each in loaded] == [False, True]


def test_without_a_gpu_all_layers_are_in_main_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the basis says, as llama.cpp may be built without one."""
    monkeypatch.setattr(twin_timer, "gpu_backends", lambda: ())
    run, _ = _run(model, LlamaConfig(n_gpu_layers=9), has_gpu=False)
    cost = step_cost(read_model_file(model), range(16))
    expected_ns = BASE_NS["CPU"] + NS_PER_BYTE["CPU"] * cost.layer_bytes + KV_NS_PER_BYTE["CPU"] * cost.kv_bytes(1)
    assert _latency_ms(run, 1) == pytest.approx(expected_ns / 1e6, rel=1e-3)
    assert _found(run).basis.endswith("all in main memory, as llama.cpp uses no GPU here")
