"""Panels around the plot of the Run screen: the queue, the downloads, the job's numbers and the machine."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import OptionList

from ggbench.machine.readings import BUSY_SHARE
from ggbench.runs.progress import Stage
from ggbench.show.names import distinct_by_kv, model_names, short_device
from ggbench.show.presenter import presenter_of
from ggbench.show.run_figures import measured_text, w_text
from ggbench.text import sanitize, shorten, shorten_middle
from ggbench.tui.live_job import LiveJob
from ggbench.tui.run_queue import QueueItem
from ggbench.tui.widgets.bars import key_links
from ggbench.tui.work_queue import GLYPHS, Item, PullItem, WorkItem, WorkState
from ggbench.units import counted, format_bytes, format_duration, format_ms, format_percent

if TYPE_CHECKING:
    from ggbench.machine.records import GpuReading, MachineReading
    from ggbench.stats.decode_timing import LatencySummary, LineFit


_RUNNING = "▶"
_COLOURS = {GLYPHS[WorkState.DONE]: "green", GLYPHS[WorkState.FAILED]: "#ff5f5f"}
_NAME_WIDTH = 34


class WorkList(OptionList):
    """The items of a queue; only changed lines are redrawn. The highlight follows the one at work until it is moved."""

    def __init__(self, title: str, keys: str, *, id: str) -> None:
        super().__init__(id=id, classes="panel", markup=False)
        self.border_title, self.border_subtitle = title, key_links(keys)
        self._shown: list[str] = []
        self._current: int | None = None
        """Index of the item that was at work last."""

    def show(self, items: Sequence[WorkItem], lines: Sequence[str]) -> None:
        """Show a line for each item, which begins with its glyph."""
        for index, line in enumerate(lines):
            text = Text.assemble((line[0], _COLOURS.get(line[0], "")), line[1:])
            if index >= len(self._shown):
                self.add_option(text)
            elif line != self._shown[index]:
                self.replace_option_prompt_at_index(index, text)
        self._shown = list(lines)
        at_work = [index for index, item in enumerate(items) if item.state.is_at_work]
        before, self._current = self._current, next(iter(at_work), self._current)
        if self.highlighted in (None, before):
            self.highlighted = self._current  # which scrolls to it

    def chosen(self, items: Sequence[Item]) -> Item | None:
        """Return the item at the cursor."""
        return items[self.highlighted] if self.highlighted is not None else None


def queue_lines(items: Sequence[QueueItem], letters: Mapping[int, str]) -> list[str]:
    """Return `✓ a qwen1.5-0.5b q8_0  decode  61.2 tok/s  W 205 ±4 tokens/ms  B 10.92 ±0.08 ms`, or why it failed."""
    models = [shorten_middle(name, _NAME_WIDTH) for name in model_names([item.subject for item in items])]
    quants = [f"{model} {sanitize(item.subject.quant)}" for model, item in zip(models, items, strict=True)]
    names = distinct_by_kv(quants, [item.setup for item in items])
    name_width = max(map(len, names), default=0)
    kind_width = max((len(item.kind) for item in items), default=0)
    lines = []
    for item, name in zip(items, names, strict=True):
        glyph = GLYPHS.get(item.state, _RUNNING)
        lines.append(
            f"{glyph} {letters.get(item.id, ' ')} {name:<{name_width}}  {item.kind:<{kind_width}}  {_state_text(item)}"
        )
    return lines


def _state_text(item: QueueItem) -> str:
    if item.state is WorkState.FAILED:
        return sanitize(item.reason)
    if item.run is None:
        return item.state.value
    presenter = presenter_of(item.kind)
    if item.state is WorkState.DONE:
        return presenter.ending(item.run)
    return ", ".join(filter(None, (item.state.value, sanitize(presenter.answer(item.run)))))


def pull_lines(items: Sequence[PullItem]) -> list[str]:
    """Return `↓ maker/m-gguf q4_k_m  ━━╌╌╌╌ 29 %  13:50 left  34.3 MiB/s  12.0 GiB of 41.0 GiB`."""
    names = [f"{shorten_middle(sanitize(item.model), _NAME_WIDTH)} {sanitize(item.quant)}" for item in items]
    width = max(map(len, names), default=0)
    return [
        f"{GLYPHS[item.state]} {name:<{width}}  {_pull_state(item)}"
        for item, name in zip(items, names, strict=True)
    ]


def _pull_state(item: PullItem) -> str:
    if item.path is not None:
        return f"{item.amount}  {sanitize(str(item.path))}"
    if item.share is None or item.state is not WorkState.DOWNLOADING:
        return sanitize(item.reason) or item.state.value
    full = round(item.share * _PULL_WIDTH)
    parts = [f"{'━' * full}{'╌' * (_PULL_WIDTH - full)} {format_percent(item.share)}"]
    if item.left_s is not None:
        parts.append(f"{format_duration(item.left_s)} left")
    if item.bytes_per_s is not None:
        parts.append(f"{format_bytes(item.bytes_per_s)}/s")
    parts.append(item.amount)
    return "  ".join(parts)


_WIDTH, _BAR_WIDTH, _PULL_WIDTH = 30, 24, 6
_DETAILED: Collection[Stage] = ("probe", "decode", "score")
"""Stages whose text says more than the state does."""
_MOST_DETAILS = 3


def number_lines(live: LiveJob, item: QueueItem) -> list[str]:
    """Return the state of the job, in lines of up to 30 characters: progress, speed, W and B, and the machine."""
    presenter, state = presenter_of(item.kind), item.state
    lines = [state.value, *_progress_lines(live)]
    if presenter.has_line:
        lines += _latency_lines(*live.numbers(), is_live=not state.is_over)
    for point in live.points[-1:]:
        lines += textwrap.wrap(sanitize(point), _WIDTH)[:_MOST_DETAILS]
    if live.reading is not None and not state.is_over:
        lines += ["", *_gauge_lines(live.reading)]
    return [shorten(line, _WIDTH) for line in lines]


def _progress_lines(live: LiveJob) -> Iterator[str]:
    working = live.working
    if (share := live.share) is not None:
        full = round(share * _BAR_WIDTH)
        yield f"{'━' * full}{'╌' * (_BAR_WIDTH - full)} {share:>4.0%}"
    if working is None and live.n_done:
        yield counted(live.n_done, "step")
    if working is not None and working.is_bytes and working.done is not None:
        yield f"{format_bytes(round(working.done))} of {format_bytes(working.total)}"
    if live.pace.left_s is not None:
        yield f"{format_duration(live.pace.left_s)} left"
    if working is not None and working.stage in _DETAILED:
        yield from textwrap.wrap(sanitize(working.text), _WIDTH)[:_MOST_DETAILS]


def _latency_lines(fit: LineFit | None, latency: LatencySummary | None, is_live: bool) -> Iterator[str]:
    if latency is None:
        return
    yield f"speed {measured_text(latency, 'tok_s')} tok/s"
    if fit is None or fit.is_nothing:
        yield "W, B  — at the end of the run" if is_live else "W, B  —"
    else:
        yield f"W     {w_text(fit)} tokens/ms"
        yield f"B     {measured_text(fit, 'b_ms', 4)} ms"
    if latency.p50_ms is not None:
        yield f"p50   {format_ms(latency.p50_ms)}, p99 {format_ms(latency.p99_ms)} ms"


def _gauge_lines(reading: MachineReading) -> Iterator[str]:
    if reading.cpu_share is not None:
        yield f"CPU {format_percent(reading.cpu_share)}"
    if (reading.others_share or 0) >= BUSY_SHARE:
        yield f"! others {format_percent(reading.others_share)} of CPU"
    if reading.used_bytes is not None:
        yield f"RAM {format_bytes(reading.used_bytes)} of {format_bytes(reading.total_bytes)}"
    for gpu in reading.gpus:
        yield from _gpu_lines(gpu)


def _gpu_lines(gpu: GpuReading) -> Iterator[str]:
    yield f"GPU{gpu.index} {short_device(gpu.name)}"
    clocks = [str(mhz) for mhz in (gpu.sm_clock_mhz, gpu.memory_clock_mhz) if mhz is not None]
    if clocks:
        yield f"  {' / '.join(clocks)} MHz"
    if gpu.temperature_c is not None:
        yield f"  {gpu.temperature_c:.0f} °C"
    if gpu.power_w is not None:
        yield f"  {gpu.power_w:.0f} W"
    if gpu.used_bytes is not None:
        yield f"  {format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)}"
    if gpu.throttle:
        yield f"  throttled: {', '.join(gpu.throttle)}"


def point_lines(live: LiveJob) -> list[str]:
    """Return a line for each measured point, and the step in progress with the time that it has taken."""
    taken_s = int(time.monotonic() - live.began_s)
    doing = [f"{live.doing} … {format_duration(taken_s)}"] if live.doing else []
    return [sanitize(line) for line in (*live.points, *doing)]
