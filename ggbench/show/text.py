"""Figures with their intervals in words, and cells that are safe in CSV and in Markdown, whatever opens them."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence

from ggbench.show import UNKNOWN
from ggbench.show.glossary import UNSTEADY
from ggbench.sizing.plan_record import PlannedForecast
from ggbench.stats.decode_timing import LatencySummary, LineFit, PrefillSpeed
from ggbench.stats.intervals import Estimate, Expected
from ggbench.text import sanitize
from ggbench.units import (
    format_bytes,
    format_count,
    format_interval,
    format_number,
)

_FORMULA_STARTS = ("=", "+", "-", "@")
"""A spreadsheet takes a cell that begins so for a formula."""
_MARKDOWN = re.compile(r"[\\|`*<>\[\]&~]")


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """CSV with a header; None is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def without_formula(text: str) -> str:
    """Return plain text, with an apostrophe in front where a spreadsheet would take it for a formula."""
    text = sanitize(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def markdown_escaped(text: str) -> str:
    """Return plain text that Markdown shows as it is."""
    return _MARKDOWN.sub(lambda match: f"\\{match[0]}", sanitize(text))


def markdown_code(text: str) -> str:
    """Return plain text as a code span of Markdown, which ends at more backticks than any run of them in the text."""
    shown = sanitize(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}"


def w_text(fit: LineFit | None) -> str:
    """`205 ±4`; `> 1234` where the slope cannot be distinguished from zero; an em dash without a fit or a bound."""
    if fit is None:
        return UNKNOWN
    if fit.w_ci95 is None:
        return format_number(fit.w_tokens_per_ms)
    low, high = fit.w_ci95
    if fit.w_tokens_per_ms is None or high is None:
        return f"> {format_number(low)}"
    return format_interval(fit.w_tokens_per_ms, low, high)


def b_text(fit: LineFit | None) -> str:
    """`10.92 ±0.08`; `< 13.6` where only a bound is known; an em dash without one."""
    if fit is None or fit.b_ci95 is None:
        return UNKNOWN
    low, high = fit.b_ci95
    return f"< {format_number(high)}" if fit.b_ms is None else format_interval(fit.b_ms, low, high, digits=4)


def tok_s_text(latency: LatencySummary | PrefillSpeed | None) -> str:
    """`108 ±2`, in tokens per second; `> 12` where the interval has no upper end; an em dash where none was timed."""
    if latency is None:
        return UNKNOWN
    if latency.tok_s_ci95 is None:
        return format_number(latency.tok_s)
    low, high = latency.tok_s_ci95
    return f"> {format_number(low)}" if high is None else format_interval(latency.tok_s, low, high)


def estimate_text(estimate: Estimate | None) -> str:
    """`12.36 ±0.52`, with the standard error; an em dash for unknown."""
    if estimate is None:
        return UNKNOWN
    mean, error = estimate.mean, estimate.error
    return format_interval(mean, mean - error, mean + error, digits=4)


def on_off(is_on: bool | None) -> str:
    """Format a switch; an em dash where its state is unknown."""
    return {None: UNKNOWN, True: "on", False: "off"}[is_on]


def projector_text(mmproj_bytes: int) -> str:
    """Return what a projector takes beside the model; empty without one."""
    return f"{format_bytes(mmproj_bytes)} (--mmproj, without its compute buffer)" if mmproj_bytes else ""


def swa_text(swa_cells: int | None, n_ctx: int | None) -> str:
    """Say what the caches of sliding-window layers hold, and what holds the other; empty for a model without any."""
    if swa_cells is None or n_ctx is None:
        return ""
    if swa_cells < n_ctx:
        return (
            f"sliding-window caches of {format_count(swa_cells)} cells (of all {format_count(n_ctx)} with --swa-full)"
        )
    return f"sliding-window caches of all {format_count(n_ctx)} cells"


def expected_text(expected: Expected | None) -> str:
    """`4.28 ±0.27`; where one side of the interval is much longer, its ends; `≥ 126`, `≤ 7.92` of a bound."""
    if expected is None:
        return UNKNOWN
    if not math.isfinite(expected.high):
        return f"≥ {format_number(expected.value)}"
    if not expected.low and expected.value == expected.high:
        return f"≤ {format_number(expected.value)}"
    return format_interval(expected.value, expected.low, expected.high)


def planned_speed_text(expected: PlannedForecast | None) -> str:
    """`3.2 ±0.4`, in tokens per second, marked where it comes from an unsteady run; an em dash where none is known."""
    if expected is None:
        return UNKNOWN
    text = expected_text(Expected(expected.tok_s, *expected.tok_s_ci95))
    return text if expected.is_steady else f"{UNSTEADY} {text}"
