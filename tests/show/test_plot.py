"""Plots: what they show of many samples, their axes, and how they read in a terminal."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ggbench.experiments.decode.record import DecodeSettings
from ggbench.show.axes import (
    Axis,
    columns_of,
    from_a_tick,
    rolling_median,
    tick_decimals,
    tick_step,
    y_range,
)
from ggbench.show.charts import Curve, Floats, Integers, LineChart, PlottedRun, latency_figure
from ggbench.show.plot import Frame, draw, plot_text
from ggbench.stats.decode_timing import DecodeLimit, LatencyLine, LineFit

POSITIONS = np.arange(26, 10_026)
CLIMBING = 10 + (POSITIONS - 1) / 200.0
WHOLE = Axis(26, 10_025)


def series(positions: Integers = POSITIONS, latency_ms: Floats = CLIMBING) -> Curve:
    return Curve("q8_0", positions, latency_ms)


def test_a_spike_among_thousands_stays() -> None:
    """Every column has its least and its largest sample, so one slow step of 10,000 is in the plot."""
    latency_ms = CLIMBING.copy()
    latency_ms[5000] = 500
    columns = columns_of(series(POSITIONS, latency_ms), WHOLE, 60)
    assert len(columns.column) == 60
    assert columns.largest.max() == 500
    for number, _, least, largest in zip(*columns, strict=True):
        of_column = number == (POSITIONS - 26) * 60 // (10_025 - 26)
        of_column[-1] = number == 59
        assert (least, largest) == (latency_ms[of_column].min(), latency_ms[of_column].max())


def test_a_zoom_leaves_out_what_is_beyond_its_edges() -> None:
    columns = columns_of(series(), Axis(1000, 1099), 10)
    assert columns.least[0] == LatencyLine(200.0, 10.0).ms(1000)
    assert columns.largest[-1] == LatencyLine(200.0, 10.0).ms(1099)
    assert columns_of(series(POSITIONS[:1], CLIMBING[:1]), Axis(26, 27), 10).column.tolist() == [0]
    assert not len(columns_of(series(), Axis(20_000, 30_000), 10).column)
    assert not len(columns_of(series(POSITIONS[:0], CLIMBING[:0]), WHOLE, 10).column)


def test_a_curve_has_no_gaps() -> None:
    positions = np.array([1, 40, 41, 100])
    frame = Frame(Axis(1, 100), Axis(0, 10), 20, 6)
    found = frame.columns(series(positions, np.array([1.0, 9.0, 2.0, 10.0])))
    cells = frame.line(found.column, found.typical)
    by_column: dict[int, set[int]] = {}
    for column, row, _ in cells:
        by_column.setdefault(column, set()).add(row)
    assert sorted(by_column) == list(range(20))
    for column in range(19):
        here, there = by_column[column], by_column[column + 1]
        assert min(there) - 1 <= max(here)
        assert min(here) - 1 <= max(there)
        assert here == set(range(min(here), max(here) + 1))


def test_few_values_have_marks_and_an_earlier_run_is_cut() -> None:
    few = series(np.arange(0, 8000, 1000), np.arange(8.0))
    earlier = replace(series(POSITIONS, np.full(len(POSITIONS), 900.0)), dimmed=True)
    figure = LineChart("", "latency", "ms", "position", "tokens", (few,))
    rows, _ = draw(figure, 80, 20)
    assert sum(text.count("•") for row in rows for text, _ in row) == 7  # the last has the letter
    both = replace(figure, curves=(earlier, few))
    assert y_range(both, WHOLE) == y_range(figure, WHOLE)
    marks = [sum(text.count("▲") for row in draw(each, 80, 20)[0] for text, _ in row) for each in (figure, both)]
    assert marks == [0, 0]
    assert y_range(replace(figure, curves=(earlier,)), WHOLE)[1] >= 900


def test_bars_are_whole() -> None:
    """The first wait of a session is many times the later ones."""
    waits = Curve("a", np.arange(3), np.array([19.3, 2.0, 8.2]), has_bars=True)
    assert y_range(LineChart("", "wait", "s", "", "", (waits,), y_low=0.0), Axis(0, 3)) == (0.0, 19.3)


def test_a_step_divides_the_range_into_round_numbers() -> None:
    assert Axis(8.3, 16.1).ticks(4) == [10, 12, 14, 16]
    assert tick_step(0.0, 0.7, 4) == pytest.approx(0.2)
    assert [tick_decimals(step) for step in (0.002, 0.5, 1, 20)] == [3, 1, 0, 0]


def test_a_bound_is_in_the_legend_and_not_in_the_plot() -> None:
    """With W unbounded, a flat line at B would run below the samples."""
    fit = LineFit(3, None, (100.0, None), None, (4.0, 5.0))
    made = latency_figure([PlottedRun("q8_0", POSITIONS, np.rint(CLIMBING * 1e6).astype(np.int64), fit)]).curves[0]
    assert made.fit is None
    assert made.note == "W > 100 tokens/ms, B < 5.00 ms"
    assert made.y == pytest.approx(CLIMBING)
    assert [LatencyLine(None, 5.0).ms(n) for n in (1, 1000)] == [5.0, 5.0]  # a limit without a KV cache is flat


def test_a_decode_at_depths_is_drawn_as_the_means_of_its_windows() -> None:
    position = np.concatenate([np.arange(first, first + 128) for first in (1, 4097, 1, 4097)])
    series = {f"decode/d{depth}/b1/r{index}": 128 for index in range(2) for depth in (0, 4096)}
    step_ns = np.repeat([10, 20, 12, 24], 128) * 10**6
    asked = DecodeSettings(128, depths=(0, 4096))
    (made,) = latency_figure([PlottedRun("q8_0", position, step_ns, series=series, settings=asked)]).curves
    assert (made.x.tolist(), made.y.tolist()) == ([64, 4160], [11, 22])
    assert made.error is not None and made.error.tolist() == pytest.approx([12.706, 25.412], rel=1e-3), (
        "of two windows each"
    )


@pytest.mark.parametrize(("low", "high"), [(26, 625), (1, 2), (8193, 18_192), (26, 10_025), (0, 5)])
def test_an_axis_begins_at_one_of_its_ticks(low: float, high: float) -> None:
    for count in (2, 3, 6, 8):
        axis = from_a_tick(Axis(low, high), count)
        assert axis.ticks(count)[0] == axis.low <= low
        assert axis.high == high


Golden = Callable[[str, str], None]


def latency_plot(curves: Sequence[Curve], width: int, height: int, color: bool) -> str:
    return plot_text(replace(latency_figure([]), curves=tuple(curves)), width, height, color)


def stairs(label: str, b_ms: float, n_gen: int, *, limit: bool = True) -> Curve:
    """A run without noise: W 205 in steps of 256 cells, with a bump of 5 % every 40 tokens."""
    position = np.arange(26, 26 + n_gen)
    step_ms = (b_ms + (position // 256 + 0.5) * 256 / 205) * np.where(position % 40, 1.0, 1.05)
    fit = LineFit(n_gen, 205.0, (201.0, 209.0), b_ms, (b_ms - 0.08, b_ms + 0.08))
    bound = DecodeLimit(260.0, b_ms * 0.8, bandwidth_bytes_per_s=24.7e9, bandwidth_source="given") if limit else None
    step_ns = np.rint(step_ms * 1e6).astype(np.int64)
    return latency_figure([PlottedRun(label, position, step_ns, fit, bound)]).curves[0]


def samples(*latency_ms: float, name: str = "q8_0") -> Curve:
    return Curve(name, np.arange(1, len(latency_ms) + 1), np.array(latency_ms, np.float64))


def test_three_series_are_distinct_without_colour(golden: Golden) -> None:
    series = [
        stairs(label, b_ms, 500, limit=False) for label, b_ms in (("q8_0", 16.0), ("q4_k_m", 10.9), ("q2_k", 8.0))
    ]
    text = latency_plot(series, 80, 20, False)
    golden("plot_three.txt", text + "\n")
    plot, legend = text.split("position [tokens]")
    for letter, one in zip("abc", series, strict=True):
        assert letter in plot
        assert f"{letter} {one.name}" in legend


def test_one_huge_step_neither_flattens_the_plot_nor_hides(golden: Golden) -> None:
    series = stairs("q4_k_m", 10.92, 1000)
    series.y[500] = 2000.0
    text = latency_plot([Curve("q4_k_m", series.x, series.y)], 80, 18, False)
    golden("plot_spike.txt", text + "\n")
    assert text.count("▲") == 2
    assert "1 slower, up to 2000.00 ms at 526" in text
    assert "2,000 ┤" not in text


def test_colour_adds_nothing_but_colour() -> None:
    series = [stairs("q8_0", 16.0, 300), stairs("q2_k", 8.0, 300)]
    colored = latency_plot(series, 80, 18, True)
    assert "\x1b[36m" in colored
    assert re.sub(r"\x1b\[[\d;]+m", "", colored) == latency_plot(series, 80, 18, False)


def test_label_cannot_steer_the_terminal() -> None:
    text = latency_plot([samples(3.0, 4.0, name="\x1b[2Jevil\n\u202e")], 60, 12, False)
    assert all(character.isprintable() for character in text.replace("\n", ""))


def test_no_samples() -> None:
    assert latency_plot([samples()], 80, 18, False) == "no samples to plot"
    assert latency_plot([], 80, 18, False) == "no samples to plot"


@settings(deadline=None)
@given(
    step_ms=st.lists(st.floats(0, 1e6), min_size=1, max_size=60), width=st.integers(1, 200), height=st.integers(1, 40)
)
def test_any_samples_keep_to_the_size(step_ms: list[float], width: int, height: int) -> None:
    lines = latency_plot([samples(*step_ms)], width, height, False).splitlines()
    drawn = [line for line in lines if "▲ " not in line]
    assert max(map(len, drawn)) <= max(width, 40)
    assert len(lines) - max(height, 8) in (1, 2, 3)


PLACES = np.arange(1, 10_001)
STAIRS = 10 + np.ceil(PLACES / 256)


def test_spikes_do_not_move_the_typical_latency() -> None:
    spiky = STAIRS.copy()
    spiky[::10] *= 5
    found = rolling_median(PLACES, spiky, PLACES[300:-300])
    exact = STAIRS[300:-300]
    assert np.median(np.abs(found - exact)) == 0
    off = np.flatnonzero(found != exact)
    near_an_edge = np.minimum((off + 301) % 256, -(off + 301) % 256)
    assert near_an_edge.max() <= 32


def test_repetitions_count_together_in_any_order() -> None:
    """The typical one of three repetitions shows, one being slow; a place between positions has its neighbour's."""
    x = np.concatenate([PLACES[:512]] * 3)
    y = np.concatenate([np.full(512, 10.0), np.full(512, 30.0), np.full(512, 11.0)])
    assert rolling_median(x, y, [100.4, 256.0]) == pytest.approx([11, 11])
    single = np.arange(1, 8)
    assert rolling_median(single, single.astype(np.float64), [-5, 1.4, 1.6, 99]).tolist() == [1, 1, 2, 7]
    assert not len(rolling_median(x[:0], y[:0], [1.0]))


