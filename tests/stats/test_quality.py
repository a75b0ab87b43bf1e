"""Perplexity and divergence with their errors."""

import math

import numpy as np
import pytest

from ggbench.experiments.quality.scores import (
    divergence,
    mean_and_error,
    paired_difference,
    perplexity,
    running_means,
)


def test_perplexity_has_the_error_that_llama_perplexity_prints() -> None:
    nll = np.random.default_rng(1).gamma(2, 1.2, 4080).astype(np.float32)
    mean = float(nll.mean(dtype="f8"))
    spread = math.sqrt((float(np.square(nll, dtype="f8").mean()) - mean**2) / (len(nll) - 1))
    found = perplexity(nll)
    assert found.mean == pytest.approx(math.exp(mean), rel=1e-9)
    assert found.error == pytest.approx(math.exp(mean) * spread, rel=1e-6)


def test_divergence_reduces_every_position() -> None:
    rng = np.random.default_rng(2)
    base_nll = rng.gamma(2, 1, 1000)
    nll = base_nll + rng.normal(0.1, 0.2, 1000)
    kld, p_diff = rng.gamma(1, 0.05, 1000), rng.normal(0, 0.1, 1000)
    found = divergence(nll, base_nll, kld, p_diff, 900)
    assert found.kld.mean == pytest.approx(kld.mean())
    assert dict(found.kld_percentiles)[100.0] == kld.max()
    assert dict(found.kld_percentiles)[50.0] == pytest.approx(np.median(kld))
    assert found.same_top.mean == 0.9
    assert found.same_top.error == pytest.approx(math.sqrt(0.9 * 0.1 / 999))
    assert found.rms_p_diff.mean == pytest.approx(math.sqrt((p_diff**2).mean()))
    assert found.ln_ppl_ratio.mean == pytest.approx((nll - base_nll).mean())
    unpaired = math.hypot(mean_and_error(nll).error, mean_and_error(base_nll).error)
    assert found.ln_ppl_ratio.error < unpaired / 4


def test_the_paired_interval_covers_the_truth_at_its_rate() -> None:
    rng, truth, covered = np.random.default_rng(3), 0.01, 0
    for _ in range(400):
        chunks = rng.normal(2.5, 0.5, 60)
        found = paired_difference(
            (chunks + truth + rng.normal(0, 0.02, 60)).tolist(), (chunks + rng.normal(0, 0.02, 60)).tolist()
        )
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 400 <= 0.98


def test_the_chunks_needed_would_separate_them() -> None:
    rng = np.random.default_rng(4)
    one, other = rng.normal(0.01, 0.05, 20), np.zeros(20)
    found = paired_difference(one.tolist(), other.tolist())
    assert found is not None
    assert not found.is_distinguishable
    assert found.n_chunks_needed is not None
    times = -(-found.n_chunks_needed // 20) + 1
    more = paired_difference(np.tile(one, times).tolist(), np.tile(other, times).tolist())
    assert more is not None
    assert more.is_distinguishable


def test_running_means_are_those_of_every_prefix() -> None:
    """After each chunk the mean and the error are what they would be had the text ended there."""
    nll = np.random.default_rng(1).exponential(2.0, 60).astype(np.float32)
    mean, error = running_means(nll, 12)
    for chunk in range(5):
        expected = mean_and_error(nll[: 12 * (chunk + 1)])
        assert (mean[chunk], error[chunk]) == pytest.approx((expected.mean, expected.error))
