"""Lists of rows by figures: as many columns as fit, the least important left out first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Generic

from rich.text import Text
from textual.events import Click
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ggbench.show.answer import Table
from ggbench.show.figure import Figure, Row

_MARGIN, _SCROLLBAR = 2, 1


class EndedList(OptionList):
    """Stops at its first and its last option, where Textual's begins again; a changed list keeps the highlight."""

    @property
    def chosen_key(self) -> str | None:
        option = self.highlighted_option
        return None if option is None else option.id

    def change(self, options: Sequence[Option]) -> None:
        """Show other options; the highlight stays on its option or, if that is gone, near its line."""
        chosen, before, top = self.chosen_key, self.highlighted or 0, self.scroll_offset.y
        self.set_options(options)
        self.scroll_to(y=top, animate=False, force=True)
        nearest = min(self.enabled, key=lambda line: abs(line - before), default=None)
        self.highlighted = nearest if (line := self.line_of(chosen)) is None else line

    def line_of(self, key: str | None) -> int | None:
        return next((line for line in self.enabled if key and self.options[line].id == key), None)

    def watch_highlighted(self, highlighted: int | None) -> None:
        """Show also the heading above the first option."""
        super().watch_highlighted(highlighted)
        if highlighted is not None and highlighted == self.enabled[0]:
            self.scroll_to(y=0, animate=False)

    @property
    def enabled(self) -> list[int]:
        """The lines that can be chosen."""
        return [line for line, option in enumerate(self.options) if not option.disabled]

    def action_cursor_up(self) -> None:
        self._move(super().action_cursor_up, -1)

    def action_cursor_down(self) -> None:
        self._move(super().action_cursor_down, 1)

    def _move(self, move: Callable[[], None], way: int) -> None:
        if self.highlighted is None or any((line - self.highlighted) * way > 0 for line in self.enabled):
            move()


class FigureList(EndedList, Generic[Row]):
    """Rows below the headers of their figures; those of a group follow its name."""

    DEFAULT_CSS = """
    FigureList {
        border: none; border-top: blank; padding: 0; background: $background; scrollbar-size-vertical: 1;
        border-title-style: bold; border-title-color: $foreground; border-title-background: $panel;
        text-wrap: nowrap; text-overflow: ellipsis;
        & > .option-list--option-disabled { color: $foreground; }
        & > .option-list--option-highlighted { background: $background; color: $foreground; text-style: underline; }
    }
    FigureList:focus { border: none; border-top: blank; }
    """

    def __init__(self, figures: Sequence[Figure[Row]], *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._figures = figures
        self.rows: dict[str, Row] = {}
        self._texts: dict[str, Text] = {}

    @property
    def chosen(self) -> Row | None:
        """The row at the cursor; None if the list is empty."""
        return self.rows.get(self.chosen_key or "")

    def on_click(self, event: Click) -> None:
        """Move to a clicked row; choose it by another click."""
        event.prevent_default()
        line = event.style.meta.get("option")
        if line is not None and line == self.highlighted:
            self.action_select()
        elif line in self.enabled:
            self.highlighted = line

    @abstractmethod
    def key_of(self, row: Row) -> str:
        """Return the name of a row, which no other has."""

    def margin_of(self, row: Row) -> str:
        """Return two characters before a row, such as its mark."""
        return "  "

    def style_of(self, row: Row) -> str:
        return ""

    def group_of(self, row: Row) -> str:
        """Return the name above a row and its neighbours; empty for none. Printable."""
        return ""

    def listed(self) -> Iterable[Row]:
        """Return the rows to show, in order."""
        return self.rows.values()

    def show(self, rows: Iterable[Row]) -> None:
        self.rows = {self.key_of(row): row for row in rows}
        self.on_resize()

    def on_resize(self) -> None:
        table = Table(self._figures, [*self.rows.values()], style=self.style_of)
        head, *lines = table.lines(max(0, self.size.width - _MARGIN - _SCROLLBAR))
        self.border_title = Text.assemble(" ", head)
        self._texts = dict(zip(self.rows, lines, strict=True))
        self.draw()

    def draw(self) -> None:
        """Show the listed rows with their marks."""
        options = []
        for name, group in groupby(self.listed(), self.group_of):
            if name:
                options.append(Option(Text(name, "bold"), disabled=True))
            keys = ((self.key_of(row), self.margin_of(row)) for row in group)
            options += [Option(Text.assemble(margin, self._texts[key]), id=key) for key, margin in keys]
        self.change(options)
