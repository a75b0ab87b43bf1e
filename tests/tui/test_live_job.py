"""A running job as the screen reads it."""

from __future__ import annotations

import numpy as np
import pytest

from ggbench.records.speed import DecodeLimit
from ggbench.report.plot.series import Line
from ggbench.tui.live_job import LiveJob


def grown(n: int) -> LiveJob:
    """B 10 ms, W 200 tokens/ms, in batches as a worker sends them."""
    live = LiveJob(0)
    live.n_total = 10_000
    for first in range(26, 26 + n, 50):
        live.append(first, [10_000_000 + (position - 1) * 5_000 for position in range(first, first + 50)], "ab")
    return live


def test_samples_keep_their_order_however_many_come() -> None:
    """The arrays grow, and what a reader took before stays as it was."""
    live = grown(1000)
    before = live.step_ns
    kept = before.copy()
    live.append(1026, [1] * 5000, "")
    assert live.positions.tolist() == list(range(26, 6026))
    assert (live.step_ns[:1000] == kept).all()
    assert (before == kept).all()


def test_the_numbers_are_those_of_the_samples() -> None:
    """W, B, rate, percentiles, and an ETA that counts on the climb going on."""
    numbers = grown(5000).numbers()
    assert numbers.w_tokens_per_ms == pytest.approx(200)
    assert numbers.b_ms == pytest.approx(10)
    assert numbers.p50_ms == pytest.approx(10 + (25 + 2499.5) / 200)
    assert numbers.tok_s == pytest.approx(1e3 / (10 + (25 + 2499.5) / 200))
    left_ms = sum(10 + (position - 1) / 200 for position in range(5026, 10_026))
    assert numbers.eta_s == pytest.approx(left_ms / 1e3, rel=1e-6)


def test_a_job_without_samples_has_no_numbers() -> None:
    """None, and not zero."""
    live = LiveJob(0)
    assert live.numbers().p50_ms is None
    assert live.numbers().eta_s is None
    assert live.series("q8_0").fit is None


def test_a_series_has_the_fit_and_the_limit() -> None:
    """The plot gets the lines with the samples, in ms."""
    live = grown(1000)
    live.limit = DecodeLimit(300.0, 8.0, 20e9, "given")
    series = live.series("q8_0", dimmed=True)
    assert series.limit == Line(300.0, 8.0)
    assert series.fit is not None
    assert (series.fit.w_tokens_per_ms, series.fit.b_ms) == pytest.approx((200, 10))
    assert series.dimmed
    assert np.allclose(series.latency_ms[:2], [10.125, 10.13])


def test_the_text_is_a_tail() -> None:
    """A long decode does not fill memory with what nobody reads."""
    live = LiveJob(0)
    live.append(26, [1], "x" * 10_000)
    live.append(27, [1], "end")
    assert live.text.endswith("xend")
    assert len(live.text) < 5000
