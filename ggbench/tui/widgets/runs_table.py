"""The table of stored runs by model, with marks and a filter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual.binding import Binding, BindingType

from ggbench.show.figure import Figure, member
from ggbench.show.listed_runs import LISTED, ListedRun
from ggbench.text import has_words, shorten_middle
from ggbench.tui.widgets.bars import key_links
from ggbench.tui.widgets.tables import FigureTable
from ggbench.units import counted, format_count

_MODEL_WIDTH = 21
_LISTED = {figure.key: figure for figure in LISTED}
_FIGURES: tuple[Figure[ListedRun], ...] = (
    replace(_LISTED["run_id"], header="run"),
    replace(_LISTED["model"], form=lambda name: shorten_middle(name, _MODEL_WIDTH)),
    _LISTED["quant"],
    _LISTED["kind"],
    _LISTED["tok_s"],
    _LISTED["b_ms"],
    _LISTED["w_tokens_per_ms"],
    _LISTED["answer"],
)
_SETTINGS: tuple[Figure[ListedRun], ...] = (
    member("n_gen", "tokens", path="run.n_gen", priority=4),
    member("threads", "-t", path="run.head.setup.threads", priority=4),
    member("decodes", "depth", lambda decodes: _starts(decodes), "run.head.settings.decodes", priority=4),
    member(
        "cache_types",
        "KV",
        lambda types: "/".join(dict.fromkeys(types)),
        "run.head.setup.cache_types",
        priority=5,
    ),
    member("program", "engine", path="run.head.setup.program", priority=7),
    replace(_LISTED["started_at"], priority=8),
    replace(_LISTED["provenance"], priority=9),
)


def _starts(decodes: Sequence[tuple[int, int]]) -> str:
    """Return the tokens in the cache before each decode."""
    return ", ".join(dict.fromkeys(format_count(start) for start, _ in decodes))


class RunsTable(FigureTable[ListedRun]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open", tooltip="Show all details of the chosen run"),
        Binding("space", "mark", "Mark", tooltip="Mark or unmark the run"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.border_subtitle = key_links(
            "⏎ open · ␣ mark · c compare · b again · s report · S export · d delete"
        )
        self.runs: Sequence[ListedRun] = ()
        self.marks: frozenset[int] = frozenset()
        """Ids of the marked runs, including hidden ones."""

    @property
    def figures(self) -> Sequence[Figure[ListedRun]]:
        """Show of the settings those in which the shown runs differ."""
        rows = self.shown.values()
        return [*_FIGURES, *(each for each in _SETTINGS if len({*map(each.text, rows)}) > 1)]

    def key_of(self, row: ListedRun) -> str:
        return str(row.run_id)

    def marks_of(self, row: ListedRun) -> str:
        return "●" if row.run_id in self.marks else ""

    def style_of(self, row: ListedRun) -> str:
        return "" if row.is_completed else "dim"

    def filter(self, words: str) -> None:
        """Show the runs that match; drawing the same ones again would hold up a key."""
        found = [run for run in self.runs if has_words(run.searched, words)]
        if found != [*self.shown.values()]:
            self.show(found)
        self.mark(self.marks)

    def those(self, run_ids: Collection[int | None]) -> Sequence[ListedRun]:
        """Return these runs, the oldest first, including hidden ones."""
        return sorted((run for run in self.runs if run.run_id in run_ids), key=lambda run: run.run_id)

    def mark(self, run_ids: Iterable[int]) -> None:
        """Mark these runs only."""
        before, self.marks = self.marks, frozenset(run_ids)
        for key in self.shown.keys() & map(str, before ^ self.marks):
            self.draw_marks(key)
        self.border_title = Text(self._summary)

    @property
    def _summary(self) -> str:
        """Return `2 of 4 runs, ● 1 marked`."""
        n_shown, n_marked = len(self.shown), len(self.marks)
        runs = counted(len(self.runs), "run")
        shown = runs if n_shown == len(self.runs) else f"{format_count(n_shown)} of {runs}"
        return f"{shown}, ● {format_count(n_marked)} marked" if n_marked else shown

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.mark(self.marks ^ {self.chosen.run_id})
