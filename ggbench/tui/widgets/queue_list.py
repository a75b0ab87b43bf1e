"""The queue, a line for each job: a glyph, its letter in the plot, and its state or result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList

from ggbench.engines.endings import Outcome
from ggbench.show.names import distinct_by_kv, model_names
from ggbench.show.presenter import presenter_of
from ggbench.text import plain, shorten_middle
from ggbench.tui.run_queue import JobState, QueueItem

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
    """Every job; the screen shows the highlighted one's reason. Only changed lines are redrawn.

    The highlight follows the running job until it is moved to another, and again once it is back on the running one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: list[str] = []
        self._followed: int | None = None
        """Index of the job that the highlight was put on."""

    def show(self, items: Sequence[QueueItem], letters: Mapping[int, str], *, paused: bool) -> None:
        """Update the lines; `letters` are those of the plot by item id."""
        lines = queue_lines(items, letters, paused=paused)
        for index, line in enumerate(lines):
            if index >= len(self._shown):
                self.add_option(Text(line))
            elif line != self._shown[index]:
                self.replace_option_prompt_at_index(index, Text(line))
        self._shown = lines
        current = next((index for index, item in enumerate(items) if item.state.is_at_work), None)
        if current is not None and self.highlighted in (None, self._followed):
            self._followed = self.highlighted = current  # which scrolls to it
        elif current == self.highlighted:
            self._followed = current


def queue_lines(items: Sequence[QueueItem], letters: Mapping[int, str], *, paused: bool) -> list[str]:
    """Return `✓ a qwen1.5-0.5b q8_0  61.2 tok/s  W 205 ±4 tokens/ms  B 10.92 ±0.08 ms`, or the reason of a failure."""
    names = _names(items)
    width = max(map(len, names), default=0)
    lines = []
    for item, name in zip(items, names, strict=True):
        glyph = _GLYPHS.get(item.state, _PAUSED if paused else _RUNNING)
        lines.append(f"{glyph} {letters.get(item.id, ' ')} {name:<{width}}  {_state_text(item, paused=paused)}")
    return lines


def _names(items: Sequence[QueueItem]) -> list[str]:
    """Return model, quant and KV types of each; only the model is truncated, and only if no two become the same."""
    subjects = [item.subject for item in items]
    models, quants = model_names(subjects), [plain(subject.quant) for subject in subjects]
    whole = [f"{model} {quant}" for model, quant in zip(models, quants, strict=True)]
    short = [
        f"{shorten_middle(model, max(8, _NAME_WIDTH - len(quant)))} {quant}"
        for model, quant in zip(models, quants, strict=True)
    ]
    shown = short if len(set(short)) == len(set(whole)) else whole
    return list(distinct_by_kv(shown, [item.setup for item in items]))


def _state_text(item: QueueItem, *, paused: bool) -> str:
    state, presenter = item.state, presenter_of(item.kind)
    if state is JobState.FAILED:
        words, reason = item.run.outcome.text if item.run else "", plain(item.reason)
        # "failed: ..." adds nothing to the glyph, and the reason of out of memory starts with the same words.
        return reason if words in ("", Outcome.FAILED.text) or reason.startswith(words) else f"{words}: {reason}"
    if state is JobState.DONE and item.run is not None:
        return plain(presenter.headline(item.run))
    if state.is_left and item.run is not None and (found := presenter.so_far(item.run)):
        return f"{state.value}, {plain(found)}"
    if state is JobState.SKIPPED:
        return state.value
    if state.is_over:
        return f"{state.value}: {plain(item.reason)}" if item.reason else state.value
    held = "paused, " if paused and state is not JobState.WAITING else ""
    return f"{held}{state.value}{f', {presenter.title}' if presenter.title else ''}"
