"""What a plot shows of many samples, and its axes."""

import numpy as np
import pytest

from ggbench.show.axes import Axis, from_a_tick, min_max_columns, tick_below, tick_decimals, tick_step
from ggbench.show.figures import Curve, Floats, Integers, LatencyLine, PlottedRun, latency_figure
from ggbench.show.plot import Frame
from ggbench.stats.decode_timing import LineFit

POSITIONS = np.arange(26, 10_026)
CLIMBING = 10 + (POSITIONS - 1) / 200.0
WHOLE = Axis(26, 10_025)


def series(positions: Integers = POSITIONS, latency_ms: Floats = CLIMBING) -> Curve:
    return Curve("q8_0", positions, latency_ms)


def test_a_spike_among_thousands_stays() -> None:
    """Every column has its least and its largest sample, so one slow step of 10,000 is in the plot."""
    latency_ms = CLIMBING.copy()
    latency_ms[5000] = 500
    columns = min_max_columns(series(POSITIONS, latency_ms), WHOLE, 60)
    assert len(columns.column) == 60
    assert columns.largest.max() == 500
    for number, least, largest in zip(*columns, strict=True):
        of_column = number == (POSITIONS - 26) * 60 // (10_025 - 26)
        of_column[-1] = number == 59
        assert (least, largest) == (latency_ms[of_column].min(), latency_ms[of_column].max())


def test_repetitions_share_the_columns() -> None:
    twice = np.concatenate([POSITIONS, POSITIONS])
    columns = min_max_columns(series(twice, np.concatenate([CLIMBING, CLIMBING + 5])), WHOLE, 20)
    once = min_max_columns(series(), WHOLE, 20)
    assert columns.column.tolist() == list(range(20))
    assert columns.least.tolist() == once.least.tolist()
    assert columns.largest.tolist() == (once.largest + 5).tolist()


def test_a_zoom_leaves_out_what_is_beyond_its_edges() -> None:
    columns = min_max_columns(series(), Axis(1000, 1099), 10)
    assert columns.least[0] == LatencyLine(200.0, 10.0).ms(1000)
    assert columns.largest[-1] == LatencyLine(200.0, 10.0).ms(1099)
    assert not len(min_max_columns(series(), Axis(20_000, 30_000), 10).column)
    assert not len(min_max_columns(series(POSITIONS[:0], CLIMBING[:0]), WHOLE, 10).column)


def test_a_curve_has_no_gaps() -> None:
    positions = np.array([1, 40, 41, 100])
    frame = Frame(Axis(1, 100), Axis(0, 10), 20, 6)
    cells = frame.cells(frame.columns(series(positions, np.array([1.0, 9.0, 2.0, 10.0]))))
    by_column: dict[int, set[int]] = {}
    for column, row, _ in cells:
        by_column.setdefault(column, set()).add(row)
    assert sorted(by_column) == list(range(20))
    for column in range(19):
        here, there = by_column[column], by_column[column + 1]
        assert min(there) - 1 <= max(here)
        assert min(here) - 1 <= max(there)
        assert here == set(range(min(here), max(here) + 1))


def test_a_step_divides_the_range_into_round_numbers() -> None:
    assert Axis(8.3, 16.1).ticks(4) == [10, 12, 14, 16]
    assert tick_step(0.0, 0.7, 4) == pytest.approx(0.2)
    assert [tick_decimals(step) for step in (0.002, 0.5, 1, 20)] == [3, 1, 0, 0]
    assert tick_below(8.3, 2) == 8


def test_a_bound_is_in_the_legend_and_not_in_the_plot() -> None:
    """With W unbounded, a flat line at B would run below the samples."""
    fit = LineFit(3, None, (100.0, None), None, (4.0, 5.0), None, None)
    made = latency_figure([PlottedRun("q8_0", POSITIONS, np.rint(CLIMBING * 1e6).astype(np.int64), fit)]).curves[0]
    assert made.fit is None
    assert made.note == "W > 100 tokens/ms, B < 5.00 ms"
    assert made.y == pytest.approx(CLIMBING)


@pytest.mark.parametrize(("low", "high"), [(26, 625), (1, 2), (8193, 18_192), (26, 10_025), (0, 5)])
def test_an_axis_begins_at_one_of_its_ticks(low: float, high: float) -> None:
    for count in (2, 3, 6, 8):
        axis = from_a_tick(Axis(low, high), count)
        assert axis.ticks(count)[0] == axis.low <= low
        assert axis.high == high
