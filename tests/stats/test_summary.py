"""Percentiles and rate, against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ggbench.stats.samples import summarize


def test_percentiles_and_rate_of_known_steps() -> None:
    """Steps of 1 to 101 ms, shuffled: percentiles fall on samples, and 101 tokens take 5151 ms."""
    step_ns = np.random.default_rng(0).permutation(np.arange(1, 102)) * 1_000_000
    summary = summarize(step_ns, sample_ns=[10_000, 30_000, 20_000])
    assert summary is not None
    assert (summary.p50_ms, summary.p95_ms, summary.p99_ms) == pytest.approx((51, 96, 100))
    assert summary.tok_s == pytest.approx(101 / 5.151)
    assert summary.sample_p50_ms == pytest.approx(0.02)


def test_rate_is_tokens_over_time_not_the_mean_of_rates() -> None:
    """Two steps of 1 and 9 ms are 200 tokens/s, where the mean of their rates would be 556."""
    summary = summarize([1_000_000, 9_000_000])
    assert summary is not None
    assert summary.tok_s == pytest.approx(200)


def test_non_finite_samples_are_left_out() -> None:
    """A missing sample counts neither as a token nor as time; an empty sampler was not timed."""
    summary = summarize([2_000_000, math.nan, 2_000_000, math.inf], sample_ns=[])
    assert summary is not None
    assert summary.tok_s == pytest.approx(500)
    assert summary.sample_p50_ms is None


@pytest.mark.parametrize("step_ns", [[], [math.nan], [0, 0]])
def test_no_time_measured_is_no_summary(step_ns: list[float]) -> None:
    """No measurement is None, not zero or infinite tokens per second."""
    assert summarize(step_ns) is None
