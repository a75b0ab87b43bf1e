"""Panels around the plot of the Run screen: the queue, the job's numbers, the machine, the decoded text."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import OptionList

from ggbench.engines.events import Memory
from ggbench.experiments.maxctx.record import BracketEnds, Probe, Question
from ggbench.machine.readings import BUSY_SHARE
from ggbench.runs.progress import Stage
from ggbench.show.names import distinct_by_kv, model_names
from ggbench.show.presenter import presenter_of
from ggbench.show.run_figures import measured_text
from ggbench.text import sanitize, shorten, shorten_alike
from ggbench.tui.live_job import LiveJob, LiveNumbers
from ggbench.tui.run_queue import QueueItem
from ggbench.tui.work_queue import GLYPHS, WorkState
from ggbench.units import (
    format_bytes,
    format_count,
    format_duration,
    format_fixed,
    format_ms,
    format_percent,
)

if TYPE_CHECKING:
    from ggbench.machine.records import GpuReading, MachineReading


_RUNNING, _PAUSED = "▶", "‖"
_NAME_WIDTH = 34


class QueueList(OptionList):
    """All jobs; only changed lines are redrawn. The highlight follows the running job until the user moves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "Open", tooltip="Open the finished run at the cursor"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: list[str] = []
        self._current: int | None = None
        """Index of the job that ran last."""

    def show(self, items: Sequence[QueueItem], letters: Mapping[int, str], *, paused: bool) -> None:
        """Update the lines; `letters` are the plot's, by item id."""
        lines = queue_lines(items, letters, paused=paused)
        for index, line in enumerate(lines):
            if index >= len(self._shown):
                self.add_option(Text(line))
            elif line != self._shown[index]:
                self.replace_option_prompt_at_index(index, Text(line))
        self._shown = lines
        at_work = [index for index, item in enumerate(items) if item.state.is_at_work]
        before, self._current = self._current, next(iter(at_work), self._current)
        if self.highlighted in (None, before):
            self.highlighted = self._current  # which scrolls to it


def queue_lines(items: Sequence[QueueItem], letters: Mapping[int, str], *, paused: bool) -> list[str]:
    """Return `✓ a qwen1.5-0.5b q8_0  61.2 tok/s  W 205 ±4 tokens/ms  B 10.92 ±0.08 ms`, or the reason of a failure."""
    models = shorten_alike(model_names([item.subject for item in items]), _NAME_WIDTH)
    quants = [f"{model} {sanitize(item.subject.quant)}" for model, item in zip(models, items, strict=True)]
    names = distinct_by_kv(quants, [item.setup for item in items])
    name_width = max(map(len, names), default=0)
    lines = []
    for item, name in zip(items, names, strict=True):
        glyph = GLYPHS.get(item.state, _PAUSED if paused else _RUNNING)
        state = _state_text(item, paused=paused)
        lines.append(f"{glyph} {letters.get(item.id, ' ')} {name:<{name_width}}  {state}")
    return lines


def _state_text(item: QueueItem, *, paused: bool) -> str:
    state, reason = item.state.value, sanitize(item.reason)
    if not item.state.is_over:
        return f"{item.kind}: {'paused' if paused and item.state.is_at_work else state}"
    if item.state is WorkState.DONE and item.run is not None:
        return presenter_of(item.kind).ending(item.run)
    if item.state is WorkState.FAILED:
        return reason
    found = "" if item.run is None else presenter_of(item.kind).answer(item.run)
    return ", ".join(filter(None, (state, sanitize(found) or reason)))


_WIDTH, _BAR_WIDTH, _DEVICE_WIDTH = 28, 22, 10


class Lines(Widget):
    """Lines of text, redrawn only if one changed; the layout changes only if the height does."""

    lines: reactive[tuple[str, ...]] = reactive(())
    n_lines = reactive(0, layout=True)

    def watch_lines(self) -> None:
        self.n_lines = len(self.lines)

    def render(self) -> Text:
        return Text("\n".join(self.lines), no_wrap=True)


_DETAILED: Collection[Stage] = ("probe", "decode")
"""Stages whose text says more than the state does."""
_MOST_DETAILS = 3


def number_lines(live: LiveJob, item: QueueItem, *, paused: bool) -> list[str]:
    """Return the state of the job, in lines of up to 28 characters: its progress, speed, W and B, and buffers by
    device.
    """
    presenter, state = presenter_of(item.kind), item.state
    lines = [f"paused, {state.value}" if paused and not state.is_over else state.value]
    lines += _progress_lines(live)
    if presenter.has_line:
        lines += _latency_lines(live.numbers())
    lines += presenter.live_lines(live.plotted(""))
    memory = (
        live.memory if item.run is None else item.run.memory
    )  # a search continues after the first context found
    if memory is not None:
        lines += _memory_lines(memory)
    return [shorten(line, _WIDTH) for line in (*lines, *filter(None, [live.point]))]


