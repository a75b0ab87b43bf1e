"""Decoding on a real GPU: where its memory goes, how fast it is, and what NVML reports beside it."""

import pytest

from ggbench.engines.endings import Outcome
from ggbench.machine.gpus import gpu_bandwidth, visible_gpus
from ggbench.machine.readings import MachineReader
from ggbench.machine.records import Gpu
from ggbench.runs.run import Run
from tests.gpu.conftest import Measure, Note, Twin

pytestmark = pytest.mark.gpu

SMALL = "qwen1.5-0.5b"
LARGE = "qwen1.5-7b"
N_GEN = 2000


def gpu_weight_bytes(run: Run) -> int:
    return sum(buffers.weight_bytes for buffers in run.memory.buffers if not buffers.is_host)


def figures(run: Run) -> dict[str, object]:
    fit, use, decode = run.fit, run.gpu_use, run.decode
    return {
        "outcome": run.outcome.value, "reason": run.reason, "prefill_ms": decode and decode.prefill_ms,
        "w_tokens_per_ms": fit and fit.w_tokens_per_ms, "w_share_ratio": decode and decode.w_ratio,
        "b_ms": fit and fit.b_ms, "b_share_ratio": decode and decode.b_ratio,
        "p50_ms": run.latency and run.latency.p50_ms, "speed_tok_s": run.latency and run.latency.tok_s,
        "limit_bytes_per_s": run.limit and run.limit.bandwidth_bytes_per_s, "flash_attn": run.memory.flash_attn,
        "unsteady": decode and decode.unsteady, "buffers": list(run.memory.buffers),
        "readings": use and use.n_readings, "temperature_max_c": use and use.temperature_max_c,
        "sm_clock_min_mhz": use and use.sm_clock_min_mhz,
        "power_w": use and use.power_mean_w, "energy_per_token_mj": use and use.energy_per_token_mj,
        "throttle": [each.reason for each in use.throttle or ()] if use else None,
    }  # fmt: skip


def test_cudas_device_is_one_of_nvmls(
    gpu: Gpu, twin: Twin, measure: Measure, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = measure(twin(SMALL, "q4_k_m"), 16)
    assert plain.outcome is Outcome.COMPLETED, plain.reason
    assert gpu.uuid is not None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu.uuid)
    chosen = measure(twin(SMALL, "q4_k_m"), 16)

    note(
        "device", nvml=gpu, buffers=list(plain.memory.buffers),
        bandwidth_bytes_per_s=getattr(gpu_bandwidth(gpu), "bytes_per_s", None),
    )  # fmt: skip
    for run in (plain, chosen):
        assert run.outcome is Outcome.COMPLETED, run.reason
        assert run.gpu_use is not None and run.gpu_use.indices == (gpu.index,)
    assert [each.index for each in visible_gpus()] == [gpu.index]


@pytest.mark.parametrize("quant", ["q4_k_m", "q8_0"])
@pytest.mark.parametrize("model", [SMALL, LARGE])
def test_w_and_b_over_two_thousand_tokens(
    model: str, quant: str, twin: Twin, measure: Measure, note: Note, gpu: Gpu
) -> None:
    target = twin(model, quant)
    reader = MachineReader()
    before = reader.read().gpus
    run = measure(target, N_GEN)
    after = reader.read().gpus
    limit, b_ratio = run.limit, None if run.decode is None else run.decode.b_ratio
    reached = None if limit is None or b_ratio is None else limit.bandwidth_bytes_per_s * b_ratio
    note(
        f"decode {model} {quant}, {N_GEN} tokens",
        **figures(run),
        reached_bytes_per_s=reached,
        nvml_before=next((each for each in before if each.index == gpu.index), None),
        nvml_after=next((each for each in after if each.index == gpu.index), None),
    )

    assert run.outcome is Outcome.COMPLETED, run.reason
    assert run.decode is not None and run.decode.n_gen == N_GEN
    assert gpu_weight_bytes(run) > 0.5 * (run.subject.weight_bytes or 0)
    assert run.fit is not None and run.fit.b_ms is not None
    assert run.gpu_use is not None
    if gpu_bandwidth(gpu) is not None:
        assert b_ratio is not None and 0 < b_ratio <= 1.05


def test_half_the_layers_on_the_gpu(twin: Twin, measure: Measure, note: Note) -> None:
    run = measure(twin(LARGE, "q4_k_m"), 200, n_gpu_layers=16)
    note(f"decode {LARGE} q4_k_m, 16 layers of 32 on the GPU", **figures(run))

    assert run.outcome is Outcome.COMPLETED, run.reason
    assert 0.2 < gpu_weight_bytes(run) / (run.subject.weight_bytes or 1) < 0.8
    assert run.limit is None


def test_a_quantized_cache_is_smaller(twin: Twin, measure: Measure, note: Note) -> None:
    target = twin(LARGE, "q4_k_m")
    half = measure(target, 200, n_ctx=4096)
    eight = measure(target, 200, n_ctx=4096, type_k="q8_0", type_v="q8_0", flash_attn="on")
    note(
        f"decode {LARGE} q4_k_m, K and V in q8_0",
        kv_f16_bytes=half.memory.kv_bytes,
        kv_bytes=eight.memory.kv_bytes,
        **figures(eight),
    )

    assert eight.outcome is Outcome.COMPLETED, eight.reason
    assert half.memory.kv_bytes and eight.memory.kv_bytes
    assert eight.memory.kv_bytes / half.memory.kv_bytes == pytest.approx(34 / 64, rel=0.01)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_flash_attention_is_what_was_asked_for(flash_attn: str, twin: Twin, measure: Measure, note: Note) -> None:
    run = measure(twin(LARGE, "q4_k_m"), N_GEN, flash_attn=flash_attn)
    note(f"decode {LARGE} q4_k_m, flash attention {flash_attn}", **figures(run))

    assert run.outcome is Outcome.COMPLETED, run.reason
    assert run.memory.flash_attn is (flash_attn == "on")
