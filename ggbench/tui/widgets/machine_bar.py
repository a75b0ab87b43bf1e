"""The line that shows which memory the Library plans for."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.machine.records import MachineReading
from ggbench.sizing.plan_record import Budget
from ggbench.text import plain, shorten
from ggbench.units import format_bandwidth, format_bytes

_OTHER = " · g other card"


class MachineBar(Widget):
    """Device, free and total memory, bandwidth; a click opens the choice of another card."""

    shown: reactive[tuple[str, str] | None] = reactive(None)
    """The device and its figures; None before they are known."""

    async def on_click(self) -> None:
        """Choose another card."""
        await self.run_action("screen.choose_card")

    def show(self, budget: Budget, reading: MachineReading | None, *, is_here: bool) -> None:
        """Show a budget; `is_here` is whether it is this machine's."""
        self.shown = _device_text(budget, is_here=is_here), _figures(budget, reading, is_here=is_here)

    def render(self) -> Text:
        """Return the figures in full, and as much of the device's name as fits."""
        if self.shown is None:
            return Text("reading this machine's memory and its bandwidth…")
        device, figures = self.shown
        room = max(8, self.size.width - len(figures) - len(_OTHER))
        return Text(f"{shorten(device, room)}{figures}{_OTHER}", no_wrap=True, overflow="ellipsis")


def _device_text(budget: Budget, *, is_here: bool) -> str:
    """Return `RTX 4090`, or `plan for RTX 4090` for a card that is not installed."""
    device = plain(budget.device).removeprefix("NVIDIA ").removeprefix("GeForce ")
    return device if is_here else f"plan for {device}"


def _figures(budget: Budget, reading: MachineReading | None, *, is_here: bool) -> str:
    """Return ` · 22.1 GiB free of 24.0 GiB · 1008 GB/s`."""
    rate = format_bandwidth(budget.bandwidth.bytes_per_s) if budget.bandwidth else "? GB/s"
    memory = format_bytes(budget.memory_bytes)
    if not is_here:
        return f" · {memory}, {format_bytes(budget.reserve_bytes)} kept free · {rate}"
    total_bytes = _total_bytes(budget, reading)
    total = "" if total_bytes is None else f" of {format_bytes(total_bytes)}"
    # A limit says nothing about what is free.
    what = f"limit {memory}" if budget.memory_source.startswith("given") else f"{memory} free"
    return f" · {what}{total} · {rate}"


def _total_bytes(budget: Budget, reading: MachineReading | None) -> int | None:
    if reading is None:
        return None
    if not budget.on_gpu:
        return reading.total_bytes
    return next((gpu.total_bytes for gpu in reading.gpus if gpu.name == budget.device), None)
