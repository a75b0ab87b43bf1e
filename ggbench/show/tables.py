"""Tables of plain text: headers with the unit below, right-aligned numbers, no wider than the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ggbench.models.subject import Subject
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.names import model_names
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.show.answer import Part

TWIN_CAPTION = "twin: the true shape and types, no trained weights; speed and memory are real, the text is not"

GAP = 2

_WRAPPED_WIDTH = 24
"""Minimum width of a wrapping column, in characters."""

_NAME_WIDTH = 14
"""Width of a column of wrapped names with its gap, in characters."""

Facts = Sequence[tuple[str, str]]


class CaptionedTable(Table):
    """A table with lines of text below that wrap at the terminal's width."""

    lines_below: tuple[Text, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from super().__rich_console__(console, options)
        yield from self.lines_below


class AsWide:
    """A table that is made for the width of its container, in characters."""

    def __init__(self, made: Callable[[int], RenderableType]) -> None:
        self._made = made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._made(options.max_width)


def as_part(renderable: RenderableType) -> Part:
    """Return an old table as a part of an answer, until its figures replace it."""
    return cast("Part", renderable)


def new_table(
    title: str | None = None, columns: Mapping[str, str] | None = None, rows: Iterable[Sequence[str]] = ()
) -> CaptionedTable:
    """Return a table with a rule only under the header, readable without colour.

    `columns` are headers, with the unit after a line break, and their alignment as in `add_column`.
    """
    table = CaptionedTable(
        title=Text(sanitize(title), style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        header_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
    )
    for header, align in (columns or {}).items():
        add_column(table, header, align)
    for texts in rows:
        table.add_row(*map(Text, texts))
    return table


def add_column(table: Table, header: str, align: str = "left") -> None:
    """Add a column aligned `left` or `right`, or one that may `wrap`; truncated texts end in an ellipsis."""
    justify: Literal["left", "right"] = "right" if align == "right" else "left"
    wraps = align == "wrap"
    table.add_column(Text(header), justify=justify, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")


def twin_caption(subjects: Iterable[Subject]) -> str:
    return TWIN_CAPTION if any(subject.source == "twin" for subject in subjects) else ""


def facts_table(title: str, facts: Facts) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.title, table.title_justify = Text(sanitize(title), style="bold"), "left"
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value:
            table.add_row(Text(f"  {name}"), Text(sanitize(value)))
    return table


def spaced(parts: Sequence[RenderableType]) -> Group:
    """Return the parts with a blank line after each but the last."""
    return Group(*(shown for part in parts[:-1] for shown in (part, Text())), *parts[-1:])


class Cells(msgspec.Struct, frozen=True):
    header: str
    texts: tuple[str, ...]
    unit: str = ""
    right_aligned: bool = False
    priority: int = ESSENTIAL
    """The highest is dropped first; an `ESSENTIAL` column only if the table is otherwise still too wide."""
    is_note: bool = False
    """Whether the texts are notes on their rows."""
    is_name: bool = False
    """Whether a text is clear without a header."""
    stays: bool = False
    """Whether it stays in the table even if every row has the same text."""
    wraps: bool = False
    """Whether its texts may take several lines."""

    @property
    def is_empty(self) -> bool:
        return all(text in ("", UNKNOWN) for text in self.texts)

    @property
    def may_move(self) -> bool:
        """Whether it may be shown below the table: notes, and texts common to all rows."""
        is_shared = len(self.texts) > 1 and len(set(self.texts)) == 1
        return not self.stays and (self.is_note or is_shared)

    def align(self, *, wraps_names: bool) -> str:
        if self.is_note or self.wraps or (self.is_name and wraps_names):
            return "wrap"
        return "right" if self.right_aligned else "left"

    @property
    def width(self) -> int:
        """Return the column's width on the screen, with the gap to the next; the minimum if it wraps."""
        widest = max(map(cell_len, (self.header, self.unit, *self.texts)))
        return (min(widest, _WRAPPED_WIDTH) if self.wraps else widest) + GAP


def left(
    header: str,
    texts: Iterable[str],
    unit: str = "",
    priority: int = ESSENTIAL,
    *,
    stays: bool = False,
    wraps: bool = False,
) -> Cells:
    return Cells(header, tuple(map(sanitize, texts)), unit, priority=priority, stays=stays, wraps=wraps)


def names(header: str, texts: Iterable[str], priority: int = ESSENTIAL) -> Cells:
    return Cells(header, tuple(map(sanitize, texts)), priority=priority, is_name=True)


def row_names(subjects: Sequence[Subject]) -> list[Cells]:
    """Return the columns that distinguish rows: the quant, preceded by the model unless all are the same."""
    models, quants = model_names(subjects), names("quant", (subject.quant for subject in subjects))
    return [quants] if len(set(models)) == 1 else [names("model", models), quants]


def right(
    header: str, texts: Iterable[str], unit: str = "", priority: int = ESSENTIAL, *, stays: bool = False
) -> Cells:
    return Cells(header, tuple(texts), unit, right_aligned=True, priority=priority, stays=stays)


def notes(texts: Iterable[str]) -> Cells:
    return Cells("note", tuple(map(sanitize, texts)), is_note=True)


def fitted_table(
    cells: Sequence[Cells],
    *,
    labels: Sequence[str] | None = None,
    dim: Sequence[bool] = (),
    title: str | None = None,
    width: int | None = None,
    caption: str = "",
) -> Table:
    """Return a table no wider than `width` characters, with lines of text below; None keeps every column.

    If it is too wide, notes move below the table under their row's label, then texts common to all rows; then columns
    are dropped, as the caption says, and long names wrap. Labels are the first column's texts unless given.
    """
    shown = [each for each in cells if not (each.is_note and each.is_empty)]
    limit = math.inf if width is None else width
    kept, below, left_out = _fit(shown, limit)
    table = new_table(title)
    wraps_names = _width(kept) > limit
    for each in kept:
        add_column(table, f"{each.header}\n{each.unit}".rstrip(), each.align(wraps_names=wraps_names))
    for index in range(len(cells[0].texts)):
        table.add_row(*(Text(each.texts[index]) for each in kept), style="dim" if dim and dim[index] else "")
    lines = _below(below, cells[0].texts if labels is None else labels)
    if left_out:
        lines.append(f"omitted for width: {', '.join(left_out)}; --json has them all")
    table.lines_below = tuple(map(Text, filter(None, (*lines, caption))))
    return table


def _below(moved: Sequence[Cells], labels: Sequence[str]) -> list[str]:
    """Return the texts common to all rows in a line, then each note with the rows that have it."""
    facts = []
    said: dict[str, list[str]] = {}
    for each in moved:
        if each.is_note:
            for label, text in zip(labels, each.texts, strict=True):
                said.setdefault(text, []).append(label)
        elif not each.is_empty:
            facts.append(each.texts[0] if each.is_name else f"{each.header} {each.texts[0]}")
    lines = [f"all rows: {', '.join(facts)}"] if facts else []
    return lines + [f"{'; '.join(about)}: {text}" for text, about in said.items() if text]


def _width(cells: Iterable[Cells], *, wraps_names: bool = False) -> int:
    """Return the width of a table with these columns, with names in full or at their narrowest."""
    return (
        sum(min(each.width, _NAME_WIDTH) if wraps_names and each.is_name else each.width for each in cells)
        - GAP
    )


def _fit(cells: Sequence[Cells], width: float) -> tuple[list[Cells], list[Cells], dict[str, None]]:
    """Return the columns kept in the table and those shown below it, each in order, and the headers of the others."""
    kept = list(cells)
    by_importance = sorted(cells, key=lambda each: (not each.is_note, -each.priority))

    def drop(columns: Iterable[Cells], *, wraps_names: bool = False) -> None:
        for each in columns:
            if _width(kept, wraps_names=wraps_names) > width and each in kept:
                kept.remove(each)

    drop(each for each in by_importance if each.may_move)
    below = [each for each in cells if each not in kept]
    drop(each for each in by_importance if each.priority > ESSENTIAL)
    drop((each for each in reversed(cells[1:]) if not (each.is_name or each.wraps)), wraps_names=True)
    return kept, below, dict.fromkeys(each.header for each in cells if each not in (*kept, *below))
