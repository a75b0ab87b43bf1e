"""Panels around the plot of the Run screen: the queue, the job's numbers, the machine, the decoded text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import OptionList

from ggbench.engines.endings import Outcome
from ggbench.experiments.maxctx.record import BracketEnds, MaxctxResult, Probe, Question
from ggbench.machine.readings import BUSY_SHARE
from ggbench.runs.progress import Stage
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.names import distinct_by_kv, model_names
from ggbench.show.presenter import presenter_of
from ggbench.show.text import b_text, tok_s_text, w_text
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary
from ggbench.text import sanitize, shorten, shorten_middle
from ggbench.tui.live_job import LiveJob, LiveNumbers
from ggbench.tui.run_queue import QueueItem
from ggbench.tui.work_queue import GLYPHS, WorkState
from ggbench.units import (
    KV_CELLS,
    counted,
    format_bytes,
    format_count,
    format_duration,
    format_duration_range,
    format_fixed,
    format_ms,
    format_percent,
)

if TYPE_CHECKING:
    from ggbench.machine.records import MachineReading


_RUNNING, _PAUSED = "▶", "‖"
_NAME_WIDTH = 34


class QueueList(OptionList):
    """All jobs; only changed lines are redrawn.

    The highlight follows the running job until the user moves it, and again once it is back on the running one, or
    jobs were added.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("enter", "screen.open", "Open", tooltip="Open the finished run at the cursor"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: list[str] = []
        self._followed: int | None = None
        """Index of the followed job."""

    @property
    def cut_line(self) -> str:
        """The whole line at the cursor if the window is too narrow for it, else empty."""
        row = self.highlighted
        line = self._shown[row] if row is not None and row < len(self._shown) else ""
        return line if cell_len(line) > self.size.width - 2 else ""

    def show(self, items: Sequence[QueueItem], letters: Mapping[int, str], *, paused: bool) -> None:
        """Update the lines; `letters` are the plot's, by item id."""
        lines = queue_lines(items, letters, width=self.size.width - 2, paused=paused)
        if len(lines) > len(self._shown):
            self._followed = self.highlighted
        for index, line in enumerate(lines):
            if index >= len(self._shown):
                self.add_option(Text(line))
            elif line != self._shown[index]:
                self.replace_option_prompt_at_index(index, Text(line))
        self._shown = lines
        current = next((index for index, item in enumerate(items) if item.state.is_at_work), None)
        if current is not None and self.highlighted in (None, self._followed):
            self._followed = self.highlighted = current  # which scrolls to it
        elif self.highlighted is None and lines:  # all ended before they were drawn
            self._followed = self.highlighted = len(lines) - 1
        elif current == self.highlighted:
            self._followed = current


def queue_lines(items: Sequence[QueueItem], letters: Mapping[int, str], *, width: int, paused: bool) -> list[str]:
    """Return `✓ a qwen1.5-0.5b q8_0  61.2 tok/s  W 205 ±4 tokens/ms  B 10.92 ±0.08 ms`, or the reason of a failure.

    A name has model, quant and KV types; only the model is shortened, unless two names would become equal. Numbers that
    the width would cut are left out, the longest first.
    """
    subjects = [item.subject for item in items]
    pairs = [(model, sanitize(one.quant)) for model, one in zip(model_names(subjects), subjects, strict=True)]
    whole = [f"{model} {quant}" for model, quant in pairs]
    short = [f"{shorten_middle(model, max(8, _NAME_WIDTH - len(quant)))} {quant}" for model, quant in pairs]
    shown = short if len(set(short)) == len(set(whole)) else whole
    names = distinct_by_kv(shown, [item.setup for item in items])
    name_width = max(map(len, names), default=0)
    lines = []
    for item, name in zip(items, names, strict=True):
        glyph = GLYPHS.get(item.state, _PAUSED if paused else _RUNNING)
        numbers = _state_text(item, paused=paused).split("  ")
        while len(numbers) > 1 and len("  ".join(numbers)) > width - name_width - len("▶ a   "):
            numbers.remove(max(numbers[1:], key=len))
        lines.append(f"{glyph} {letters.get(item.id, ' ')} {name:<{name_width}}  {'  '.join(numbers)}")
    return lines


def _state_text(item: QueueItem, *, paused: bool) -> str:
    state, presenter = item.state, presenter_of(item.kind)
    if state is WorkState.FAILED:
        words, reason = item.run.outcome.text if item.run else "", sanitize(item.reason)
        # "failed: ..." adds nothing to the glyph, and out-of-memory reasons start with the same words
        return reason if words in ("", Outcome.FAILED.text) or reason.startswith(words) else f"{words}: {reason}"
    if state is WorkState.DONE and item.run is not None:
        return presenter.ending(item.run)
    if state.is_left and item.run is not None and (found := presenter.answer(item.run)):
        return f"{state.value}, {sanitize(found)}"
    if state.is_over:
        has_reason = item.reason and state is not WorkState.SKIPPED
        return f"{state.value}: {sanitize(item.reason)}" if has_reason else state.value
    held = "paused, " if paused and state is not WorkState.WAITING else ""
    return f"{held}{state.value}{f', {presenter.title}' if presenter.title else ''}"


_WIDTH, _BAR_WIDTH, _DEVICE_WIDTH = 28, 22, 10
_DONE: dict[Stage, str] = {"download": "fetched", "write": "written"}


class Lines(Widget):
    """Lines of text, redrawn only if one changed; the layout changes only if the height does."""

    lines: reactive[tuple[str, ...]] = reactive(())
    n_lines = reactive(0, layout=True)

    def watch_lines(self) -> None:
        self.n_lines = len(self.lines)

    def render(self) -> Text:
        return Text("\n".join(self.lines), no_wrap=True)


_NOW: Mapping[Stage, str] = {"download": "downloading the file", "write": "writing the twin"}
_DETAILED: Collection[Stage] = ("probe", "decode")
"""Stages whose text says more than the state does."""
_MOST_DETAILS = 3


def _phase_lines(live: LiveJob, item: QueueItem, following: QueueItem | None, *, paused: bool) -> list[str]:
    """Return what the job does and what comes next: `loading the model`, `then: decode token by token`."""
    state, presenter, question, now = item.state, presenter_of(item.kind), live.question, item.state.value
    if state.is_over:
        return [now]
    if live.working is not None:
        is_prompt = live.working.stage == "prompt" and live.share is not None
        now = live.working.text if is_prompt and live.working.text else _NOW.get(live.working.stage, now)
    elif state is WorkState.PREPARING:
        now = "checking the machine"
    elif state is WorkState.PROMPT and presenter.has_line and (depths := getattr(live.settings, "depths", ())):
        now = f"warm-up, cache {'up to' if len(depths) > 1 else 'of'} {format_count(max(depths))}"
    if question is not None:
        now = f"{'decoding at' if question.is_proof else 'allocating'} {format_count(question.n_ctx)}"
    if state is WorkState.PREPARING:
        then = "load the model"
    elif state is WorkState.LOADING or (state is WorkState.PROMPT and presenter.has_line and presenter.has_samples):
        then = presenter.measures
    elif following is not None:
        then = f"{following.kind} of {following.subject.quant}"
    else:
        then = ""
    return [f"paused, {now}" if paused else now, shorten(f"then: {then}", _WIDTH) if then else "no other run waits"]


def number_lines(
    live: LiveJob,
    item: QueueItem,
    following: QueueItem | None = None,
    *,
    paused: bool,
    waiting: tuple[float, float, bool] = (0.0, 0.0, True),
) -> list[str]:
    """Return the state of the job, in lines of up to 28 characters: its phase and what comes next (`following` is the
    next in the queue), progress, speed, W and B, and buffers by device.

    `waiting` is `work_waiting` of the queue.
    """
    numbers, state, working, presenter = live.numbers(), item.state, live.working, presenter_of(item.kind)
    lines = _phase_lines(live, item, following, paused=paused)
    if live.others_share >= BUSY_SHARE and not state.is_over:
        lines.append(f"! others {format_percent(live.others_share)} of CPU")
    if (share := live.share) is not None:
        full = round(share * _BAR_WIDTH)
        lines.append(f"{'█' * full}{'░' * (_BAR_WIDTH - full)} {share:.0%}")
    if working is not None and working.is_bytes and working.done is not None:
        done = f"{format_bytes(round(working.done))} of {format_bytes(working.total)}"
        lines.append(f"{done} {_DONE[working.stage]}")
    if (left_s := live.left_s) is not None:
        of = "prompt " if working is not None and working.stage == "prompt" else ""
        lines.append(f"{of}{format_duration_range(*left_s)} left")
    if live.n_total:
        lines.append(f"{format_count(numbers.n_done)} of {format_count(live.n_total)} tokens")
        if state is WorkState.DECODING and presenter.has_line and numbers.left_s is not None:
            *ratios, is_all = waiting
            lines.append(f"{'run ' if following else ''}{format_duration_range(*numbers.left_s)} left")
            if ratios[1]:
                ends = [each + r * (numbers.spent_s + each) for r, each in zip(ratios, numbers.left_s, strict=True)]
                lines.append(f"all {format_duration_range(ends[0], ends[1] if is_all else math.inf)} left")
    if working is not None and working.stage in _DETAILED and working.subject is None:  # else a live view shows it
        lines += textwrap.wrap(sanitize(working.text), _WIDTH)[:_MOST_DETAILS]
    found = None if item.run is None else QuantSummary.of([item.run])
    if numbers.latency is not None and presenter.has_line:
        lines += _latency_lines(numbers, numbers.latency, live.limit, getattr(live.settings, "depths", ()))
    lines += presenter.live_lines(live.plotted(""))
    if found is not None and (context := found.result(MaxctxResult)) is not None:
        lines += _context_lines(context, found.subject.n_ctx_train)
    memory = live.memory if item.run is None else item.run.memory  # a search continues after the first context found
    if memory is not None and memory.n_ctx is not None:
        lines.append(f"n_ctx {format_count(memory.n_ctx)}")
        for one in memory.buffers:
            sizes = one.weight_bytes, one.kv_bytes, one.compute_bytes, one.output_bytes
            for name, n_bytes in zip(("weights", "KV", "compute", "output"), sizes, strict=True):
                if n_bytes:
                    lines.append(f"{name:<8}{format_bytes(n_bytes):>9} {shorten(one.device, _DEVICE_WIDTH)}")
    if live.point:
        lines.append(shorten(live.point, _WIDTH))
    return lines


def _latency_lines(
    numbers: LiveNumbers, latency: LatencySummary, limit: DecodeLimit | None, depths: Collection[int]
) -> list[str]:
    """Return speed, percentiles, and W and B with intervals or bounds and their shares of the bandwidth limit."""
    fit, shares = numbers.fit, list[str]()
    lines = [_with_unit(f"speed {tok_s_text(latency)}", "tok/s")]
    if fit is None and len(depths) == 1:
        lines.append("W, B  need several depths")
    elif fit is None and depths:
        lines.append("W, B  after the last depth")
    elif fit is None and numbers.n_for_line:
        lines.append(f"W, B  from {format_count(numbers.n_for_line)} tokens on")
    elif fit is not None:
        lines.append(_with_unit(f"W     {w_text(fit)}", "tokens/ms"))
        lines.append(_with_unit(f"B     {b_text(fit)}", "ms"))
        if fit.w_tokens_per_ms is not None and limit and limit.w_tokens_per_ms:
            shares.append(f"W {format_percent(fit.w_tokens_per_ms / limit.w_tokens_per_ms)}")
        if fit.b_ms is not None and limit:
            shares.append(f"B {format_percent(limit.b_ms / fit.b_ms)}")
    if not shares and numbers.bandwidth_share is not None:
        shares = [format_percent(numbers.bandwidth_share)]
    lines += [f"bandwidth {', '.join(shares)}"] if shares else []
    if latency.p50_ms is not None:
        lines.append(_with_unit(f"p50   {format_ms(latency.p50_ms)}, p99 {format_ms(latency.p99_ms)}", "ms"))
    return lines


def _with_unit(text: str, unit: str) -> str:
    """Append the unit to a known value if an interval leaves room for it."""
    return f"{text} {unit}" if not text.endswith(UNKNOWN) and len(text) + 1 + len(unit) <= _WIDTH else text


def _context_lines(found: MaxctxResult, n_ctx_train: int | None) -> list[str]:
    """Return the predicted and the found n_ctx as far as they are known."""
    counts = {
        "theory": found.plan.theory_n_ctx,
        "planned": found.plan.planned_n_ctx,
        "works": found.max_n_ctx,
        "does not": found.first_fail_n_ctx,
        "trained": n_ctx_train,
    }
    lines = [f"{name:<8} {format_count(n_ctx):>12}" for name, n_ctx in counts.items() if n_ctx is not None]
    if found.plan.budget_bytes is not None:
        lines.append(f"{'budget':<8} {format_bytes(found.plan.budget_bytes):>12}")
    return ["n_ctx", *lines] if lines else []


_SOME_TOKENS = 16
"""If this many tokens gave no characters, the file has no tokenizer."""


class DecodedText(Widget):
    text = reactive("")
    has_no_text = reactive(False)

    def show(self, text: str, *, n_done: int = 0, is_twin: bool = False) -> None:
        self.text, self.has_no_text = text, is_twin or n_done >= _SOME_TOKENS

    def render(self) -> Text:
        room = max(1, self.size.width * self.size.height)
        if not self.text:
            notice = "no text: this file has no tokenizer"
            return Text(notice if self.has_no_text else "no text yet")
        return Text(sanitize(self.text)[-room:], overflow="fold")


def gauge_lines(reading: MachineReading) -> list[str]:
    lines = [f"CPU {format_percent(reading.cpu_share)}"] if reading.cpu_share is not None else []
    if reading.used_bytes is not None:
        lines.append(f"RAM {format_bytes(reading.used_bytes)} of {format_bytes(reading.total_bytes)}")
    for gpu in reading.gpus:
        lines.append(shorten(f"GPU{gpu.index} {gpu.name}", _WIDTH))
        clocks = [f"{mhz}" for mhz in (gpu.sm_clock_mhz, gpu.memory_clock_mhz) if mhz is not None]
        if clocks:
            lines.append(f"  {' / '.join(clocks)} MHz")
        heat = "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C"
        power = "" if gpu.power_w is None else f"{gpu.power_w:.0f} W"
        if heat or power:
            lines.append(f"  {'  '.join(filter(None, (heat, power)))}")
        if gpu.used_bytes is not None:
            lines.append(f"  {format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)}")
        if gpu.throttle:
            lines.append(shorten(f"  throttled: {', '.join(gpu.throttle)}", _WIDTH))
    return lines


_KINDS = {"alloc": "context", "decode": "decode"}
_LABEL_WIDTH, _LEAST_LINE = 34, 12
_WORKS, _OPEN, _FAILS = "━", "·", "╳"


class BracketPlot(Widget):
    """A line for each real context tried, the newest last."""

    answers: reactive[tuple[tuple[Probe, BracketEnds], ...]] = reactive(())
    """The probes so far, each with the resulting bracket."""
    question: reactive[Question | None] = reactive(None)
    asked_s: reactive[int | None] = reactive(None)
    """Seconds taken so far."""

    def render(self) -> Text:
        scale, *lines = bracket_lines(self.answers, self.question, self.size.width, self.asked_s)
        room = max(1, self.size.height - 1)
        return Text("\n".join([scale, *lines[-room:]]), no_wrap=True)


def bracket_lines(
    answers: Sequence[tuple[Probe, BracketEnds]], question: Question | None, width: int, asked_s: int | None = None
) -> list[str]:
    """Return the scale of n_ctx, a line for each probe of a real context, and the current trial.

    `━` works, `╳` does not, `·` between them is unknown. Dry probes are only counted; cancelled and timed-out ones move
    neither end.
    """
    real = [(probe, ends) for probe, ends in answers if not probe.is_dry]
    tried = [probe.n_ctx for probe, _ in real] + ([question.n_ctx] if question is not None else [])
    n_dry = len(answers) - len(real)
    if not tried:
        return [f"planning with {counted(n_dry, 'dry context')}" if n_dry else "planning"]
    room = max(KV_CELLS, (max(tried) - min(tried)) // 4)
    low, high = max(0, min(tried) - room), max(tried) + room
    n_columns = max(_LEAST_LINE, width - _LABEL_WIDTH - 1)

    def column(n_ctx: int) -> int:
        return min(n_columns - 1, (n_ctx - low) * n_columns // (high - low))

    def bar(ends: BracketEnds) -> str:
        works = 0 if ends.passed is None else column(ends.passed) + 1
        fails = max(
            works, n_columns if ends.failed is None else column(ends.failed)
        )  # nothing is open between adjacent ends
        return _WORKS * works + _OPEN * (fails - works) + _FAILS * (n_columns - fails)

    lines = [f"{'n_ctx':<{_LABEL_WIDTH}} {format_count(low)}{format_count(high):>{n_columns - len(format_count(low))}}"]
    ends = BracketEnds(None, None)
    for probe, ends in real:
        label = f"{_KINDS[probe.kind]:<7} {format_count(probe.n_ctx):>9}"
        if not probe.is_answer:
            lines.append(f"{label} – not known ({probe.outcome.text})")
            continue
        label += f" ✓ works, {format_fixed(probe.seconds, 1)} s" if probe.passed else f" ✗ {probe.outcome.text}"
        lines.append(f"{label[:_LABEL_WIDTH]:<{_LABEL_WIDTH}} {bar(ends)}")
    if question is not None:
        label = f"{_KINDS[question.kind]:<7} {format_count(question.n_ctx):>9} ? asking"
        label += "" if asked_s is None else f" {format_duration(asked_s)}"
        mark = column(question.n_ctx)
        lines.append(f"{label:<{_LABEL_WIDTH}} {bar(ends)[:mark]}?{bar(ends)[mark + 1 :]}")
    found = "none known to work" if ends.passed is None else f"{format_count(ends.passed)} works"
    if ends.failed is not None:
        gap = "" if ends.passed is None else f", {format_count(ends.failed - ends.passed)} between"
        found += f", {format_count(ends.failed)} does not{gap}"
    lines.append(found)
    if question is not None and question.budget_bytes and (question.ends.passed is None or question.is_proof):
        lines.append(f"it may take nearly all of {format_bytes(question.budget_bytes)} of memory")
    return lines
