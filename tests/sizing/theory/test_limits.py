"""Decode, prefill, memory and batches together: what has to hold between them."""

import msgspec.structs
import pytest

from ggbench.errors import Unsupported
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.machine.description import Device
from ggbench.models.catalog import load_catalog
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.limits import (
    Bound,
    Hardware,
    PrefillLimit,
    decode_latency_ms,
    decode_limit,
    decode_line,
    hardware_of,
    model_limits,
)
from ggbench.sizing.theory.weights import count_parameters, file_weights, uniform_weights
from ggbench.stats.decode_timing import Bandwidth, Break

BANDWIDTH, COMPUTE = 1e12, 80e12


def drawn(model_id: str = "qwen1.5-7b") -> ModelFile:
    return build_model(load_catalog().model(model_id).hyper, model_id)


def windowed(period: int) -> ModelFile:
    """The dense model with a window of 4,096 in the first layer of each period."""
    states = (state.within(None if layer % period else 4096) for layer, state in enumerate(DENSE.states))
    return msgspec.structs.replace(DENSE, states=tuple(states))


DENSE, MOE = drawn(), drawn("qwen1.5-moe-a2.7b")


def test_a_prompt_of_one_token_reads_as_the_first_decode_does() -> None:
    """The article, section 4.4: B is prefill at a length of 1."""
    weights, kv = uniform_weights(count_parameters(DENSE), 8), kv_cache(DENSE)
    curve = PrefillLimit(weights, kv, BANDWIDTH, COMPUTE, 1)
    assert curve.read_ms(1) == pytest.approx(decode_line(weights, kv, BANDWIDTH).b_ms)
    assert decode_latency_ms(weights, kv, BANDWIDTH, 1e9, 1) == pytest.approx(curve.compute_ms(1) * COMPUTE / 1e9)


def test_a_scan_of_all_lengths_finds_the_same_times_and_knees() -> None:
    weights, kv = uniform_weights(count_parameters(DENSE), 16), kv_cache(DENSE)
    params = weights.parameters
    curve = PrefillLimit(weights, kv, BANDWIDTH, COMPUTE, 2000)
    found, before, pairs = [], False, 0
    for n in range(1, 2001):
        pairs += n
        read = (params.active * 2 + pairs * kv.bytes_per_token) / BANDWIDTH
        compute = (params.layers * n + pairs * kv.bytes_per_token / 2 + params.lm_head) * 2 / COMPUTE
        assert curve.latency_ms(n) == pytest.approx(max(read, compute) * 1e3)
        if n > 1 and (compute > read) != before:
            found.append(n - 1)
        before = compute > read
    assert curve.knees() == tuple(found)
    assert len(found) == 2


def test_the_bound_changes_at_the_knees() -> None:
    weights, kv = uniform_weights(count_parameters(DENSE), 16), kv_cache(DENSE)
    curve = PrefillLimit(weights, kv, BANDWIDTH, COMPUTE, 2000)
    first, second = curve.knees()
    bounds = [curve.bound(n) for n in (1, first, first + 1, second, second + 1, 2000)]
    assert bounds == [Bound.WEIGHTS, Bound.WEIGHTS, Bound.COMPUTE, Bound.COMPUTE, Bound.KV, Bound.KV]
    assert PrefillLimit(weights, kv, BANDWIDTH, 1e18, 2000).knees() == ()


def test_a_batch_reads_the_weights_once_and_kv_for_each() -> None:
    weights, kv = uniform_weights(count_parameters(DENSE), 4), kv_cache(DENSE)
    one, eight = decode_line(weights, kv, BANDWIDTH), decode_line(weights, kv, BANDWIDTH, batch_size=8)
    assert one.w_tokens_per_ms is not None
    assert eight.w_tokens_per_ms == pytest.approx(one.w_tokens_per_ms / 8)
    kv_ms = kv.bytes_per_token / BANDWIDTH * 1e3
    assert eight.b_ms - one.b_ms == pytest.approx(7 * kv_ms)


def test_windows_bound_what_a_token_reads() -> None:
    half = windowed(2)
    whole = decode_limit(DENSE, Bandwidth(BANDWIDTH, "given"))
    limit = decode_limit(half, Bandwidth(BANDWIDTH, "given"))
    assert whole.w_tokens_per_ms is not None and limit.w_tokens_per_ms == pytest.approx(2 * whole.w_tokens_per_ms)
    assert limit.b_ms == pytest.approx(whole.b_ms)
    none = decode_limit(windowed(1), Bandwidth(BANDWIDTH, "given"))
    assert none.w_tokens_per_ms is None
    assert limit.breaks == (Break(4096, whole.w_tokens_per_ms),)


