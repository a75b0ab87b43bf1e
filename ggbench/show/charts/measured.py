"""The charts that presenters offer of measured runs: speed, W and B, memory, prompts, quality over speed, probes.

Every function takes all runs of a report, of which some may have nothing for it, and may return an empty chart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggbench.engines.memory import Memory
from ggbench.runs.summary import QuantSummary
from ggbench.show.charts.charts import Bar, BarChart, Part, StackChart
from ggbench.show.columns import b_text, tok_s_text, w_text
from ggbench.show.plot.curves import Curve, Figure
from ggbench.units import GIB, MIB, format_bytes, format_count

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
