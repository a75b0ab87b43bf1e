"""Decoding on a real GPU: where its memory goes, how fast it is, and what NVML tells beside it."""

from __future__ import annotations

import pytest

from ggbench.machine.gpus import gpu_bandwidth, visible_gpus
from ggbench.machine.readings import MachineReader
from ggbench.records.machine import Gpu
from ggbench.records.outcome import Outcome
from tests.gpu.conftest import Measure, Note, Twin

pytestmark = pytest.mark.gpu

SMALL = "qwen1.5-0.5b"
LARGE = "qwen1.5-7b"
N_GEN = 2000


def gpu_weight_bytes(row: Row) -> int:
    """Of all GPUs."""
    return sum(buffers.weight_bytes for buffers in row.buffers if not buffers.is_host)


def figures(row: Row) -> dict[str, object]:
    """What the report says of a decode."""
    fit, use = row.fit, row.gpu_use
    return {
        "outcome": row.outcome.value,
        "reason": row.reason,
        "prefill_ms": row.prefill_ms,
        "w_tokens_per_ms": fit and fit.w_tokens_per_ms,
        "w_share_ratio": row.w_ratio,
        "b_ms": fit and fit.b_ms,
        "b_share_ratio": row.b_ratio,
        "p50_ms": row.latency and row.latency.p50_ms,
        "speed_tok_s": row.latency and row.latency.tok_s,
        "limit_bytes_per_s": row.limit and row.limit.bandwidth_bytes_per_s,
        "flash_attn": row.flash_attn,
        "unsteady": row.unsteady,
        "buffers": list(row.buffers),
        "readings": use and use.n_readings,
        "hottest_c": use and use.temperature_max_c,
        "sm_clock_median_mhz": use and use.sm_clock_median_mhz,
        "sm_clock_min_mhz": use and use.sm_clock_min_mhz,
        "power_w": use and use.power_mean_w,
        "energy_per_token_mj": use and use.energy_per_token_mj,
        "slowed_by": list(use.throttle or ()) if use else None,
    }


def test_cudas_device_is_one_of_nvmls(
    gpu: Gpu, twin: Twin, measure: Measure, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp's CUDA0 is found among NVML's GPUs by what its log tells, also where it is chosen by its UUID."""
    plain = measure(twin(SMALL, "q4_k_m"), 16)
    assert plain.outcome is Outcome.COMPLETED, plain.reason
    assert gpu.uuid is not None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu.uuid)
    chosen = measure(twin(SMALL, "q4_k_m"), 16)

    note(
        "device",
        nvml=gpu,
        buffers=list(plain.buffers),
        bandwidth_bytes_per_s=getattr(gpu_bandwidth(gpu), "bytes_per_s", None),
    )
    for row in (plain, chosen):
        assert row.outcome is Outcome.COMPLETED, row.reason
        assert row.gpu_use is not None and row.gpu_use.indices == (gpu.index,)
    assert [each.index for each in visible_gpus()] == [gpu.index]


@pytest.mark.parametrize("quant", ["q4_k_m", "q8_0"])
@pytest.mark.parametrize("model", [SMALL, LARGE])
def test_w_and_b_over_two_thousand_tokens(
    model: str, quant: str, twin: Twin, measure: Measure, note: Note, gpu: Gpu
) -> None:
    """Every layer is on the GPU, B is no better than the bandwidth that NVML tells allows, and readings came along."""
    target = twin(model, quant)
    with MachineReader() as reader:
        before = reader.read().gpus
        row = measure(target, N_GEN)
        after = reader.read().gpus
    reached = None if row.limit is None or row.b_ratio is None else row.limit.bandwidth_bytes_per_s * row.b_ratio
    note(
        f"decode {model} {quant}, {N_GEN} tokens",
        **figures(row),
        reached_bytes_per_s=reached,
        nvml_before=next((each for each in before if each.index == gpu.index), None),
        nvml_after=next((each for each in after if each.index == gpu.index), None),
    )

    assert row.outcome is Outcome.COMPLETED, row.reason
    assert row.n_gen == N_GEN
    assert gpu_weight_bytes(row) > 0.5 * (row.weight_bytes or 0)
    assert row.fit is not None and row.fit.b_ms is not None
    assert row.gpu_use is not None
    if gpu_bandwidth(gpu) is not None:
        assert row.b_ratio is not None and 0 < row.b_ratio <= 1.05


def test_half_the_layers_on_the_gpu(twin: Twin, measure: Measure, note: Note) -> None:
    """Weights lie on both sides, and no limit is told of memories of two speeds."""
    row = measure(twin(LARGE, "q4_k_m"), 200, n_gpu_layers=16)
    note(f"decode {LARGE} q4_k_m, 16 layers of 32 on the GPU", **figures(row))

    assert row.outcome is Outcome.COMPLETED, row.reason
    assert 0.2 < gpu_weight_bytes(row) / (row.weight_bytes or 1) < 0.8
    assert row.limit is None


def test_a_quantized_cache_is_smaller(twin: Twin, measure: Measure, note: Note) -> None:
    """K and V in q8_0 take 34 bytes for 32 values, where f16 takes 64, and decode."""
    target = twin(LARGE, "q4_k_m")
    half = measure(target, 200, n_ctx=4096)
    eight = measure(target, 200, n_ctx=4096, type_k="q8_0", type_v="q8_0", flash_attn="on")
    note(
        f"decode {LARGE} q4_k_m, K and V in q8_0", kv_f16_bytes=half.kv_bytes, kv_bytes=eight.kv_bytes, **figures(eight)
    )

    assert eight.outcome is Outcome.COMPLETED, eight.reason
    assert half.kv_bytes and eight.kv_bytes
    assert eight.kv_bytes / half.kv_bytes == pytest.approx(34 / 64, rel=0.01)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_flash_attention_is_what_was_asked_for(flash_attn: str, twin: Twin, measure: Measure, note: Note) -> None:
    """Both decode, and the log tells the one that was asked for."""
    row = measure(twin(LARGE, "q4_k_m"), N_GEN, flash_attn=flash_attn)
    note(f"decode {LARGE} q4_k_m, flash attention {flash_attn}", **figures(row))

    assert row.outcome is Outcome.COMPLETED, row.reason
    assert row.flash_attn is (flash_attn == "on")
