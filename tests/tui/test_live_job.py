"""A running job as the screen reads it."""

import numpy as np
import pytest

from ggbench.show.figures import Line, latency_figure
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.tui.live_job import LiveJob


def grown(n: int) -> LiveJob:
    """B 10 ms, W 200 tokens/ms, in batches as a worker sends them."""
    live = LiveJob(0)
    live.n_total = 10_000
    for first in range(26, 26 + n, 50):
        live.append(first, [10_000_000 + (position - 1) * 5_000 for position in range(first, first + 50)], "ab")
    return live


def test_the_numbers_are_those_of_the_samples() -> None:
    numbers = grown(5000).numbers()
    assert numbers.fit is not None and numbers.latency is not None
    assert numbers.fit.w_tokens_per_ms == pytest.approx(200)
    assert numbers.fit.b_ms == pytest.approx(10)
    assert numbers.latency.p50_ms == pytest.approx(10 + (25 + 2499.5) / 200)
    assert numbers.latency.tok_s == pytest.approx(1e3 / (10 + (25 + 2499.5) / 200))
    left_ms = sum(10 + (position - 1) / 200 for position in range(5026, 10_026))
    assert numbers.eta_s == pytest.approx(left_ms / 1e3, rel=1e-6)


def test_no_line_is_drawn_where_w_is_only_a_bound() -> None:
    """Flat samples have no W; a line through them would look like a fit."""
    live = LiveJob(0)
    live.append(26, [10_000_000 + 100_000 * (position % 7) for position in range(1000)], "")
    numbers = live.numbers()
    assert numbers.fit is not None
    assert (numbers.fit.w_tokens_per_ms, numbers.fit.b_ms) == (None, None)
    assert latency_figure([live.plotted("q8_0")]).curves[0].fit is None


def test_a_series_has_the_fit_and_the_limit() -> None:
    live = grown(1000)
    live.limit = DecodeLimit(300.0, 8.0, 20e9, "given")
    (series,) = latency_figure([live.plotted("q8_0", dimmed=True)]).curves
    assert series.limit == Line(300.0, 8.0)
    assert series.fit is not None
    assert (series.fit.w_tokens_per_ms, series.fit.b_ms) == pytest.approx((200, 10))
    assert series.dimmed
    assert np.allclose(series.y[:2], [10.125, 10.13])
