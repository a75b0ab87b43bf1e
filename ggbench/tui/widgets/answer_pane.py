"""An answer as the commands print it; a key shows what is behind it."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from ggbench.show.answer import Answer, Command


class AnswerPane(VerticalScroll, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "why", "Why", tooltip="Show or hide sources, rules and all details of the answer")
    ]

    def __init__(self, answer: Answer, *, why: bool = False) -> None:
        super().__init__(classes="panel")
        self.answer, self._why = answer, why

    def compose(self) -> ComposeResult:
        yield Static(self._shown)

    @property
    def _shown(self) -> RenderableType:
        """Return the answer, with its command on as many lines as it needs; the footer names the key for the rest."""
        shown = (self.answer if self._why else self.answer.front).rich(why=True).renderables
        return Group(*(Text(str(each.__rich__())) if isinstance(each, Command) else each for each in shown))

    def show(self, answer: Answer) -> None:
        self.answer = answer
        self.query_one(Static).update(self._shown)

    def action_why(self) -> None:
        self._why = not self._why
        self.screen.set_class(self._why, "-why")
        self.show(self.answer)
