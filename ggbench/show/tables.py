"""Tables of plain text: headers with the unit below, right-aligned numbers, no wider than the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ggbench.text import sanitize

GAP = 2


class CaptionedTable(Table):
    """A table with lines of text below that wrap at the terminal's width."""

    lines_below: tuple[Text, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from super().__rich_console__(console, options)
        yield from self.lines_below


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


def spaced(parts: Sequence[RenderableType]) -> Group:
    """Return the parts with a blank line after each but the last."""
    return Group(*(shown for part in parts[:-1] for shown in (part, Text())), *parts[-1:])
