"""The loss that is expected of a quant before it is measured: what others published."""

import pytest

from ggbench.decisions.known import typical_loss


@pytest.mark.parametrize(
    ("quant", "nats", "source"),
    [
        ("Q4_K_M", 0.02119925, "q4_k_m of llama-3-8b and llama-2-7b"),
        ("ud-q4_k_xl", 0.02119925, "q4_k_m of llama-3-8b and llama-2-7b"),
        ("ud-iq2_m", 0.325989, "iq2_m of llama-3-8b"),
    ],
)
def test_divergences_over_longer_contexts_are_listed_and_not_averaged(quant: str, nats: float, source: str) -> None:
    """Qwen3.5 27B was scored over 4,096 tokens of chats, where a divergence is several times smaller."""
    loss = typical_loss(quant, 27 * 10**9)
    assert loss is not None
    assert loss.nats.value == pytest.approx(nats)
    assert loss.source.partition(";")[0] == source


def test_the_divergences_of_the_nearest_model_come_first() -> None:
    dense, mixture = typical_loss("q4_k_m", 27 * 10**9), typical_loss("ud-q4_k_m", 35 * 10**9)
    assert dense is not None and mixture is not None
    assert [each.of for each in dense.published[:3]] == [
        "qwen3.5-27b, imatrix bartowski", "qwen3.5-27b, imatrix unsloth", "qwen3.5-27b, imatrix mradermacher i1",
    ]  # fmt: skip
    assert (mixture.published[0].of, mixture.published[0].nats) == ("qwen3.6-35b-a3b, imatrix unsloth", 0.0138)


def test_a_type_that_nobody_measured_has_no_typical_loss() -> None:
    assert typical_loss("tq1_0", 8 * 10**9) is None
