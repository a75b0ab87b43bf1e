"""Measured rows as one table, as wide as the terminal is: what all rows share moves below, then columns are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from ggbench.records import Outcome, Row
from ggbench.report.columns import COLUMNS, ESSENTIAL, UNKNOWN, Column
from ggbench.report.terminal.layout import TWIN_CAPTION, add_column, new_table

_WRAPPED = ("note",)
_WRAPPED_WIDTH = 24
"""A text that wraps needs no more than this; the table may give it more."""
_GAP = 1


@dataclass(frozen=True, slots=True)
class _Cells:
    """A column with its texts."""

    column: Column
    texts: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the column says nothing of any row."""
        return all(text in ("", UNKNOWN) for text in self.texts)

    @property
    def is_shared(self) -> bool:
        """Whether it says the same of several rows."""
        return len(self.texts) > 1 and len(set(self.texts)) == 1

    @property
    def width(self) -> int:
        """Cells on the screen, the gap to the next column included."""
        widest = max(map(cell_len, (self.column.header, self.column.unit, *self.texts)))
        return (min(widest, _WRAPPED_WIDTH) if self.column.key in _WRAPPED else widest) + _GAP


def rows_table(
    rows: Sequence[Row], keys: Sequence[str], title: str | None = None, *, width: int | None = None
) -> Table:
    """The columns named by `keys` of every row; a row that did not complete is dim and says why in its note.

    `width` is the terminal's, in characters; None keeps every column. In a narrow one, what is the same in every row
    is told once below the table, and then the columns of the lowest importance are left out, which the caption says.
    """
    cells = [_Cells(COLUMNS[key], tuple(COLUMNS[key].text(row) for row in rows)) for key in keys]
    cells = [each for each in cells if not (each.column.key in _WRAPPED and each.is_empty)]
    kept, shared, left_out = _fit(cells, width)
    table = new_table(title)
    for each in kept:
        column = each.column
        add_column(table, column.header, column.unit, right=column.right_aligned, wrap=column.key in _WRAPPED)
    for index, row in enumerate(rows):
        style = "" if row.outcome is Outcome.COMPLETED else "dim"
        table.add_row(*(Text(each.texts[index]) for each in kept), style=style)
    table.caption = Text("\n".join(_caption(rows, shared, left_out))) or None
    return table


def _fit(cells: list[_Cells], width: int | None) -> tuple[list[_Cells], list[_Cells], list[_Cells]]:
    """What stays in the table, what is told below it, what is left out."""
    kept, shared, left_out = list(cells), [], []

    def excess() -> bool:
        return width is not None and sum(each.width for each in kept) - _GAP > width

    for each in sorted(cells, key=lambda each: -each.column.priority):
        if excess() and each.is_shared and each.column.key not in _WRAPPED:
            kept.remove(each)
            shared.append(each)
    for each in sorted(kept, key=lambda each: -each.column.priority):
        if excess() and each.column.priority > ESSENTIAL:
            kept.remove(each)
            left_out.append(each)
    in_order = [each for each in cells if each in shared]
    return kept, in_order, [each for each in cells if each in left_out]


def _caption(rows: Sequence[Row], shared: Sequence[_Cells], left_out: Sequence[_Cells]) -> list[str]:
    lines = []
    told = [_fact(each) for each in shared if not each.is_empty]
    if told:
        lines.append(f"all rows: {', '.join(told)}")
    if left_out:
        headers = ", ".join(each.column.header for each in left_out)
        lines.append(f"left out for width: {headers}; --json has them all")
    if any(row.provenance == "twin" for row in rows):
        lines.append(TWIN_CAPTION)
    return lines


def _fact(cells: _Cells) -> str:
    """`n_ctx 512`; a name says itself."""
    text, column = cells.texts[0], cells.column
    return text if column.key in ("model", "quant") else f"{column.header} {text}"
