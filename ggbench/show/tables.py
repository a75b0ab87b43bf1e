"""Tables of plain text: headers with the unit below, right-aligned numbers, no wider than the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.models.subject import Subject
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.names import model_names
from ggbench.text import sanitize

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
    # Padding would cut lines that must stay whole
    padded = (
        Group(part, Text()) if isinstance(part, Text) and part.no_wrap else Padding(part, (0, 0, 1, 0))
        for part in parts[:-1]
    )
    return Group(*padded, *parts[-1:])


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
    def is_shared(self) -> bool:
        return len(self.texts) > 1 and len(set(self.texts)) == 1

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
    dim: Sequence[bool] | None = None,
    title: str | None = None,
    width: int | None = None,
    caption: str = "",
    groups: Sequence[str] = (),
) -> Table:
    """Return a table no wider than `width` characters, with lines of text below; None keeps every column.

    If it is too wide, notes move below the table under their row's label, then texts common to all rows; then columns
    are dropped, as the caption says, and long names wrap. Labels are the first column's texts unless given. A blank
    line separates rows of different `groups`.
    """
    labels = cells[0].texts if labels is None else labels
    kept, below, left_out = _fit([each for each in cells if not (each.is_note and each.is_empty)], width)
    is_tight = width is not None and _width(kept) > width
    table = new_table(title)
    for each in kept:
        wraps = each.is_note or each.wraps or (each.is_name and is_tight)
        align = "wrap" if wraps else "right" if each.right_aligned else "left"
        add_column(table, f"{each.header}\n{each.unit}" if each.unit else each.header, align)
    for index, is_dim in enumerate(dim or [False] * len(labels)):
        table.add_row(*(Text(each.texts[index]) for each in kept), style="dim" if is_dim else "")
        if groups and groups[index] != groups[min(index + 1, len(groups) - 1)]:
            table.add_section()
    headers = [each.header for each in cells]

    def title_of(each: Cells) -> str:
        return f"{each.header} {each.unit}" if headers.count(each.header) > 1 else each.header

    shared = [each for each in below if not each.is_note and not each.is_empty]
    facts = [each.texts[0] if each.is_name else f"{title_of(each)} {each.texts[0]}" for each in shared]
    lines = [f"all rows: {', '.join(facts)}"] if facts else []
    said: dict[str, list[str]] = {}  # a note on several rows appears once: `q4_0, q2_k: some matrices are repacked`
    for each in below:
        if each.is_note:
            for label, text in zip(labels, each.texts, strict=True):
                said.setdefault(text, []).append(label)
    gap = "; " if any("," in label for label in labels) else ", "
    lines += [f"{gap.join(about)}: {text}" for text, about in said.items() if text]
    if left_out:
        lines.append(f"omitted for width: {', '.join(map(title_of, left_out))}; --json has them all")
    table.lines_below = tuple(map(Text, filter(None, (*lines, caption))))
    return table


def _width(cells: Iterable[Cells], *, wraps_names: bool = False) -> int:
    """Return the width of a table with these columns, with names in full or at their narrowest."""
    return sum(min(each.width, _NAME_WIDTH) if wraps_names and each.is_name else each.width for each in cells) - GAP


def _fit(cells: Sequence[Cells], width: int | None) -> tuple[list[Cells], list[Cells], list[Cells]]:
    """Return the columns kept in the table, those shown below it, and those dropped, each in order."""
    kept, below = list(cells), []

    def is_too_wide(*, wraps_names: bool = False) -> bool:
        return width is not None and _width(kept, wraps_names=wraps_names) > width

    by_importance = sorted(cells, key=lambda each: (not each.is_note, -each.priority))
    for each in by_importance:
        if is_too_wide() and not each.stays and (each.is_note or each.is_shared):
            kept.remove(each)
            below.append(each)
    for each in by_importance:
        if is_too_wide() and each in kept and each.priority > ESSENTIAL:
            kept.remove(each)
    for each in reversed(cells[1:]):
        if is_too_wide(wraps_names=True) and each in kept and not each.is_name and not each.wraps:
            kept.remove(each)
    return kept, [each for each in cells if each in below], [e for e in cells if e not in kept and e not in below]
