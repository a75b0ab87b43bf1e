"""The loss that is expected of a quant before it is measured: of the nearest model that others measured."""

import pytest

from ggbench.decisions.known import typical_loss

LADDER = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "q3_k_m", "q2_k")


@pytest.mark.parametrize(("n_params", "has_experts"), [(4e9, False), (8e9, False), (27e9, False), (30e9, True)])
def test_fewer_bits_never_lose_less(n_params: float, has_experts: bool) -> None:
    losses = [typical_loss(quant, int(n_params), has_experts=has_experts) for quant in LADDER]
    nats = [loss.nats.value for loss in losses if loss is not None]
    assert len(nats) == len(LADDER)
    assert nats == sorted(nats)


@pytest.mark.parametrize(
    ("quant", "n_params", "has_experts", "nats", "source"),
    [
        ("Q4_K_M", 8e9, False, 0.0297125, "q4_k_m of llama-3-8b"),
        ("q4_k_m", 31e9, False, 0.006193, "q4_k_m of qwen3.5-27b"),
        ("ud-q4_k_xl", 31e9, False, 0.005087, "ud-q4_k_xl of qwen3.5-27b"),
        ("ud-q4_k_xl", 26e9, True, 0.0134, "ud-q4_k_xl of qwen3.6-35b-a3b"),
        ("q4_k_m", 26e9, True, 0.0138, "q4_k_m of llama-3-8b, carried over to qwen3.6-35b-a3b"),
        ("ud-q3_k_xl", 8e9, False, 0.0931355, "q3_k_m of llama-3-8b"),
    ],
)
def test_the_nearest_model_is_named(quant: str, n_params: float, has_experts: bool, nats: float, source: str) -> None:
    """Medians over the files of a quant in the published tables; between tables, at the quants that both have."""
    loss = typical_loss(quant, int(n_params), has_experts=has_experts)
    assert loss is not None
    assert loss.nats.value == pytest.approx(nats)
    assert loss.source.partition(";")[0] == source


def test_a_type_that_nobody_measured_has_no_typical_loss() -> None:
    assert typical_loss("tq1_0", 8 * 10**9) is None
