"""The latency plot of a terminal, read as a person reads it."""

import re
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ggbench.show.figures import Curve, PlottedRun, latency_figure
from ggbench.show.plot import plot_text
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
