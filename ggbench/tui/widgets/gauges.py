"""The machine during a run: CPU use, memory, and each GPU's clocks, temperature and power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.text import shorten
from ggbench.units import format_bytes, format_percent

if TYPE_CHECKING:
    from ggbench.machine.records import GpuReading, MachineReading

_WIDTH, _LAST = 28, "last reading"


class Gauges(Widget):
    """The latest reading; empty before the first."""

    lines: reactive[tuple[str, ...]] = reactive(())
    n_lines = reactive(0, layout=True)

    def show(self, reading: MachineReading) -> None:
        """Show a reading."""
        self.lines = tuple(gauge_lines(reading))

    def show_last(self) -> None:
        """Label the reading as the last one."""
        if self.lines and self.lines[0] != _LAST:
            self.lines = (_LAST, *self.lines)

    def watch_lines(self) -> None:
        """Change the layout only if the height does."""
        self.n_lines = len(self.lines)

    def render(self) -> Text:
        """Return the lines of the last reading."""
        return Text("\n".join(self.lines), no_wrap=True)


def gauge_lines(reading: MachineReading) -> list[str]:
    """Return lines of at most 28 characters, without what the machine does not report."""
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
    sensors = [
        *([] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f} °C"]),
        *([] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]),
    ]
    if sensors:
        lines.append(f"  {'  '.join(sensors)}")
    if gpu.used_bytes is not None:
        lines.append(f"  {format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)}")
    if gpu.throttle:
        lines.append(shorten(f"  throttled: {', '.join(gpu.throttle)}", _WIDTH))
    return lines
