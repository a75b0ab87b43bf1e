"""What a plot shows of many samples."""

from __future__ import annotations

import numpy as np

from ggbench.tui.plotting import (
    PlotSeries,
    braille_cells,
    latency_range,
    line_ms,
    min_max_columns,
)

POSITIONS = np.arange(26, 10_026)
CLIMBING = 10 + (POSITIONS - 1) / 200.0


def test_a_spike_among_thousands_stays() -> None:
    """Every column has its least and its largest sample, so one slow step of 10,000 is in the plot."""
    latency_ms = CLIMBING.copy()
    latency_ms[5000] = 500
    columns = min_max_columns(POSITIONS, latency_ms, 60)
    assert len(columns.column) == 60
    assert columns.largest_ms.max() == 500
    for number, least, largest in zip(*columns, strict=True):
        of_column = number == (POSITIONS - 26) * 60 // (10_025 - 26)
        of_column[-1] = number == 59
        assert (least, largest) == (latency_ms[of_column].min(), latency_ms[of_column].max())


def test_repetitions_share_the_columns() -> None:
    """Positions that start again belong to the columns of the first time."""
    twice = np.concatenate([POSITIONS, POSITIONS])
    columns = min_max_columns(twice, np.concatenate([CLIMBING, CLIMBING + 5]), 20)
    once = min_max_columns(POSITIONS, CLIMBING, 20)
    assert columns.column.tolist() == list(range(20))
    assert columns.least_ms.tolist() == once.least_ms.tolist()
    assert columns.largest_ms.tolist() == (once.largest_ms + 5).tolist()


def test_a_zoom_leaves_out_what_is_beyond_its_edges() -> None:
    """Only the visible samples are in its columns, and none is no error."""
    columns = min_max_columns(POSITIONS, CLIMBING, 10, 1000, 1099)
    assert columns.least_ms[0] == line_ms((200.0, 10.0), 1000)
    assert columns.largest_ms[-1] == line_ms((200.0, 10.0), 1099)
    assert not len(min_max_columns(POSITIONS, CLIMBING, 10, 20_000, 30_000).column)
    assert not len(min_max_columns(POSITIONS[:0], CLIMBING[:0], 10).column)


def test_one_sample_is_one_column() -> None:
    """A plot begins with a single token."""
    columns = min_max_columns(POSITIONS[:1], CLIMBING[:1], 10)
    assert columns.column.tolist() == [0]


def test_a_curve_has_no_gaps() -> None:
    """Neighbouring columns of dots touch, however steep the curve and however few its samples."""
    positions = np.array([1, 40, 41, 100])
    columns = min_max_columns(positions, np.array([1.0, 9.0, 2.0, 10.0]), 40, 1, 100)
    cells = braille_cells(columns, 20, 6, 0, 10)
    by_column: dict[int, set[int]] = {}
    for column, row, _ in cells:
        by_column.setdefault(column, set()).add(row)
    assert sorted(by_column) == list(range(20))
    for column in range(19):
        here, there = by_column[column], by_column[column + 1]
        assert min(there) - 1 <= max(here)
        assert min(here) - 1 <= max(there)
        assert here == set(range(min(here), max(here) + 1))


def test_what_is_beyond_the_axis_is_cut_off() -> None:
    """No cell lies outside of the plot."""
    cells = braille_cells(min_max_columns(POSITIONS, CLIMBING, 40), 20, 6, 20, 30)
    assert cells
    assert all(0 <= column < 20 and 0 <= row < 6 for column, row, _ in cells)


def test_a_single_slow_step_does_not_press_the_others_into_the_axis() -> None:
    """The axis ends a little above nearly all samples, begins below the limit, and has round ends."""
    latency_ms = CLIMBING.copy()
    latency_ms[5000] = 5000
    series = PlotSeries("q8_0", POSITIONS, latency_ms, limit=(300.0, 8.0))
    assert latency_range([series], 1, 10_025) == (8.0, 66.0)
    assert latency_range([], 1, 2) == (0.0, 1.0)
