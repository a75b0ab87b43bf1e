"""The list of stored runs by model, with marks and a filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from ggbench.show.listed_runs import LISTED, ListedRun
from ggbench.text import has_words
from ggbench.tui.stored_runs import by_model
from ggbench.tui.widgets.figure_list import FigureList
from ggbench.units import counted, format_count


class RunsTable(FigureList[ListedRun]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Open", tooltip="Show all details of the chosen run"),
        Binding("space", "mark", "Mark", key_display="␣", tooltip="Mark or unmark the run"),
    ]

    class Changed(Message):
        """A run was marked or unmarked."""

    def __init__(self, *, id: str) -> None:
        super().__init__([figure for figure in LISTED if figure.key != "model"], id=id)  # which is above
        self.words = ""
        """The filter."""
        self.marks: frozenset[int] = frozenset()
        """Ids of the marked runs, including hidden ones."""

    def key_of(self, row: ListedRun) -> str:
        return str(row.run_id)

    def group_of(self, row: ListedRun) -> str:
        return row.model

    def margin_of(self, row: ListedRun) -> str:
        return "● " if row.run_id in self.marks else "  "

    def style_of(self, row: ListedRun) -> str:
        return "" if row.is_completed else "dim"

    def listed(self) -> list[ListedRun]:
        """Return the runs that match the filter."""
        return [run for run in self.rows.values() if has_words(run.searched, self.words)]

    def show(self, rows: Iterable[ListedRun]) -> None:
        super().show(by_model(rows))
        self.mark(self.marks & {run.run_id for run in self.rows.values()})

    @property
    def marked(self) -> Sequence[ListedRun]:
        """The marked runs in the order of the list, including hidden ones."""
        return [run for run in self.rows.values() if run.run_id in self.marks]

    @property
    def summary(self) -> str:
        """Return `2 of 4 runs, ● 1 marked`; empty without runs."""
        n_shown, n_marked = len(self.listed()), len(self.marks)
        runs = counted(len(self.rows), "run") if self.rows else ""
        shown = runs if n_shown == len(self.rows) else f"{format_count(n_shown)} of {runs}"
        return f"{shown}, ● {format_count(n_marked)} marked" if n_marked else shown

    def mark(self, run_ids: Iterable[int]) -> None:
        """Mark these runs only."""
        self.marks = frozenset(run_ids)
        self.draw()
        self.post_message(self.Changed())

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.mark(self.marks ^ {self.chosen.run_id})