def test_a_mixture_reads_more_experts_with_more_tokens() -> None:
    weights = uniform_weights(count_parameters(MOE), 8)
    parameters = weights.parameters
    assert weights.read_bytes(1) == pytest.approx(parameters.active)
    two = weights.layer_bytes + weights.lm_head_bytes + weights.expert_bytes * (4 + 56 * 4 / 60) / 60
    assert weights.read_bytes(2) == pytest.approx(two)
    many = [weights.read_bytes(n) for n in (100, 1000, 131_072)]
    assert many == sorted(many)
    assert many[-1] == pytest.approx(weights.resident_bytes)
    assert weights.resident_bytes == pytest.approx(parameters.total - parameters.embedding)


def test_the_table_of_embeddings_is_not_in_the_gpus_memory() -> None:
    assert DENSE.weight_bytes is not None
    table = next(tensor for tensor in DENSE.tensors if tensor.name == "token_embd.weight")
    assert file_weights(DENSE, "f16").resident_bytes == DENSE.weight_bytes - (table.n_bytes or 0)
    hyper = msgspec.structs.replace(load_catalog().model("qwen2.5-0.5b").hyper, tied_embeddings=True)
    tied = build_model(hyper, "tied")
    assert file_weights(tied, "f16").resident_bytes == tied.weight_bytes


def test_unknown_figures_of_a_machine_leave_their_limits_unknown() -> None:
    weights, kv = (uniform_weights(count_parameters(DENSE), 4),), kv_cache(DENSE)
    (memory,) = model_limits(weights, kv, Hardware("m", memory_bytes=24 << 30), 8)
    assert (memory.max_n_ctx, memory.line, memory.tok_s, memory.prefill) == (42_382, None, (), None)
    (speed,) = model_limits(weights, kv, Hardware("b", bandwidth_bytes_per_s=1e12), 8)
    assert (speed.max_n_ctx, speed.fits, speed.prefill) == (None, None, None)
    assert speed.line is not None
    assert len(speed.tok_s) == 3
    (small,) = model_limits(weights, kv, Hardware("s", memory_bytes=1 << 30), 8)
    assert (small.max_n_ctx, small.fits) == (None, False)


def test_the_limit_of_a_file_is_its_bytes_over_the_bandwidth() -> None:
    """B reads every tensor but the table of embeddings, and one position; W is one position's share."""
    limit = decode_limit(DENSE, Bandwidth(BANDWIDTH, "given"))
    assert DENSE.active_weight_bytes is not None
    assert limit.b_ms == pytest.approx((DENSE.active_weight_bytes + (512 << 10)) / BANDWIDTH * 1e3)
    assert limit.w_tokens_per_ms == pytest.approx(BANDWIDTH / (512 << 10) / 1e3)


def test_a_tensor_of_unknown_type_is_not_counted_as_nothing() -> None:
    unknown = TensorInfo("blk.0.x.weight", (4,), "type 97", None)
    file = msgspec.structs.replace(DENSE, tensors=(*DENSE.tensors, unknown))
    with pytest.raises(Unsupported, match="type 97"):
        decode_limit(file, Bandwidth(BANDWIDTH, "given"))


def test_a_cache_keeps_a_window_of_some_layers() -> None:
    kv = kv_cache(windowed(2))
    assert float(kv.cached_bytes(8192)) == 6144 * kv.bytes_per_token


def test_a_gpu_of_this_machine_is_what_its_driver_says() -> None:
    """Memory and bandwidth from NVML, the compute rate from the table; an unknown GPU keeps what NVML knows."""
    nvml = Device("NVIDIA GeForce RTX 4090", 25_757_220_864, "NVML", Bandwidth(1008e9, "NVML"))
    found = hardware_of(nvml)
    assert (found.memory_bytes, found.compute_flop_per_s) == (25_757_220_864, 82.58 * 2**40)
    assert found.bandwidth_bytes_per_s == pytest.approx(1008 * 2**30, rel=1e-3)
    unknown = hardware_of(msgspec.structs.replace(nvml, name="NVIDIA Future X1"))
    assert unknown.compute_flop_per_s is None
    assert unknown.bandwidth_bytes_per_s == found.bandwidth_bytes_per_s
