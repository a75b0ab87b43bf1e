"""A profile taken of an engine with planted costs gives those back, and the speed of models it never saw."""

from pathlib import Path

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.header import encode_header, write_sparse_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import plan_twin
from ggbench.machine.host import describe_cpu
from ggbench.machine.profile import MachineProfile, read_profile
from ggbench.models.catalog import load_catalog
from ggbench.sizing import profiling
from ggbench.sizing.placement import Placement
from ggbench.sizing.work import profiled_speed
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.speed_estimate import SpeedEstimate, prefill_ms_at, step_ms_at
from tests.fakes.engine import fake
from tests.fakes.profiles import PlantedCosts, planted_profile, rates_of

SETUP = LlamaConfig()


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> MachineProfile:
    def write_header(planned: ModelFile, path: Path, **_: bool) -> None:
        header = encode_header(planned.metadata, planned.tensors)
        write_sparse_file(path, header.data, header.file_bytes)

    folder = tmp_path_factory.mktemp("forecasts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling, "write_twin", write_header)
        patch.setattr(profiling, "forecasts_dir", lambda: folder)
        patch.setattr(profiling, "devices_here", lambda: ())
        profile = profiling.take_profile(lambda _: None, lambda _: fake(PlantedCosts()))
    assert not list(folder.iterdir())
    return profile


def known(profile: MachineProfile, model: str, quant: str, setup: LlamaConfig = SETUP) -> SpeedEstimate:
    file = plan_twin(load_catalog().model(model).hyper, [quant], name=model)[quant]
    found = profiled_speed(profile, file, Placement(file, setup, on_gpu=False), setup)
    assert found is not None
    return found


def test_each_type_costs_what_was_planted(taken: MachineProfile) -> None:
    """The time of layers and step is taken out of that of the weights, for every size of batch."""
    for n_batch, rates in taken.host.rates.items():
        planted = rates_of(n_batch)
        assert rates.layer_ms == pytest.approx(planted.layer_ms, rel=0.1), "thin layers have some weights too"
        assert rates.expert_share == pytest.approx(planted.expert_share, rel=0.02)
        for name, timed in rates.gib_ms.items():
            assert timed.ms == pytest.approx(planted.gib_ms[name].ms, rel=0.01)
    assert "mxfp4" not in taken.host.rates[1].gib_ms, "llama.cpp could not run it"


@pytest.mark.parametrize(
    ("model", "quant", "setup"),
    [
        ("qwen1.5-0.5b", "q4_k_m", SETUP),
        ("gemma-3-1b", "q8_0", SETUP),
        ("qwen1.5-moe-a2.7b", "q4_k_m", SETUP),
        ("qwen2.5-7b", "q5_k_m", LlamaConfig(type_k="q8_0", type_v="q8_0")),
        ("qwen2.5-7b", "q3_k_m", LlamaConfig(flash_attn="off")),
    ],
)
def test_models_that_were_not_timed_take_what_the_planted_costs_give(
    taken: MachineProfile, model: str, quant: str, setup: LlamaConfig
) -> None:
    """Dense, windowed and MoE, at both ends of a context, and for a prompt."""
    found, truth = known(taken, model, quant, setup), known(planted_profile(taken.threads), model, quant, setup)
    for n in (1, 4096, 32768):
        assert step_ms_at(found, n).value == pytest.approx(step_ms_at(truth, n).value, rel=0.02)
        assert step_ms_at(found, n).low < step_ms_at(truth, n).value < step_ms_at(found, n).high
    prompts = [prefill_ms_at(each, 2048) for each in (found, truth)]
    assert prompts[0] and prompts[1] and prompts[0].value == pytest.approx(prompts[1].value, rel=0.03)


def test_a_type_that_was_not_timed_widens_the_interval(taken: MachineProfile) -> None:
    """All other weights have a timing of their own."""
    timed, untimed = (step_ms_at(known(taken, "qwen1.5-0.5b", quant), 1) for quant in ("q4_k_m", "bf16"))
    assert (untimed.high - untimed.value) / untimed.value > 2 * (timed.high - timed.value) / timed.value


@pytest.mark.parametrize(
    "setup", [LlamaConfig(threads=63), LlamaConfig(type_k="q5_1", type_v="q5_1"), LlamaConfig(type_k="q8_0")]
)
def test_a_setup_that_was_not_timed_has_no_speed(taken: MachineProfile, setup: LlamaConfig) -> None:
    """Other threads, and other kinds of KV cache."""
    file = plan_twin(load_catalog().model("qwen1.5-0.5b").hyper, ["q8_0"], name="x")["q8_0"]
    assert profiled_speed(taken, file, Placement(file, setup, on_gpu=False), setup) is None


def test_weights_read_faster_than_the_probe_raise_the_bandwidth(taken: MachineProfile) -> None:
    """A virtual machine's memory may be twice as fast a minute later; the profile would be refused as impossible."""
    rates = taken.host.rates
    host = profiling._host(describe_cpu(), 1 << 34, Bandwidth(1e9, "a probe"), rates)
    assert host.bandwidth_bytes_per_s == pytest.approx((1 << 30) / 0.060, rel=0.02)
    assert host.bandwidth_source == "the fastest of its weights"
    assert profiling._host(describe_cpu(), 1 << 34, Bandwidth(1e12, "a probe"), rates).bandwidth_source == "a probe"


def test_what_is_written_is_read_back(taken: MachineProfile) -> None:
    """Some kilobytes of JSON."""
    assert read_profile(taken.encode(), "x.json") == taken
    assert len(taken.encode()) < 16_000
