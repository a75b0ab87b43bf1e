"""Times predicted from costs with pooled terms."""

import math

import msgspec
import pytest

from ggbench.expect.cost_model import (
    Cost,
    DeviceKind,
    DeviceRead,
    HostRead,
    ModelKind,
    SpeedModel,
    decode_costs,
    quant_class,
)

MODEL = SpeedModel(
    terms=("layer", "read", "read:device=card/CUDA"),
    values=(0.0, math.log(1.25), math.log(1.1)),
    covariance=((100,), (0, 100), (0, 0, 400)),
    spreads={"read:device": 0.3},
    residual=0.05,
)
KNOWN = DeviceKind("card", "cards", "maker", "CUDA")


def test_a_known_device_takes_its_own_share_and_an_unknown_one_a_wider_interval() -> None:
    known = MODEL.predict([Cost(10.0, ("read", "read:device=card/CUDA"))])
    unknown = MODEL.predict([Cost(10.0, ("read", "read:device=other/CUDA"))])
    assert (known.value, unknown.value) == pytest.approx((13.75, 12.5))
    known_sd, unknown_sd = (math.log(each.high / each.value) / 2.3 for each in (known, unknown))
    assert (known_sd, unknown_sd) == pytest.approx(
        (math.sqrt(0.05**2 + 0.001 + 0.004), math.sqrt(0.05**2 + 0.001 + 0.3**2)), rel=1e-3
    )


def test_nothing_is_faster_than_its_reads_at_the_full_bandwidth() -> None:
    costs = [Cost(10.0, ("read", "read:device=other/CUDA")), Cost(1.0, ("layer",))]
    found = MODEL.predict(costs)
    assert found.low == 10.0 < found.value < found.high
    model = msgspec.structs.replace(MODEL, terms=("layer", "read", "read:device=fast/CUDA"), values=(0.0, 0.25, -0.5))
    fast = model.predict([Cost(10.0, ("read", "read:device=fast/CUDA")), costs[1]])
    assert (fast.low, fast.value) == (10.0, 11.0)  # the layer's time is not made up for by reading


def test_devices_compute_one_after_the_other() -> None:
    """Two that share the bytes take as long as one, and the link between them."""
    kind = ModelKind("llama", "q4_k", False, False)
    one = decode_costs([DeviceRead(KNOWN, 1e12, 8e9, 2e9, 32)], kind)
    two = decode_costs([DeviceRead(KNOWN, 1e12, 4e9, 1e9, 16)] * 2, kind)
    links = [cost for cost in two if cost.terms[0] == "link"]
    assert sum(cost.least_ms for cost in two) - links[0].least_ms == pytest.approx(sum(cost.least_ms for cost in one))
    assert len(links) == 1


CPU_MODEL = SpeedModel(
    terms=("read", "host", "cpu", "crossing"), values=(0.0, 0.0, math.log(2), math.log(2)),
    covariance=((0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)), spreads={"machine": 0.4}, residual=0.0,
)  # fmt: skip


def test_an_unknown_cpu_widens_the_interval_by_its_share() -> None:
    """Its spread applies to reading experts and to crossing to them, which are half of this time."""
    kind = ModelKind("qwen3moe", "q4_k", True, False)
    host = HostRead(1e9, 2e6, 0.0, 0, 0.0, 8)
    costs = decode_costs([DeviceRead(KNOWN, 1e9, 8e6, 0.0, 0)], kind, host=host, n_crossed=30)
    found = CPU_MODEL.predict(costs)
    assert found.value == pytest.approx(8 + 2 + 30 * 0.1 * 2)
    high = found.value * (found.high / found.value) ** (1.96 / 2.3)
    assert high == pytest.approx(8 + 8 * math.exp(1.96 * 0.4), rel=1e-3)


def test_a_cpu_takes_time_to_read_and_each_of_its_threads_to_compute() -> None:
    kind = ModelKind("llama", "q4_k", False, False)
    few, many = (CPU_MODEL.predict(decode_costs([], kind, host=HostRead(50e9, 4e9, 0.0, 0, 8e9, n))) for n in (2, 16))
    assert few.value - many.value == pytest.approx(8e9 * 5e-9 * 2 * (1 / 2 - 1 / 16))
    assert many.value == pytest.approx(80 + 5)


def test_a_cpu_computes_with_its_cache_more_slowly_than_it_reads_it() -> None:
    """Two threads of an EPYC take, by a forecast, the cache at 3.6 GB/s, where its memory gives 32 or more."""
    kind = ModelKind("llama", "q4_k", False, False)
    empty, deep = (decode_costs([], kind, host=HostRead(32e9, 8e9, kv, 40, 14e9, 2)) for kv in (0.0, 3.6e9))
    more = CPU_MODEL.predict(deep).value - CPU_MODEL.predict(empty).value
    assert more == pytest.approx(1e3 * (1 + 3.6 / 32), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("q4_k_m", "q4_k"), ("q4_K", "q4_k"), ("q5_1", "q5_0"), ("iq2_xxs", "iq2"), ("mxfp4", "mxfp4"),
        ("mxfp4_moe", "mxfp4"), ("bf16", "bf16"), ("q8_0", "q8_0"),
    ],
)  # fmt: skip
def test_tensor_types_and_quants_share_a_class(name: str, expected: str) -> None:
    assert quant_class(name) == expected
