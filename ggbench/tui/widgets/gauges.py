"""The machine while it measures: processors, memory, and each GPU's clocks, heat and power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.widget import Widget

from ggbench.plain import shorten
from ggbench.units import format_bytes, format_percent

if TYPE_CHECKING:
    from ggbench.machine_records import GpuReading, MachineReading

_WIDTH = 28


class Gauges(Widget):
    """One reading after another; empty before the first."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = Text()
        self._lines: list[str] = []

    def show(self, reading: MachineReading) -> None:
        """Take the place of the last reading."""
        self._lines = gauge_lines(reading)
        self._draw(self._lines)

    def show_last(self) -> None:
        """Say that what stands there is no longer read."""
        if self._lines:
            self._draw(["last reading", *self._lines])

    def _draw(self, lines: list[str]) -> None:
        text = Text("\n".join(lines), no_wrap=True)
        if text.plain != self._text.plain:
            taller = text.plain.count("\n") != self._text.plain.count("\n")
            self._text = text
            self.refresh(layout=taller)

    def render(self) -> Text:
        """The lines of the last reading."""
        return self._text


def gauge_lines(reading: MachineReading) -> list[str]:
    """Lines of at most 28 characters; what the machine does not tell is left out."""
    lines = [f"CPU {format_percent(reading.cpu_share)}"] if reading.cpu_share is not None else []
    if reading.used_bytes is not None:
        lines.append(f"RAM {format_bytes(reading.used_bytes)} of {format_bytes(reading.total_bytes)}")
    for gpu in reading.gpus:
        lines += _gpu_lines(gpu)
    return lines


def _gpu_lines(gpu: GpuReading) -> list[str]:
    lines = [shorten(f"GPU{gpu.index} {gpu.name}", _WIDTH)]
    clocks = [f"{mhz}" for mhz in (gpu.sm_clock_mhz, gpu.memory_clock_mhz) if mhz is not None]
    if clocks:
        lines.append(f"  {' / '.join(clocks)} MHz")
    heat = [
        *([] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f} °C"]),
        *([] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]),
    ]
    if heat:
        lines.append(f"  {'  '.join(heat)}")
    if gpu.used_bytes is not None:
        lines.append(f"  {format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)}")
    if gpu.throttle:
        lines.append(shorten(f"  slowed: {', '.join(gpu.throttle)}", _WIDTH))
    return lines
