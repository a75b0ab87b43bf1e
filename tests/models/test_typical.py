"""Typical losses of quant types, against the published tables they are from."""

import pytest

from ggbench.decisions.known_losses import typical_loss


def test_the_median_of_published_divergences() -> None:
    found = typical_loss("Q4_K_M", 7_000_000_000)
    assert found is not None
    assert found.basis == "published typical"
    assert found.nats.value == pytest.approx(((0.028152 + 0.031273) / 2 + 0.012686) / 2)
    assert found.nats.low <= found.nats.value <= found.nats.high
    assert "llama-3-8b and llama-2-7b" in found.source


def test_the_range_is_of_models_of_about_the_size() -> None:
    small, large = typical_loss("q2_k", 500_000_000), typical_loss("q2_k", 72_000_000_000)
    assert small is not None
    assert large is not None
    assert small.nats.high == pytest.approx(0.597, abs=0.001)
    assert large.nats.low == pytest.approx(0.0796, abs=0.0001)
    assert large.nats.high < 0.45
