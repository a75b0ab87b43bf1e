"""A search for the largest context as it closes in: a line for each n_ctx that was tried."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.experiments.maxctx.record import BracketEnds, Probe, Question
from ggbench.tui.live_job import Answer
from ggbench.units import KV_CELLS, format_bytes, format_count, format_duration, format_fixed

_KINDS = {"alloc": "context", "decode": "decode"}
_LABEL_WIDTH, _LEAST_LINE = 34, 12
_WORKS, _OPEN, _FAILS = "━", "·", "╳"


class BracketPlot(Widget):
    """One line for each real context that was tried, the newest last."""

    answers: reactive[tuple[Answer, ...]] = reactive(())
    """The answers so far."""
    question: reactive[Question | None] = reactive(None)
    """What is being tried."""
    asked_s: reactive[int | None] = reactive(None)
    """For how many seconds it has been tried."""

    def render(self) -> Text:
        """As many of the last lines as there is room for, below the scale."""
        scale, *lines = bracket_lines(self.answers, self.question, self.size.width, self.asked_s)
        room = max(1, self.size.height - 1)
        return Text("\n".join([scale, *lines[-room:]]), no_wrap=True)


def bracket_lines(
    answers: Sequence[Answer], question: Question | None, width: int, asked_s: int | None = None
) -> list[str]:
    """Return the scale of n_ctx, a line for each probe of a real context, and the open question.

    `━` works, `╳` does not, `·` between them is not known yet. Dry probes are counted only, and one that was cancelled
    or took too long moves neither end.
    """
    real = [answer for answer in answers if not answer.probe.is_dry]
    tried = [answer.probe.n_ctx for answer in real] + ([question.n_ctx] if question is not None else [])
    n_dry = len(answers) - len(real)
    if not tried:
        return [f"planning with {n_dry} dry {'context' if n_dry == 1 else 'contexts'}" if n_dry else "planning"]
    room = max(KV_CELLS, (max(tried) - min(tried)) // 4)
    low, high = max(0, min(tried) - room), max(tried) + room
    n_columns = max(_LEAST_LINE, width - _LABEL_WIDTH - 1)
    limits = f"{format_count(low)}", f"{format_count(high)}"
    lines = [f"{'n_ctx':<{_LABEL_WIDTH}} {limits[0]}{limits[1]:>{n_columns - len(limits[0])}}"]
    for answer in real:
        label = _label(answer.probe)
        if answer.probe.is_answer:
            label = f"{label[:_LABEL_WIDTH]:<{_LABEL_WIDTH}} {_bar(answer.ends, low, high, n_columns)}"
        lines.append(label)
    ends = real[-1].ends if real else BracketEnds(None, None)
    if question is not None:
        label = f"{_KINDS[question.kind]:<7} {format_count(question.n_ctx):>9} ? asking"
        label += "" if asked_s is None else f" {format_duration(asked_s)}"
        mark = _column(question.n_ctx, low, high, n_columns)
        bar = _bar(ends, low, high, n_columns)
        lines.append(f"{label:<{_LABEL_WIDTH}} {bar[:mark]}?{bar[mark + 1 :]}")
    lines.append(_gap(ends))
    if question is not None and question.budget_bytes and (question.ends.passed is None or question.is_proof):
        lines.append(f"it may take nearly all of {format_bytes(question.budget_bytes)} of memory")
    return lines


def _label(probe: Probe) -> str:
    """`context     8,192 ✓ works, 0.3 s`."""
    tried = f"{_KINDS[probe.kind]:<7} {format_count(probe.n_ctx):>9}"
    if not probe.is_answer:
        return f"{tried} – not known ({probe.outcome.text})"
    return f"{tried} ✓ works, {format_fixed(probe.seconds, 1)} s" if probe.passed else f"{tried} ✗ {probe.outcome.text}"


def _bar(ends: BracketEnds, low: int, high: int, n_columns: int) -> str:
    """Return a bar that works up to one end and fails from the other on; between neighbours no column is open."""
    works = 0 if ends.passed is None else _column(ends.passed, low, high, n_columns) + 1
    fails = n_columns if ends.failed is None else _column(ends.failed, low, high, n_columns)
    fails = max(fails, works)
    return _WORKS * works + _OPEN * (fails - works) + _FAILS * (n_columns - fails)


def _column(n_ctx: int, low: int, high: int, n_columns: int) -> int:
    return min(n_columns - 1, (n_ctx - low) * n_columns // (high - low))


def _gap(ends: BracketEnds) -> str:
    passed, failed = ends.passed, ends.failed
    works = "none known to work" if passed is None else f"{format_count(passed)} works"
    if failed is None:
        return works
    gap = "" if passed is None else f", {format_count(failed - passed)} between"
    return f"{works}, {format_count(failed)} does not{gap}"
