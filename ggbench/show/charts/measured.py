"""The charts that presenters offer of measured runs: speed, W and B, memory, prompts, quality over speed, probes.

Every function takes all runs of a report, of which some may have nothing for it, and may return an empty chart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggbench.decisions.compared_metrics import scored_text
from ggbench.engines.memory import Memory
from ggbench.experiments.quality.record import QualityResult, ScoredBase
from ggbench.models.subject import Subject
from ggbench.runs.summary import QuantSummary
from ggbench.show.charts.charts import Bar, BarChart, Part, Point, PointChart, StackChart
from ggbench.show.columns import b_text, estimate_text, tok_s_text, w_text
from ggbench.show.plot.curves import Curve, Figure
from ggbench.stats.decode_timing import LatencySummary
from ggbench.stats.intervals import Estimate
from ggbench.units import GIB, MIB, format_bytes, format_count, format_number, with_unit

OUTSIDE = "outside buffers"
"""Name of the part of a stack that llama.cpp reports no buffer for."""


def speed_bars(summaries: Sequence[QuantSummary]) -> BarChart:
    """Return tokens/s of each decode, with its interval."""
    bars = []
    for index, summary in enumerate(summaries):
        latency = summary.latency
        if latency is not None:
            low, high = latency.tok_s_ci95 or (None, None)
            bars.append(Bar(index, latency.tok_s, tok_s_text(latency), low, high))
    return BarChart("speed", "Tokens decoded in a second", "tok/s", tuple(bars))


def w_bars(summaries: Sequence[QuantSummary]) -> BarChart:
    """Return W of each decode beside the limit; none where only a bound is known."""
    bars = []
    for index, summary in enumerate(summaries):
        fit, limit = summary.fit, summary.limit
        if fit is not None and fit.w_tokens_per_ms is not None:
            low, high = fit.w_ci95 or (None, None)
            bars.append(
                Bar(
                    index, fit.w_tokens_per_ms, w_text(fit), low, high, None if limit is None else limit.w_tokens_per_ms
                )
            )
    return BarChart("w", "W: tokens until one takes 1 ms longer", "tokens/ms", tuple(bars))


def b_bars(summaries: Sequence[QuantSummary]) -> BarChart:
    """Return B of each decode beside the limit; none where only a bound is known."""
    bars = []
    for index, summary in enumerate(summaries):
        fit, limit = summary.fit, summary.limit
        if fit is not None and fit.b_ms is not None:
            low, high = fit.b_ci95 or (None, None)
            bars.append(Bar(index, fit.b_ms, b_text(fit), low, high, None if limit is None else limit.b_ms))
    return BarChart("b", "B: latency of the first token", "ms", tuple(bars), is_less_better=True)


def memory_stack(summaries: Sequence[QuantSummary]) -> StackChart:
    """Return what weights, KV cache, compute and output buffers of each run took, and what no buffer explains."""
    found = {index: _memory_parts(summary.memory) for index, summary in enumerate(summaries)}
    totals = {index: sum(n_bytes or 0 for _, n_bytes in parts) for index, parts in found.items() if parts}
    unit, unit_bytes = ("GiB", GIB) if max(totals.values(), default=0) >= GIB else ("MiB", MIB)
    parts = [
        Part(index, name, n_bytes / unit_bytes, format_bytes(n_bytes))
        for index in totals
        for name, n_bytes in found[index]
        if n_bytes
    ]
    bars = [Bar(index, n_bytes / unit_bytes, format_bytes(n_bytes)) for index, n_bytes in totals.items()]
    return StackChart("memory", "Memory by what it holds", unit, tuple(parts), tuple(bars))


def _memory_parts(memory: Memory) -> tuple[tuple[str, int | None], ...]:
    if not memory.buffers or memory.n_ctx is None:
        return ()
    output_bytes = sum(each.output_bytes for each in memory.buffers)
    return (
        ("weights", memory.weight_bytes),
        ("KV cache", memory.kv_bytes),
        ("compute", memory.compute_bytes),
        ("output", output_bytes),
        (OUTSIDE, memory.other_bytes),
    )


def prompt_speed(summaries: Sequence[QuantSummary], names: Sequence[str]) -> Figure:
    """Return tokens/s of prompts over their length; a run without prompts has an empty curve."""
    curves = []
    for name, summary in zip(names, summaries, strict=True):
        found = [each for each in summary.prefills if not each.n_depth]
        x = np.asarray([each.n_prompt for each in found], np.int64)
        y = np.asarray([each.tok_s for each in found], np.float64)
        note = f"{tok_s_text(found[-1])} tok/s at {format_count(found[-1].n_prompt)}" if found else ""
        curves.append(Curve(name, x, y, np.zeros(len(y)), note=note))
    return Figure("prefill", "speed of reading a prompt", "tok/s", "prompt", "tokens", tuple(curves), y_low=0.0)


def quality_over_speed(summaries: Sequence[QuantSummary]) -> PointChart:
    """Return the loss of each quant that was scored over the speed of its decode, the best at the lower right.

    Loss is the KLD where all that were scored have one base, else PPL; empty where the texts differ. The base is a
    point too where it was decoded: its KLD is 0. A quality run and a decode belong together where model, quant and
    types of the KV cache are the same; of several decodes the last counts.
    """
    speeds: dict[_QuantKey, tuple[int, LatencySummary]] = {}
    for index, summary in enumerate(summaries):
        if summary.latency is not None:
            speeds[_quant_key(summary)] = index, summary.latency
    scored = [
        (index, _quant_key(summary), summary.quality)
        for index, summary in enumerate(summaries)
        if summary.quality is not None and summary.quality.ppl is not None
    ]
    bases = {_base_key(found.base): found for _, _, found in scored if found.base is not None}
    has_kld = len(bases) == 1 and all(found.divergence or key in bases for _, key, found in scored)
    losses = [(index, key, _loss(found, has_kld=has_kld)) for index, key, found in scored if key in speeds]
    if len({tuple(scored_text(summaries[index]).values()) for index, _, _ in scored}) > 1:
        losses = []  # perplexities of different texts do not compare
    for key, found in bases.items() if losses else ():
        if key in speeds and found.divergence is not None and key not in {each for _, each, _ in losses}:
            losses.append((speeds[key][0], key, _NO_LOSS if has_kld else found.divergence.base_ppl))
    points = []
    for index, key, loss in losses:
        latency = speeds[key][1]
        low, high = latency.tok_s_ci95 or (None, None)
        name = "the base" if key in bases and has_kld else f"{'KLD' if has_kld else 'PPL'} {estimate_text(loss)}"
        text = f"{with_unit(tok_s_text(latency), 'tok/s')}, {name}"
        x_ends = None if low is None or high is None else (low, high)
        points.append(Point(index, latency.tok_s, loss.mean, text, x_ends=x_ends, y_ends=loss.ci95))
    y_title = "mean KLD from the base [nats]" if has_kld else "PPL"
    return PointChart("quality-speed", "Quality over speed", "speed [tok/s]", y_title, tuple(points), has_labels=True)


_QuantKey = tuple[str, str, str, str]
_NO_LOSS = Estimate(0.0, 0.0)


def _quant_key(summary: QuantSummary) -> _QuantKey:
    types = summary.setup.cache_types or ("", "")
    return (_model_key(summary.subject), summary.subject.quant, *types)


def _base_key(base: ScoredBase) -> _QuantKey:
    return _model_key(base.subject), base.subject.quant, base.type_k, base.type_v


def _model_key(subject: Subject) -> str:
    return subject.header_sha256 or subject.model


def _loss(found: QualityResult, *, has_kld: bool) -> Estimate:
    """The KLD, zero of the base itself, or the PPL."""
    if has_kld:
        return _NO_LOSS if found.divergence is None else found.divergence.kld
    assert found.ppl is not None
    return found.ppl


def probes(summaries: Sequence[QuantSummary]) -> PointChart:
    """Return every n_ctx that searches for the largest context tried, in their order, by how each ended."""
    points = []
    for index, summary in enumerate(summaries):
        for number, probe in enumerate(summary.context.probes if summary.context else (), 1):
            kind = {"dry": "dry run", "alloc": "allocated", "decode": "decoded at its end"}[probe.kind]
            text = f"n_ctx {format_count(probe.n_ctx)}: {kind}, {probe.outcome.text}, {format_number(probe.seconds)} s"
            group = f"{kind}, {'works' if probe.passed else 'does not work'}"
            points.append(Point(index, number, probe.n_ctx, text, group))
    return PointChart("probes", "Search for the largest context", "probe", "n_ctx [tokens]", tuple(points), counts=True)
