"""What the Library shows of the quants below their table: the memory of one, and the loss of each over its speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.text import sanitize
from ggbench.tui.library import PICKED
from ggbench.units import format_bytes, format_count

if TYPE_CHECKING:
    from ggbench.show.charts import LineChart
    from ggbench.sizing.plan_record import PlanRow
    from ggbench.tui.quant_rows import QuantRow


_PARTS = {
    "weights": "weight_bytes", "projector": "projector_bytes", "draft": "draft_bytes", "KV": "kv_bytes",
    "compute": "compute_bytes", "process": "process_bytes", "reserve": "reserve_bytes",
}  # fmt: skip
"""The parts of a memory by the members of `PlannedDevice`."""
_LEAST_LINES = 5
_SMALL = 0.005
"""Share of the memory below which a part has no line."""
_LEAST_SPEEDS = 2


def memory_parts(row: PlanRow) -> list[tuple[str, int]]:
    """Return the parts of the planned memory in bytes, of all GPUs together, and what is left of it or missing."""
    from ggbench.sizing.plan_record import HOST_DEVICE

    of_gpus = [each for each in row.devices if each.device != HOST_DEVICE] or row.devices
    sizes = {name: sum(getattr(each, member) for each in of_gpus) for name, member in _PARTS.items()}
    least, left_bytes = _SMALL * sum(sizes.values()), row.left_bytes or 0
    parts = [(name, size) for name, size in sizes.items() if size > least]
    if left_bytes < 0:
        return [*parts, ("✗ missing", -left_bytes)]
    return [*parts, ("✓ left", left_bytes)]


class MemoryPanel(Widget):
    """What the quant at the cursor takes of the memory: a line for each part, or a sentence where there is no room."""

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
            return Text("; ".join(filter(None, (state, fits_with))))
        parts = memory_parts(plan)
        width = max(len(name) for name, _ in parts)
        lines = [f"{name:<{width}}  {format_bytes(n_bytes):>10}" for name, n_bytes in parts]
        return Text("\n".join([*lines, fits_with]), no_wrap=True, overflow="ellipsis")


def losses_over_speeds(rows: Sequence[QuantRow], picked: QuantRow | None) -> LineChart | None:
    """Return a point for each quant, best at the lower right; None unless two speeds are known and differ."""
    points = [
        (f"{row.title}{PICKED if row is picked else ''}", speed.value, loss.value)
        for row in rows
        if (speed := row.candidate.tok_s) is not None and (loss := row.candidate.loss) is not None
    ]
    if len({tok_s for _, tok_s, _ in points}) < _LEAST_SPEEDS:
        return None
    import numpy as np

    from ggbench.show.charts import Curve, LineChart

    curves = tuple(Curve(name, np.array([tok_s]), np.array([loss])) for name, tok_s, loss in points)
    return LineChart("loss", "loss", "nats", "speed", "tok/s", curves)
