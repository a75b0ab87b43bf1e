"""What the Library shows of the quants beside their table: the memory of one, and the loss of each over its speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.show.changes import cheapest_options
from ggbench.show.plan import PLAN_FIGURES
from ggbench.sizing.plan_record import HOST_DEVICE, PlanRow
from ggbench.text import sanitize
from ggbench.tui.library import PICKED
from ggbench.tui.quant_rows import FIGURES, QuantRow
from ggbench.units import format_bytes, format_count

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
_LEAST_RANGE = 1e-4
"""The least range of an axis, in nats or tok/s."""
_FIGURES = {figure.key: figure for figure in FIGURES}


class MemoryPart(NamedTuple):
    name: str
    n_bytes: int
    colour: str = ""


def memory_parts(row: PlanRow) -> list[MemoryPart]:
    """Return the parts of the planned memory, of all GPUs together, and what is left of it or missing."""
    of_gpus = [each for each in row.devices if each.device != HOST_DEVICE] or row.devices
    sizes = {name: sum(getattr(each, member) for each in of_gpus) for name, member in _PARTS.items()}
    least, left_bytes = _SMALL * sum(sizes.values()), row.left_bytes or 0
    parts = [MemoryPart(name, size) for name, size in sizes.items() if size > least]
    if left_bytes < 0:
        return [*parts, MemoryPart("✗ missing", -left_bytes, "red")]
    return [*parts, MemoryPart("✓ left", left_bytes, "green")]


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
        options = cheapest_options(plan)
        fits_with = f"fits with {options}" if options else ""
        if self.size.height < _LEAST_LINES:
            left = PLAN_FIGURES["left_bytes"].text(plan)
            state = f"{row.title} at n_ctx {format_count(plan.n_ctx)}: {left}"
            return Text("; ".join(filter(None, (state, fits_with))), no_wrap=True, overflow="ellipsis")
        lines = [*memory_lines(memory_parts(plan), self.size.width), Text(fits_with)]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def memory_lines(parts: Sequence[MemoryPart], width: int) -> list[Text]:
    """Return a line for each part: its name, its size, and a bar as long as its share."""
    names = max(len(part.name) for part in parts)
    sizes = [format_bytes(part.n_bytes) for part in parts]
    heads = [f"{part.name:<{names}}  {size:>10}  " for part, size in zip(parts, sizes, strict=True)]
    most, room = max(part.n_bytes for part in parts) or 1, max(0, width - len(heads[0]))
    return [
        Text.assemble(head, ("█" * max(1, round(part.n_bytes / most * room)), part.colour))
        for head, part in zip(heads, parts, strict=True)
    ]


class LossSpeedPlot(Widget):
    """The loss of each quant over its speed, best at the lower right; Textual draws no points."""

    shown: reactive[tuple[tuple[QuantRow, ...], QuantRow | None]] = reactive(((), None))
    """The quants and the pick."""

    def on_mount(self) -> None:
        self.border_title = "loss over speed"

    def render(self) -> Text:
        from ggbench.show.axes import Axis

        rows, picked = self.shown
        points = [
            (speed.value, loss.value, row)
            for row in rows
            if (speed := row.candidate.tok_s) is not None and (loss := row.candidate.loss) is not None
        ]
        if len(points) < _LEAST_POINTS:
            return Text("Few speeds are known yet; b measures one." if rows else "")
        by_speed, by_loss = sorted(points, key=itemgetter(0)), sorted(points, key=itemgetter(1))
        (slowest, _, slow), (fastest, _, fast) = by_speed[0], by_speed[-1]
        (_, least, best), (_, most, worst) = by_loss[0], by_loss[-1]
        y_labels = {0: _FIGURES["kld"].text(worst), self.size.height - 3: _FIGURES["kld"].text(best)}
        margin = max(map(len, y_labels.values()))
        n_columns, n_rows = max(2, self.size.width - margin - 2), max(2, self.size.height - 2)
        x = Axis(slowest, max(fastest, slowest + _LEAST_RANGE))
        height = math.log if least > 0 else float
        y = Axis(height(least), max(height(most), height(least) + _LEAST_RANGE))
        cells = [[" "] * n_columns for _ in range(n_rows)]
        places = [
            (int(x.dots(speed, n_columns)), n_rows - 1 - int(y.dots(height(loss), n_rows)), row)
            for speed, loss, row in points
        ]
        for column, line, row in sorted(places, key=lambda each: each[2] is picked):  # the pick is on top
            cells[line][column] = PICKED if row is picked else "•"
        for column, line, row in places:
            _write(cells[line], column, row.title)
        lines = [f"{y_labels.get(line, ''):>{margin}} │{''.join(each)}" for line, each in enumerate(cells)]
        low, high = _FIGURES["tok_s"].text(slow), f"{_FIGURES['tok_s'].text(fast)} tok/s"
        lines += [f"{'':{margin}} └{'─' * n_columns}", f"{'':{margin}}  {low}{high:>{n_columns - len(low)}}"]
        return Text("\n".join(lines), no_wrap=True)


def _write(line: list[str], column: int, name: str) -> None:
    """Write a point's name at its right or else at its left, if nothing is there."""
    for start, stop in ((column + 1, column + len(name) + 3), (column - len(name) - 2, column)):
        if start >= 0 and stop <= len(line) + 1 and not "".join(line[start:stop]).strip():
            line[start + 1 : start + 1 + len(name)] = name
            return