def test_the_window_stays_near_the_ends_and_a_line_ends_in_no_spike() -> None:
    rising = np.asarray(10 + PLACES / 200.0, np.float64)
    at = np.concatenate([PLACES[:300], PLACES[-300:]])
    assert rolling_median(PLACES, rising, at) == pytest.approx(np.concatenate([rising[:300], rising[-300:]]), abs=0.05)
    rising[-8:] = 500
    assert rolling_median(PLACES, rising, [PLACES[-1]])[0] < 60


def test_a_gap_is_not_averaged_over() -> None:
    x = np.concatenate([np.arange(1, 1001), np.arange(6001, 7001)])
    y = np.where(x < 5000, 10.0, 20.0).astype(np.float64)
    assert rolling_median(x, y, [1000, 6001, 3000, 4000]).tolist() == [10, 20, 10, 20]


def test_values_with_errors_settle_and_are_named_at_their_end() -> None:
    """A running mean: its first values scatter beyond the axis, which is that of where they settle."""
    chunks = np.arange(1, 41)
    y = 12 + 30 / chunks**2 * np.cos(chunks)
    one = Curve("q4_1", chunks, y, 4 / np.sqrt(chunks), note="12.0 ±0.6, 40 chunks")
    figure = LineChart("ppl", "PPL", "", "chunks scored", "", (one, replace(one, name="q2_k", y=y + 3)), 50)
    text = plot_text(figure, 80, 18, False)
    assert "▲" not in text
    assert "b q2_k  12.0 ±0.6, 40 chunks" in text
    assert text.splitlines()[0] == "PPL"
    assert y_range(figure, Axis(1, 50))[1] < 20 < float((y + 3).max())