def _progress_lines(live: LiveJob) -> Iterator[str]:
    working = live.working
    if (share := live.share) is not None:
        full = round(share * _BAR_WIDTH)
        yield f"{'█' * full}{'░' * (_BAR_WIDTH - full)} {share:.0%}"
    if working is None and live.n_total:
        yield f"{format_count(live.n_done)} of {format_count(live.n_total)} tokens"
    if working is not None and working.is_bytes and working.done is not None:
        yield f"{format_bytes(round(working.done))} of {format_bytes(working.total)}"
    if live.pace.left_s is not None:
        yield f"{format_duration(live.pace.left_s)} left"
    if (
        working is not None and working.stage in _DETAILED and working.subject is None
    ):  # else a live view shows it
        yield from textwrap.wrap(sanitize(working.text), _WIDTH)[:_MOST_DETAILS]


def _latency_lines(numbers: LiveNumbers) -> Iterator[str]:
    latency, fit = numbers.latency, numbers.fit
    if latency is None:
        return
    yield f"speed {measured_text(latency, 'tok_s')} tok/s"
    if fit is not None:
        yield f"W     {measured_text(fit, 'w_tokens_per_ms')} tokens/ms"
        yield f"B     {measured_text(fit, 'b_ms', 4)} ms"
    if latency.p50_ms is not None:
        yield f"p50   {format_ms(latency.p50_ms)}, p99 {format_ms(latency.p99_ms)} ms"


def _memory_lines(memory: Memory) -> Iterator[str]:
    if memory.n_ctx is None:
        return
    yield f"n_ctx {format_count(memory.n_ctx)}"
    for one in memory.buffers:
        sizes = one.weight_bytes, one.kv_bytes, one.compute_bytes, one.output_bytes
        for name, n_bytes in zip(("weights", "KV", "compute", "output"), sizes, strict=True):
            if n_bytes:
                yield f"{name:<8}{format_bytes(n_bytes):>9} {shorten(one.device, _DEVICE_WIDTH)}"


class DecodedText(Widget):
    text = reactive("")

    def render(self) -> Text:
        room = max(1, self.size.width * self.size.height)
        return Text(sanitize(self.text)[-room:] or "no text", overflow="fold")


def gauge_lines(reading: MachineReading) -> list[str]:
    lines = [f"CPU {format_percent(reading.cpu_share)}"] if reading.cpu_share is not None else []
    if (reading.others_share or 0) >= BUSY_SHARE:
        lines.append(f"! others {format_percent(reading.others_share)} of CPU")
    if reading.used_bytes is not None:
        lines.append(f"RAM {format_bytes(reading.used_bytes)} of {format_bytes(reading.total_bytes)}")
    for gpu in reading.gpus:
        lines += _gpu_lines(gpu)
    return [shorten(line, _WIDTH) for line in lines]


def _gpu_lines(gpu: GpuReading) -> Iterator[str]:
    yield f"GPU{gpu.index} {gpu.name}"
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


_KINDS = {"alloc": "context", "decode": "decode"}


def bracket_lines(
    answers: Sequence[tuple[Probe, BracketEnds]], question: Question | None, asked_s: int | None = None
) -> list[str]:
    """Return a line for each probe of a real context, for the current trial, and for what is known so far."""
    real = [(probe, ends) for probe, ends in answers if not probe.is_dry]
    if not real and question is None:
        return ["planning"]
    lines = [_probe_label(probe) for probe, _ in real]
    if question is not None:
        lines.append(f"{_KINDS[question.kind]:<7} {format_count(question.n_ctx):>9} ? {asked_s or 0} s")
    ends = real[-1][1] if real else BracketEnds(None, None)
    works = "none known to work" if ends.passed is None else f"{format_count(ends.passed)} works"
    fails = "" if ends.failed is None else f", {format_count(ends.failed)} does not"
    return [*lines, works + fails]


def _probe_label(probe: Probe) -> str:
    label = f"{_KINDS[probe.kind]:<7} {format_count(probe.n_ctx):>9}"
    if not probe.is_answer:
        return f"{label} – {probe.outcome.text}"
    return (
        f"{label} ✓ works, {format_fixed(probe.seconds, 1)} s"
        if probe.passed
        else f"{label} ✗ {probe.outcome.text}"
    )
