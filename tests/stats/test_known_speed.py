"""A known speed between the positions that were measured, and the intervals of a measured line."""

import math

import pytest

from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit
from ggbench.stats.intervals import Expected
from ggbench.stats.known_speed import KnownSpeed, measured_steps, step_ms_at, tok_s_at

LINE = KnownSpeed(
    "forecast",
    "made up",
    ((1, Expected(100.0, 90.0, 110.0)), (1001, Expected(200.0, 170.0, 240.0)), (2001, Expected(250.0, 200.0, 300.0))),
    ((512, Expected(1000.0, 900.0, 1100.0)), (1024, Expected(2500.0, 2000.0, 3000.0))),
)
LIMIT = DecodeLimit(w_tokens_per_ms=50.0, b_ms=40.0, bandwidth_bytes_per_s=20e9, bandwidth_source="given")


def _latency(ms: float, share: float = 0.02) -> LatencySummary:
    tok_s = 1e3 / ms
    return LatencySummary(ms, ms, ms, tok_s, None, (tok_s * (1 - share), tok_s * (1 + share)))


def _fit(w: float | None, interval: tuple[float, float | None] | None) -> LineFit:
    return LineFit(1000, w, interval, None, None, None, None)


def test_latencies_are_interpolated_and_continued() -> None:
    assert step_ms_at(LINE, 501) == Expected(150.0, 130.0, 175.0)
    assert step_ms_at(LINE, 1001) == Expected(200.0, 170.0, 240.0)
    assert step_ms_at(LINE, 4001) == Expected(350.0, 260.0, 420.0)
    assert tok_s_at(LINE, 1) == Expected(10.0, 1e3 / 110, 1e3 / 90)


def test_a_measured_line_is_surest_where_it_was_measured() -> None:
    known = KnownSpeed("measured", "", measured_steps([(501, _latency(100.0))], _fit(20.0, (10.0, 40.0)), LIMIT))
    first, middle, far = (step_ms_at(known, n) for n in (1, 501, 32768))
    assert middle.value == pytest.approx(100.0)
    assert (middle.low, middle.high) == pytest.approx((100 / 1.02, 100 / 0.98))
    assert first.value == pytest.approx(75.0)
    assert (first.low, first.high) == pytest.approx(
        (75 - math.hypot(100 - 100 / 1.02, 25), 75 + math.hypot(2.04, 12.5)), rel=1e-3
    )
    grown = 32768 - 501
    assert far.value == pytest.approx(100 + grown / 20)
    assert far.high == pytest.approx(far.value + grown * (1 / 10 - 1 / 20), rel=1e-3)
