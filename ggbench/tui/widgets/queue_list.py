"""The queue, a line for each job: a glyph, its letter in the plot, and its state or result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList

from ggbench.experiments.bracket_text import ending
from ggbench.plain import plain, shorten
from ggbench.report.columns import b_text, outcome_words, w_text
from ggbench.tui.run_queue import JobState, QueueItem
from ggbench.units import format_number

_GLYPHS = {
    JobState.WAITING: "·",
    JobState.DONE: "✓",
    JobState.FAILED: "✗",
    JobState.SKIPPED: "–",
    JobState.CANCELLED: "–",
}
_RUNNING, _PAUSED = "▶", "‖"
_NAME_WIDTH = 34


class QueueList(OptionList):
    """Every job; the screen shows the highlighted one's reason. Only changed lines are redrawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: list[str] = []

    def show(self, items: Sequence[QueueItem], letters: Mapping[int, str], *, paused: bool) -> None:
        """Update the lines; `letters` are those of the plot by item id."""
        width = max((len(_name(item)) for item in items), default=0)
        lines = [describe(item, letters.get(item.id, " "), width, paused=paused) for item in items]
        for index, line in enumerate(lines):
            if index >= len(self._shown):
                self.add_option(Text(line))
            elif line != self._shown[index]:
                self.replace_option_prompt_at_index(index, Text(line))
        self._shown = lines


def describe(item: QueueItem, letter: str, name_width: int, *, paused: bool) -> str:
    """Return `✓ a qwen1.5-0.5b q8_0  W 205 ±4, B 10.92 ±0.08 ms, 61.2 tok/s`, or the reason of a failure."""
    glyph = _GLYPHS.get(item.state, _PAUSED if paused else _RUNNING)
    return f"{glyph} {letter} {_name(item):<{name_width}}  {_state_text(item, paused=paused)}"


def _name(item: QueueItem) -> str:
    """Return model and quant, a path by its file name; the quant is never truncated."""
    model = Path(item.model).name if item.model.startswith(("/", "~", ".")) else item.model
    return f"{shorten(model, max(8, _NAME_WIDTH - len(item.quant)))} {plain(item.quant)}"


def _state_text(item: QueueItem, *, paused: bool) -> str:
    if item.state is JobState.FAILED:
        outcome = item.row.outcome if item.row else item.certificate.outcome if item.certificate else None
        # "failed: ..." adds nothing to the glyph, and the reason of out of memory starts with the same words.
        words = outcome_words(outcome) if outcome else ""
        reason = plain(item.reason)
        return reason if not words or words == "failed" or reason.startswith(words) else f"{words}: {reason}"
    if item.certificate is not None:
        found = item.certificate
        known = not item.state.is_left or found.max_n_ctx is not None
        return _prefix(item) + plain(ending(found)) if known else f"{item.state.value}, no working n_ctx found yet"
    if item.row is not None and item.row.fit is not None:
        return _prefix(item) + _measured(item.row)
    if item.state is JobState.SKIPPED:
        return item.state.value
    if item.state.is_over:
        return f"{item.state.value}: {plain(item.reason)}" if item.reason else item.state.value
    search = ", maximum n_ctx" if item.kind == "maxctx" else ""
    return f"{'paused, ' if paused and item.state is not JobState.WAITING else ''}{item.state.value}{search}"


def _prefix(item: QueueItem) -> str:
    return f"{item.state.value}, " if item.state.is_left else ""


def _measured(row: Row) -> str:
    speed = f", {format_number(row.latency.tok_s)} tok/s" if row.latency else ""
    return f"W {w_text(row.fit)}, B {b_text(row.fit)} ms{speed}"
