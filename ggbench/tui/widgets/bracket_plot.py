"""A search for the largest context as it closes in: a line of n_ctx for each question, what works and what does not."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widget import Widget

from ggbench.experiments.search_progress import ProbeStarted
from ggbench.records.context import Probe
from ggbench.records.setup import KV_CELLS
from ggbench.report.columns import outcome_words
from ggbench.units import format_bytes, format_count, format_duration, format_fixed

_KINDS = {"alloc": "context", "decode": "decode"}
_LABEL_WIDTH, _LEAST_LINE = 34, 12
_WORKS, _OPEN, _FAILS = "━", "·", "╳"


class BracketPlot(Widget):
    """One line for each real context that was asked for, the newest last."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._probes: tuple[Probe, ...] = ()
        self._asking: ProbeStarted | None = None
        self._asked_s: int | None = None

    def show(self, probes: Sequence[Probe], asking: ProbeStarted | None, asked_s: int | None = None) -> None:
        """The answers so far, and what is being asked for how many seconds."""
        if (tuple(probes), asking, asked_s) != (self._probes, self._asking, self._asked_s):
            self._probes, self._asking, self._asked_s = tuple(probes), asking, asked_s
            self.refresh()

    def render(self) -> Text:
        """As many of the last lines as there is room for, below the scale."""
        scale, *lines = bracket_lines(self._probes, self._asking, self.size.width, self._asked_s)
        room = max(1, self.size.height - 1)
        return Text("\n".join([scale, *lines[-room:]]), no_wrap=True)


def bracket_lines(
    probes: Sequence[Probe], asking: ProbeStarted | None, width: int, asked_s: int | None = None
) -> list[str]:
    """The scale of n_ctx, a line for each probe of a real context with the bracket after it, and the open question.

    `━` works, `╳` does not, `·` between them is not known yet. Dry probes are told as a number, and one that was
    cancelled or took too long moves neither end.
    """
    real = [probe for probe in probes if probe.kind != "dry"]
    asked = [probe.n_ctx for probe in real] + ([asking.n_ctx] if asking is not None else [])
    n_dry = len(probes) - len(real)
    if not asked:
        return [f"planning with {n_dry} dry {'context' if n_dry == 1 else 'contexts'}" if n_dry else "planning"]
    room = max(KV_CELLS, (max(asked) - min(asked)) // 4)
    low, high = max(0, min(asked) - room), max(asked) + room
    n_columns = max(_LEAST_LINE, width - _LABEL_WIDTH - 1)
    ends = f"{format_count(low)}", f"{format_count(high)}"
    scale = f"{'n_ctx':<{_LABEL_WIDTH}} {ends[0]}{ends[1]:>{n_columns - len(ends[0])}}"
    lines = []
    passed: int | None = None
    failed: int | None = None
    for probe in real:
        asked_for = f"{_KINDS[probe.kind]:<7} {format_count(probe.n_ctx):>9}"
        if not probe.is_answer:
            lines.append(f"{asked_for} – not known ({outcome_words(probe.outcome)})")
            continue
        if probe.passed:
            passed = probe.n_ctx if passed is None else max(passed, probe.n_ctx)
        else:
            failed = probe.n_ctx if failed is None else min(failed, probe.n_ctx)
            if passed is not None and passed >= failed:
                passed = None  # a decode failed where the context could be made: what works is asked again
        words = f"✓ works, {format_fixed(probe.seconds, 1)} s" if probe.passed else f"✗ {outcome_words(probe.outcome)}"
        label = f"{asked_for} {words}"
        lines.append(f"{label[:_LABEL_WIDTH]:<{_LABEL_WIDTH}} {_bar(passed, failed, low, high, n_columns)}")
    if asking is not None:
        label = f"{_KINDS[asking.kind]:<7} {format_count(asking.n_ctx):>9} ? asking"
        label += "" if asked_s is None else f" {format_duration(asked_s)}"
        mark = _column(asking.n_ctx, low, high, n_columns)
        bar = _bar(passed, failed, low, high, n_columns)
        lines.append(f"{label:<{_LABEL_WIDTH}} {bar[:mark]}?{bar[mark + 1 :]}")
    lines.append(_gap(passed, failed))
    if asking is not None and asking.budget_bytes and (asking.passed is None or asking.kind == "decode"):
        lines.append(f"it may take nearly all of {format_bytes(asking.budget_bytes)} of memory")
    return [scale, *lines]


def _bar(passed: int | None, failed: int | None, low: int, high: int, n_columns: int) -> str:
    """Works up to the one, fails from the other on; between neighbours no column is left open."""
    works = 0 if passed is None else _column(passed, low, high, n_columns) + 1
    fails = n_columns if failed is None else _column(failed, low, high, n_columns)
    fails = max(fails, works)
    return _WORKS * works + _OPEN * (fails - works) + _FAILS * (n_columns - fails)


def _column(n_ctx: int, low: int, high: int, n_columns: int) -> int:
    return min(n_columns - 1, (n_ctx - low) * n_columns // (high - low))


def _gap(passed: int | None, failed: int | None) -> str:
    works = "none known to work" if passed is None else f"{format_count(passed)} works"
    if failed is None:
        return works
    gap = "" if passed is None else f", {format_count(failed - passed)} between"
    return f"{works}, {format_count(failed)} does not{gap}"
