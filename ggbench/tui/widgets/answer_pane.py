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
        Binding("w", "more", "More", tooltip="Show or hide sources, rules and all details of the answer")
    ]

    def __init__(self, answer: Answer) -> None:
        super().__init__(classes="panel")
        self.answer, self._has_more = answer, False

    def compose(self) -> ComposeResult:
        yield Static(self._shown)

    @property
    def _shown(self) -> RenderableType:
        """Return the answer, with its command on as many lines as it needs; the frame names the key for the rest."""
        shown = self.answer.rich(why=self._has_more).renderables
        return Group(*(Text(str(each.__rich__())) if isinstance(each, Command) else each for each in shown))

    def show(self, answer: Answer) -> None:
        self.answer = answer
        self.query_one(Static).update(self._shown)

    def action_more(self) -> None:
        """Show what is behind the answer, from its first line, or the answer alone."""
        end = self.query_one(Static).size.height
        self._has_more = not self._has_more
        self.screen.set_class(self._has_more, "-more")
        self.show(self.answer)
        self.call_after_refresh(self.scroll_to, y=self._has_more * end, animate=False)
