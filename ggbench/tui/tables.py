"""What the tables share: columns that sort rows, which of them are shown, and a filter by words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

Row = TypeVar("Row")


class Column(msgspec.Struct, Generic[Row], frozen=True):
    """One column of a table."""

    key: str
    header: str
    text: Callable[[Row], str]
    value: Callable[[Row], str | float | None]
    """The sort key; None is unknown and sorts last in either direction."""
    right_aligned: bool = True
    descending: bool = False
    """Whether the first sort puts the largest value first."""


def in_order(rows: Iterable[Row], column: Column[Row], *, descending: bool) -> list[Row]:
    """Sort by a column, in any case of letters; equal rows keep the order given."""
    known: list[tuple[str | float, Row]] = []
    unknown = []
    for row in rows:
        value = column.value(row)
        if value is None:
            unknown.append(row)
        else:
            known.append((value.casefold() if isinstance(value, str) else value, row))
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [*(row for _, row in known), *unknown]


def first_column(widths: Sequence[int], scrolled: int) -> int:
    """Return the index of the first column at or after `scrolled` characters, at most the last one."""
    edge = 0
    for index, width in enumerate(widths):
        if edge >= scrolled:
            return index
        edge += width
    return max(0, len(widths) - 1)


def whole_columns(widths: Sequence[int], scrolled: int, room: int) -> range:
    """Return the indices of the columns that `room` characters hold whole, after scrolling by `scrolled` characters.

    The first is one even where it is wider than the room, so that there is something to see.
    """
    start = stop = first_column(widths, scrolled)
    while stop < len(widths) and (stop == start or sum(widths[start : stop + 1]) <= room):
        stop += 1
    return range(start, stop)


def has_words(text: str, words: str) -> bool:
    """Return whether the text contains every one of the words, in any case and order."""
    text = text.casefold()
    return all(word in text for word in words.casefold().split())
