"""Charts: what they show of runs, how little of a long run they need, and their colours."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

from ggbench.engines.events import DeviceBuffers, Memory, MemoryKind
from ggbench.experiments.quality.compared import quality_over_speed
from ggbench.experiments.quality.record import Divergence, QualityResult, ScoredBase, ScoredText, TextSource
from ggbench.runs.summary import QuantSummary
from ggbench.show.axes import BINS, curve_data
from ggbench.show.charts import (
    Chart,
    Curve,
    Floats,
    LatencyLine,
    LineChart,
    decode_bars,
    latency_figure,
    memory_stacks,
    series_of,
)
from ggbench.show.names import quant_colors
from ggbench.show.vega import ON_PAPER, ON_SLATE, PAGE, Drawing, as_vega, chart_spec
from ggbench.stats.intervals import ChunkMean
from tests.fakes.measured import with_decode, with_run, with_subject

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
    band = as_vega(short, Drawing(PAGE, ["q8_0"], is_interactive=True))["marks"][0]["marks"][0]["encode"]["update"]
    assert (band["stroke"]["field"], band["fill"]["field"]) == ("s", "s")
    assert band["strokeWidth"]["value"] * band["opacity"]["value"] > 0.3


def test_runs_of_a_quant_have_its_colour_in_every_chart(completed: QuantSummary) -> None:
    quants = ["q8_0", "q4_k_m", "q8_0"]
    assert quant_colors(quants) == (0, 1, 0)
    assert quant_colors(quants[::2]) == (0, 1), "repeats of one quant would look the same"
    drawing = Drawing(PAGE, ["a", "b", "c"], is_interactive=True, colors=quant_colors(quants))
    curves = figure(*(Curve(name, POSITIONS, STAIRS) for name in "abc"))
    summaries = [with_subject(completed, quant=quant) for quant in quants]
    charts: list[Chart] = [curves, *decode_bars(summaries), *memory_stacks(summaries)]
    for chart in charts:
        (color,) = (each for each in as_vega(chart, drawing)["scales"] if each["name"] == "color")
        assert color["range"] == ["var(--run0)", "var(--run1)", "var(--run0)"]


def test_each_memory_has_a_stack_of_its_own(completed: QuantSummary) -> None:
    """A draft is apart, main memory last, and pages of a mapped file that lie on the GPU are counted once."""
    gpu = DeviceBuffers("CUDA0", MemoryKind.GPU, weight_bytes=6 << 30, kv_bytes=2 << 30, compute_bytes=1 << 30)
    host = DeviceBuffers("CPU", MemoryKind.HOST, weight_bytes=1 << 30, output_bytes=1 << 20)
    memory = Memory(buffers=(gpu, host), draft_buffers=(gpu,), n_ctx=4096, other_bytes=1 << 29)
    split = with_run(completed, memory=memory)
    on_cpu = with_run(completed, memory=Memory(buffers=(host,), n_ctx=4096))
    on_gpu, in_main = memory_stacks([on_cpu, split])
    assert [(part.name, part.text) for part in on_gpu.parts if part.run] == [
        ("weights", "6.00 GiB"), ("KV cache", "2.00 GiB"), ("compute", "1.00 GiB"), ("draft", "9.00 GiB"),
        ("outside buffers", "512.0 MiB"),
    ]  # fmt: skip
    assert on_gpu.totals[0].value == sum(part.value for part in on_gpu.parts) == 18.5
    assert (on_gpu.key, on_gpu.title, series_of(on_gpu)) == ("memory", "Memory by use: CUDA0", (1,))
    assert [(part.name, part.text) for part in in_main.parts if part.run] == [
        ("weights", "1.00 GiB"), ("output", "1.00 MiB"),
    ]  # fmt: skip
    assert (in_main.key, in_main.title, series_of(in_main)) == ("memory-2", "Memory by use: main memory", (0, 1))
    assert [chart.title for chart in memory_stacks([on_cpu])] == ["Memory by use"]
    without_buffers = with_run(completed, memory=Memory(n_ctx=4096, other_bytes=1 << 20))
    assert series_of(memory_stacks([on_cpu, without_buffers])[0]) == (0,)


def test_bars_have_intervals_and_limits(completed: QuantSummary) -> None:
    fit, limit = completed.fit, completed.limit
    assert fit is not None
    assert limit is not None
    speeds, (w,), (b,) = (chart.bars for chart in decode_bars([completed]))
    assert [bar.limit for bar in speeds] == [None]
    assert (w.value, w.low, w.high, w.limit) == (fit.w_tokens_per_ms, *(fit.w_ci95 or ()), limit.w_tokens_per_ms)
    assert (b.value, b.low, b.high, b.limit) == (fit.b_ms, *(fit.b_ci95 or ()), limit.b_ms)
    bound = with_decode(completed, fit=replace(fit, w_tokens_per_ms=None, b_ms=None))
    assert not decode_bars([bound])[1].bars
    assert series_of(decode_bars([bound, completed])[2]) == (1,)


def scored(summary: QuantSummary, ppl: float, kld: float | None, *, sha256: str = "a") -> QuantSummary:
    none = ChunkMean(0.0)
    base = None if kld is None else ScoredBase(replace(summary.subject, quant="f16"), "f16", "f16")
    divergence = (
        None
        if kld is None
        else Divergence(ChunkMean(kld, (0.8 * kld, 1.2 * kld)), (), none, none, none, none, ChunkMean(11.0))
    )
    text = ScoredText(2048, 4, 1000, sha256)
    result = QualityResult(
        TextSource("text", "", 100), 512, text, 4, 1000, ChunkMean(ppl, (ppl - 0.2, ppl + 0.2)), (), base, divergence
    )
    return with_run(summary, result=result)


def test_quality_meets_speed_by_quant(completed: QuantSummary) -> None:
    chart = quality_over_speed([completed, scored(completed, 12.0, 0.02)])
    (point,) = chart.points
    assert completed.latency is not None
    assert (point.run, point.x, point.y) == (1, completed.latency.tok_s, 0.02)
    assert "KLD" in chart.y_title
    mixed = quality_over_speed([completed, scored(completed, 12.0, 0.02), scored(completed, 13.0, None)])
    assert [point.y for point in mixed.points] == [12.0, 13.0]
    others = [completed, scored(completed, 12.0, None), scored(completed, 13.0, None, sha256="b")]
    assert not quality_over_speed(others).points
    assert not quality_over_speed([scored(completed, 12.0, None)]).points


def test_names_are_data_and_never_expressions() -> None:
    name = 'a"];window.hacked=1;//\\'
    drawing = Drawing(PAGE, [name], is_interactive=True)
    spec = chart_spec(figure(Curve(name, POSITIONS, STAIRS)), drawing)
    params = spec.pop("params")
    assert "hacked" in json.dumps(params)
    assert "hacked" not in json.dumps(spec)
    vega = as_vega(figure(Curve(name, POSITIONS, STAIRS)), drawing)
    labels = [signal for signal in vega["signals"] if signal["name"] == "labels"]
    assert "hacked" in json.dumps(labels)
    vega["signals"] = [signal for signal in vega["signals"] if signal["name"] != "labels"]
    assert "hacked" not in json.dumps(vega)


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
