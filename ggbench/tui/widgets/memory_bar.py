"""The planned memory of the chosen quant as a stacked bar: weights, KV, compute and what is left.

Each part has its own character, so that the bar can be read without colour.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group
from rich.text import Text
from textual.app import RenderResult
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.show.terminal.plan import fit_text
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.text import plain
from ggbench.units import format_bytes, format_count


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bar."""

    name: str
    n_bytes: int
    glyph: str
    colour: str


class MemoryBar(Widget):
    """Three lines: the plan, the bar and its legend."""

    shown: reactive[tuple[str, PlanRow, Budget] | None] = reactive(None)
    """A quant with its plan; None where none is chosen."""

    def render(self) -> RenderResult:
        """Return the lines for the width."""
        if self.shown is None or not self.size.width:
            return ""
        name, row, budget = self.shown
        width = self.size.width
        if row.n_ctx is None or row.weight_bytes is None:
            return Text(plain(row.reason) or "its size is unknown", overflow="fold")
        parts = memory_parts(row, budget)
        title = Text(
            f"{plain(name)} at n_ctx {format_count(row.n_ctx)}: {fit_text(row)}{_remedy(row)}",
            no_wrap=True,
            overflow="ellipsis",
        )
        bar = Text(no_wrap=True)
        for part, cells in zip(parts, stack_widths(parts, width), strict=True):
            bar.append(part.glyph * cells, style=part.colour)
        legends = _legends(parts)
        legend = next((text for text in legends if text.cell_len <= width), legends[-1])
        return Group(title, bar, legend)


def _remedy(row: PlanRow) -> str:
    """Return what would make it fit: a smaller KV cache, or the n_ctx that does; empty where it fits."""
    if row.fits is not False:
        return ""
    cache = f"KV {row.fits_with.type_k}" if row.fits_with else ""
    n_ctx = f"n_ctx {format_count(row.planned_n_ctx)}" if row.planned_n_ctx else ""
    remedies = " or ".join(filter(None, (cache, n_ctx)))
    return f"; fits with {remedies}" if remedies else ""


def _legends(parts: list[Part]) -> list[Text]:
    """Return legends from long to short: the reserve goes before a name does."""
    without_reserve = [part for part in parts if part.name != "reserve"]
    whole = [_legend(shown, len(shown), gap) for shown in (parts, without_reserve) for gap in ("  ", " ")]
    return [*whole, *(_legend(without_reserve, n_names, " ") for n_names in range(len(without_reserve) - 1, -1, -1))]


def _legend(parts: list[Part], n_names: int, gap: str) -> Text:
    """Return the legend with the size of each part, the first of them named."""
    legend = Text(no_wrap=True, overflow="ellipsis")
    for index, part in enumerate(parts):
        legend.append(f"{gap if index else ''}{part.glyph}", style=part.colour)
        legend.append(f"{f' {part.name}' if index < n_names else ''} {format_bytes(part.n_bytes)}")
    return legend


def memory_parts(row: PlanRow, budget: Budget) -> list[Part]:
    """Return the parts from left to right; if the plan does not fit, `missing` replaces `free`."""
    logits_bytes = 0 if budget.on_gpu else row.output_bytes or 0
    parts = [
        Part("weights", row.device_weight_bytes or 0, "█", "blue"),
        Part("KV", row.device_kv_bytes or 0, "▓", "green"),
        Part("compute", (row.compute_bytes or 0) + logits_bytes, "▒", "yellow"),
    ]
    left_bytes = row.left_bytes or 0
    if left_bytes < 0:
        return [*parts, Part("missing", -left_bytes, "╳", "bold red")]
    return [*parts, Part("free", left_bytes, "░", "dim"), Part("reserve", budget.reserve_bytes, "·", "dim")]


def stack_widths(parts: list[Part], width: int) -> list[int]:
    """Return each part's width in characters, adding up to `width`; a non-empty part has at least one.

    What is missing belongs to what is needed, so it covers the end of the bar.
    """
    sizes = [part.n_bytes for part in parts]
    if parts[-1].name == "missing":
        over = sizes[-1]
        for index in range(len(sizes) - 2, -1, -1):
            taken = min(sizes[index], over)
            sizes[index] -= taken
            over -= taken
    total = sum(sizes)
    if total <= 0:
        return [0] * len(sizes)
    ends, at = [], 0
    for size in sizes:
        at += size
        ends.append(round(at / total * width))
    widths = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    for index, size in enumerate(sizes):
        if size and not widths[index]:
            largest = widths.index(max(widths))
            widths[index], widths[largest] = 1, widths[largest] - 1
    return widths
