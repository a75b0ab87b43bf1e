"""The latency plot of a terminal, read as a person reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggbench.show.plot.curves import Curve, Figure, Line, PlottedRun, latency_figure
from ggbench.show.plot.terminal import plot_text
from ggbench.stats.decode_timing import DecodeLimit, LineFit

Golden = Callable[[str, str], None]


def latency_plot(curves: Sequence[Curve], width: int, height: int, color: bool) -> str:
    return plot_text(replace(latency_figure([]), curves=tuple(curves)), width, height, color)


def stairs(label: str, b_ms: float, n_gen: int, *, limit: bool = True) -> Curve:
    """A run without noise: W 205 in steps of 256 cells, with a bump of 5 % every 40 tokens."""
    position = np.arange(26, 26 + n_gen)
    step_ms = (b_ms + (position // 256 + 0.5) * 256 / 205) * np.where(position % 40, 1.0, 1.05)
    fit = LineFit(n_gen, 205.0, (201.0, 209.0), b_ms, (b_ms - 0.08, b_ms + 0.08), 0.99, 205.0)
    bound = DecodeLimit(260.0, b_ms * 0.8, 24.7e9, "given") if limit else None
    step_ns = np.rint(step_ms * 1e6).astype(np.int64)
    return latency_figure([PlottedRun(label, position, step_ns, fit, bound)]).curves[0]


def samples(*latency_ms: float, name: str = "q8_0") -> Curve:
    return Curve(name, np.arange(1, len(latency_ms) + 1), np.array(latency_ms, np.float64))


def test_long_run(golden: Golden) -> None:
    golden("plot_long.txt", latency_plot([stairs("q4_k_m", 10.92, 10_000)], 80, 18, False) + "\n")


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
    assert "1 slower step, up to 2000.00 ms at 526" in text
    assert "2,000 ┤" not in text


def test_colour_adds_nothing_but_colour() -> None:
    series = [stairs("q8_0", 16.0, 300), stairs("q2_k", 8.0, 300)]
    colored = latency_plot(series, 80, 18, True)
    assert "\x1b[36m" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == latency_plot(series, 80, 18, False)


def test_repetitions_share_the_axis() -> None:
    once = stairs("q8_0", 16.0, 300)
    twice = replace(once, x=np.tile(once.x, 2), y=np.tile(once.y, 2))
    assert latency_plot([twice], 80, 18, False) == latency_plot([once], 80, 18, False)


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


def test_spikes_are_faint_behind_the_typical_latency() -> None:
    text = latency_plot([samples(*[10.0, 10.0, 10.0, 20.0, 10.0, 10.0, 10.0, 10.0] * 1250)], 80, 18, False)
    *above, lowest = [line.split("┤")[-1].split("│")[-1] for line in text.splitlines()[1:15]]
    assert {"".join(above)} == {"⠡" * (76 * 13)}
    assert lowest == "⣡" * 76


@pytest.mark.parametrize("w", [None, 205.0])
def test_a_line_without_slope_is_drawn_flat(w: float | None) -> None:
    one = Curve("q8_0", np.array([1, 500, 1000]), np.array([5.0, 5.0, 9.0]), fit=Line(w, 5.0))
    text = latency_plot([one], 80, 18, False)
    rows_with_dashes = [line for line in text.splitlines() if re.search(r"[│┤].*╌", line)]
    assert (len(rows_with_dashes) == 1) is (w is None)


def test_a_fit_that_is_a_bound_is_stated_and_not_drawn() -> None:
    fit = LineFit(3, None, (100.0, None), None, (4.0, 5.0), None, None)
    text = latency_plot(
        latency_figure([PlottedRun("q8_0", np.array([1, 500, 1000]), np.array([5, 5, 9]) * 10**6, fit)]).curves,
        80,
        18,
        False,
    )
    assert "a q8_0  W > 100 tokens/ms, B < 5.00 ms" in text
    assert "╌" not in text


def test_values_with_errors_have_a_band_and_a_letter_at_their_end(golden: Golden) -> None:
    chunks = np.arange(1, 41)
    y = 12 + 30 / chunks**2 * np.cos(chunks)
    one = Curve("q4_1", chunks, y, 4 / np.sqrt(chunks), note="12.0 ±0.6, 40 chunks")
    figure = Figure("ppl", "PPL", "", "chunks scored", "", (one, replace(one, name="q2_k", y=y + 3)), 50)
    text = plot_text(figure, 80, 18, False)
    golden("plot_errors.txt", text + "\n")
    assert "▲" not in text
    assert "b q2_k  12.0 ±0.6, 40 chunks" in text
    assert text.splitlines()[0] == "PPL"
