"""What the Library shows of the quants beside their table: the memory of one, and the loss of each over its speed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.text import sanitize
from ggbench.tui.library import PICKED
from ggbench.units import format_bytes, format_count

if TYPE_CHECKING:
    from ggbench.sizing.plan_record import PlanRow
    from ggbench.tui.quant_rows import QuantRow


_PARTS = {
    "weights": "weight_bytes", "projector": "projector_bytes", "draft": "draft_bytes", "KV": "kv_bytes",
    "compute": "compute_bytes", "process": "process_bytes", "prompt cache": "prompt_cache_bytes",
    "reserve": "reserve_bytes",
}  # fmt: skip
"""The parts of a memory by the members of `PlannedDevice`."""
_LEAST_LINES = 5
_SMALL = 0.005
"""Share of the memory below which a part has no line."""


_LEAST_POINTS = 2
_LEAST_LOSS = 1e-5
"""Nats below which losses are drawn as equal."""


class MemoryPart(NamedTuple):
    name: str
    n_bytes: int


def memory_parts(row: PlanRow) -> list[MemoryPart]:
    """Return the parts of the planned memory, of all GPUs together, and what is left of it or missing."""
    from ggbench.sizing.plan_record import HOST_DEVICE

    of_gpus = [each for each in row.devices if each.device != HOST_DEVICE] or row.devices
    sizes = {name: sum(getattr(each, member) for each in of_gpus) for name, member in _PARTS.items()}
    least, left_bytes = _SMALL * sum(sizes.values()), row.left_bytes or 0
    parts = [MemoryPart(name, size) for name, size in sizes.items() if size > least]
    if left_bytes < 0:
        return [*parts, MemoryPart("✗ missing", -left_bytes)]
    return [*parts, MemoryPart("✓ left", left_bytes)]


class MemoryPanel(Widget):
    """What the quant at the cursor takes of the memory: a line for each part, or one line where there is no room."""

    shown: reactive[QuantRow | None] = reactive(None)

    def watch_shown(self) -> None:
        row = self.shown
        self.border_title = "memory"
        if row is not None and row.plan.n_ctx is not None:
            self.border_title = Text(f"memory: {row.title}, n_ctx {format_count(row.plan.n_ctx)}")

    def render(self) -> Text:
        row = self.shown
        if row is None:
            return Text()
        plan = row.plan
        if plan.n_ctx is None or plan.weight_bytes is None:
            return Text(sanitize(plan.reason) or "its size is unknown", overflow="fold")
        from ggbench.show.changes import cheapest_options
        from ggbench.show.plan import PLAN_FIGURES

        options = cheapest_options(plan)
        fits_with = f"fits with {options}" if options else ""
        if self.size.height < _LEAST_LINES:
            left = PLAN_FIGURES["left_bytes"].text(plan)
            state = f"{row.title} at n_ctx {format_count(plan.n_ctx)}: {left}"
            return Text("; ".join(filter(None, (state, fits_with))), no_wrap=True, overflow="ellipsis")
        return Text("\n".join([*_parts_of(plan), fits_with]), no_wrap=True, overflow="ellipsis")


def _parts_of(plan: PlanRow) -> list[str]:
    """Return a line for each part of the memory."""
    parts = memory_parts(plan)
    names = max(len(part.name) for part in parts)
    return [f"{part.name:<{names}}  {format_bytes(part.n_bytes):>10}" for part in parts]


class LossSpeedPlot(Widget):
    """The loss of each quant over its speed, best at the lower right; Textual draws no points."""

    shown: reactive[tuple[tuple[QuantRow, ...], QuantRow | None]] = reactive(((), None))
    """The quants and the pick."""

    def on_mount(self) -> None:
        self.border_title = "loss over speed"

    def render(self) -> Text:
        points, picked = self._points, self.shown[1]
        if len(points) < _LEAST_POINTS:
            return Text("Few speeds are known yet.")
        from ggbench.tui.quant_rows import FIGURES

        texts = {figure.key: figure.text for figure in FIGURES}
        slow, fast = (pick(points, key=lambda each: each.tok_s) for pick in (min, max))
        best, worst = (pick(points, key=lambda each: each.loss) for pick in (min, max))
        low, high = texts["tok_s"](slow.row), f"{texts['tok_s'](fast.row)} tok/s"
        heads = [texts["kld"](worst.row), texts["kld"](best.row)]
        margin = max(map(len, heads))
        n_columns, n_rows = max(2, self.size.width - margin - 2), max(2, self.size.height - 2)
        heads[1:1] = [""] * (n_rows - 2)
        cells = _blank(n_rows, n_columns)
        points.sort(key=lambda each: each.row is picked)  # the pick is on top
        columns = [_place(each.tok_s, slow.tok_s, fast.tok_s, n_columns) for each in points]
        rows = [cells[_place(each.loss, worst.loss, best.loss, n_rows)] for each in points]
        for point, line, column in zip(points, rows, columns, strict=True):
            line[column] = PICKED if point.row is picked else "•"
        for point, line, column in zip(points, rows, columns, strict=True):
            _write(line, column, point.row.title)
        lines = [f"{head:>{margin}} │{''.join(line)}" for head, line in zip(heads, cells, strict=True)]
        lines += [f"{'':{margin}} └{'─' * n_columns}", f"{'':{margin}}  {low}{high:>{n_columns - len(low)}}"]
        return Text("\n".join(lines), no_wrap=True)

    @property
    def _points(self) -> list[_Point]:
        """The quants whose speed and loss are known; losses by their logarithm, as each quant loses a multiple."""
        return [
            _Point(speed.value, math.log(max(loss.value, _LEAST_LOSS)), row)
            for row in self.shown[0]
            if (speed := row.candidate.tok_s) is not None and (loss := row.candidate.loss) is not None
        ]


class _Point(NamedTuple):
    tok_s: float
    loss: float
    row: QuantRow


def _place(value: float, first: float, last: float, n_places: int) -> int:
    """Return the place of a value, of which the first is at 0."""
    return round((value - first) / (last - first) * (n_places - 1)) if first != last else 0


def _blank(n_rows: int, n_columns: int) -> list[list[str]]:
    return [[" "] * n_columns for _ in range(n_rows)]


def _write(line: list[str], column: int, name: str) -> None:
    """Write a point's name at its right or else at its left, if nothing is there."""
    for start, stop in ((column + 1, column + len(name) + 3), (column - len(name) - 2, column)):
        if start >= 0 and stop <= len(line) + 1 and not "".join(line[start:stop]).strip():
            line[start + 1 : start + 1 + len(name)] = name
            return
