"""Charts: what they show of runs, how little of a long run they need, and their colours."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

from ggbench.experiments.quality.compared import quality_over_speed
from ggbench.experiments.quality.record import Divergence, QualityResult, ScoredBase, ScoredText, TextSource
from ggbench.runs.run import Run
from ggbench.show.axes import BINS, curve_data
from ggbench.show.charts import (
    Curve,
    Floats,
    LineChart,
    latency_figure,
)
from ggbench.show.names import quant_colors
from ggbench.show.vega import ON_PAPER, ON_SLATE, as_vega
from ggbench.stats.decode_timing import Break, LatencyLine
from ggbench.stats.intervals import ChunkMean
from tests.fakes.measured import with_run

POSITIONS = np.arange(26, 10_026)
STAIRS = 10 + np.ceil(POSITIONS / 256)


def figure(*curves: Curve) -> LineChart:
    return replace(latency_figure([]), curves=curves)


def test_a_long_run_keeps_its_spikes_and_its_typical_latency() -> None:
    latency_ms = STAIRS.copy()
    latency_ms[::50] *= 1.5
    latency_ms[5000] = 900.0
    data = curve_data(figure(Curve("q8_0", POSITIONS, latency_ms, limit=LatencyLine(300.0, 8.0))))
    assert len(data.bins) == BINS
    assert max(row["hi"] for row in data.bins) == 900
    assert data.y.high < 100
    assert max(row["v"] for row in data.slow) == 900
    assert all(row["v"] > data.y.high for row in data.slow)
    off = [abs(row["y"] - (10 + np.ceil(row["x"] / 256))) for row in data.bins]
    assert max(off) <= 1
    assert np.mean(off) < 0.05
    assert {row["k"] for row in data.lines} == {"limit"}


def test_every_single_step_is_drawn_even_where_a_bin_has_only_one() -> None:
    """An area from a step to itself has no height: only its outline can be seen."""
    short = figure(Curve("q8_0", POSITIONS[:400], STAIRS[:400] + np.arange(400) % 7))
    assert all(row["lo"] == row["hi"] for row in curve_data(short).bins)
    band = as_vega(short, [0])["marks"][0]["marks"][0]["encode"]["update"]
    assert (band["stroke"]["field"], band["fill"]["field"]) == ("s", "s")
    assert band["strokeWidth"]["value"] * band["opacity"]["value"] > 0.3


def test_runs_of_a_quant_have_its_colour() -> None:
    quants = ["q8_0", "q4_k_m", "q8_0"]
    assert quant_colors(quants) == (0, 1, 0)
    assert quant_colors(quants[::2]) == (0, 1), "repeats of one quant would look the same"
    curves = figure(*(Curve(name, POSITIONS, STAIRS) for name in "abc"))
    (color,) = (each for each in as_vega(curves, quant_colors(quants))["scales"] if each["name"] == "color")
    assert color["range"] == ["var(--run0)", "var(--run1)", "var(--run0)"]


def scored(summary: Run, ppl: float, kld: float | None, *, sha256: str = "a") -> Run:
    none = ChunkMean(0.0)
    base = None if kld is None else ScoredBase(replace(summary.subject, quant="f16"), "f16", "f16")
    divergence = (
        None
        if kld is None
        else Divergence(ChunkMean(kld, (0.8 * kld, 1.2 * kld)), (), none, none, none, none, ChunkMean(11.0))
    )
    text = ScoredText(2048, 4, sha256)
    result = QualityResult(
        TextSource("text", "", 100), 512, text, 4, 1000, ChunkMean(ppl, (ppl - 0.2, ppl + 0.2)), (), base, divergence
    )
    return with_run(summary, result=result)


def losses(*summaries: Run) -> list[tuple[int, float, float]]:
    """The index of each run in the chart of quality over speed, with its speed and its loss."""
    curves = quality_over_speed(summaries, [""] * len(summaries)).curves
    return [(index, float(one.x[0]), float(one.y[0])) for index, one in enumerate(curves) if len(one.x)]


def test_quality_meets_speed_by_quant(completed: Run) -> None:
    runs = completed, scored(completed, 12.0, 0.02)
    assert completed.latency is not None
    tok_s = completed.latency.tok_s
    assert losses(*runs) == [(1, tok_s, 0.02)]
    assert quality_over_speed(runs, ["a", "b"]).y_title == "KLD [nats]"
    assert losses(*runs, scored(completed, 13.0, None)) == [(1, tok_s, 12.0), (2, tok_s, 13.0)]
    assert not losses(completed, scored(completed, 12.0, None), scored(completed, 13.0, None, sha256="b"))
    assert not losses(scored(completed, 12.0, None))


def test_names_are_not_in_what_vega_evaluates() -> None:
    name = 'a"];window.hacked=1;//\\'
    assert "hacked" not in json.dumps(as_vega(figure(Curve(name, POSITIONS, STAIRS)), [0]))


@pytest.mark.parametrize(("colors", "page"), [(ON_PAPER, "#ffffff"), (ON_SLATE, "#17191c")])
def test_colours_can_be_read_and_distinguished(colors: tuple[str, ...], page: str) -> None:
    assert min(_contrast(color, page) for color in colors) >= 4.5
    # Machado, Oliveira and Fernandes 2009, table of severity 1.0: protanopia and deuteranopia, in linear RGB.
    protan = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    deutan = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    for matrix in (np.eye(3), np.array(protan), np.array(deutan)):
        seen = [np.clip(matrix @ _linear(color), 0, 1) ** (1 / 2.2) for color in colors[:4]]
        apart = [float(np.abs(one - other).sum()) for index, one in enumerate(seen) for other in seen[:index]]
        assert min(apart) > 0.15


def _linear(color: str) -> Floats:
    """Linear RGB of a colour, as WCAG 2.2 defines it."""
    values = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _contrast(one: str, other: str) -> float:
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(weights @ _linear(color)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_a_broken_line_is_drawn_through_its_breaks() -> None:
    line = LatencyLine(1000.0, 5.0, (Break(2048, 250.0),))
    x = np.array([1, 4096])
    data = curve_data(figure(Curve("q8_0", x, np.array([5.0, 16.0]), limit=line)))
    assert [(row["x"], row["y"]) for row in data.lines] == [(1, 5.0), (2048, 13.188), (4096, 15.236)]
