"""The looks that all tables share: headers with the unit below, numbers to the right, plain text only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from ggbench.plain import plain
from ggbench.records.subject import Subject

TWIN_CAPTION = "twin: the true shape and types, no trained weights; speed and memory are real, the text is not"

GAP = 2
"""Blanks between two columns; the box itself makes one of them."""

Align = Literal["left", "right", "wrap"]

Facts = Sequence[tuple[str, str]]
"""Names with their values; a value without text is left out."""


def new_table(
    title: str | None = None,
    columns: Mapping[str, Align] | None = None,
    rows: Iterable[Sequence[str]] = (),
) -> Table:
    """A table with a line under the header and no other rules, so that it also reads without colour.

    A unit follows a column's header after a line break.
    """
    table = Table(
        title=Text(plain(title), style="bold") if title else None,
        title_justify="left",
        caption_justify="left",
        caption_style="none",
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


def add_column(table: Table, header: str, align: Align = "left") -> None:
    """One column; one that wraps takes the width that the others leave."""
    justify: Literal["left", "right"] = "right" if align == "right" else "left"
    table.add_column(Text(header), justify=justify, no_wrap=align != "wrap", overflow="fold")


def twin_caption(subjects: Iterable[Subject]) -> str:
    """What to say below a table of these; empty without a twin."""
    return TWIN_CAPTION if any(subject.source == "twin" for subject in subjects) else ""


def facts_table(title: str, facts: Facts) -> Table:
    """Names on the left, values on the right, under a heading."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.title, table.title_justify = Text(plain(title), style="bold"), "left"
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value:
            table.add_row(Text(f"  {name}"), Text(plain(value)))
    return table


def again_line(command: str, *, folded: bool) -> list[Text]:
    """The command; nothing where there is none.

    Not folded it is whole in one line, to be copied, for a console that does not crop and a terminal that wraps.
    """
    text = f"Again: {plain(command)}"
    return [Text(text, overflow="fold") if folded else Text(text, no_wrap=True, overflow="ignore")] if command else []
