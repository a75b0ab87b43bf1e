"""Common parts of the tables: columns, row order, columns shown at full width, and a filter by words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

Row = TypeVar("Row")

MORE_LEFT, MORE_RIGHT = "‹", "›"
"""Marks in a header for columns beyond either edge."""


class TableColumn(msgspec.Struct, Generic[Row], frozen=True):
    key: str
    header: str
    text: Callable[[Row], str]
    value: Callable[[Row], str | float | None]
    """The sort key; None is unknown and sorts last in either direction."""
    right_aligned: bool = True
    descending: bool = False
    """Whether the first sort puts the largest value first."""


@dataclass
class Order(Generic[Row]):
    """The column to sort by; without one, rows keep the given order."""

    columns: Sequence[TableColumn[Row]]
    key: str | None = None
    is_reversed: bool = False

    @property
    def column(self) -> TableColumn[Row] | None:
        return next((column for column in self.columns if column.key == self.key), None)

    @property
    def is_descending(self) -> bool:
        return self.column is not None and self.column.descending != self.is_reversed

    def sort_by(self, key: str) -> None:
        self.is_reversed = key == self.key and not self.is_reversed
        self.key = key

    def sort_by_next(self) -> None:
        keys = [column.key for column in self.columns]
        index = keys.index(self.key) + 1 if self.key in keys else 0
        self.sort_by(keys[index % len(keys)])

    def reverse(self) -> None:
        self.sort_by(self.key or self.columns[0].key)

    def sorted(self, rows: Iterable[Row]) -> list[Row]:
        """Return the sorted rows, ignoring case; equal rows keep their order."""
        if (column := self.column) is None:
            return list(rows)
        pairs = [(column.value(row), row) for row in rows]
        known: list[tuple[Any, Row]] = [
            (value.casefold() if isinstance(value, str) else value, row)
            for value, row in pairs
            if value is not None
        ]
        known.sort(key=lambda pair: pair[0], reverse=self.is_descending)
        return [row for _, row in known] + [row for value, row in pairs if value is None]


def first_column(widths: Sequence[int], scrolled: int) -> int:
    """Return the index of the first column at or after `scrolled` characters, at most the last one."""
    edge = 0
    for index, width in enumerate(widths):
        if edge >= scrolled:
            return index
        edge += width
    return max(0, len(widths) - 1)


def whole_columns(widths: Sequence[int], scrolled: int, room: int) -> range:
    """Return the columns that fit entirely into `room` characters after scrolling by `scrolled`; at least one."""
    start = stop = first_column(widths, scrolled)
    while stop < len(widths) and (stop == start or sum(widths[start : stop + 1]) <= room):
        stop += 1
    return range(start, stop)


def has_words(text: str, words: str) -> bool:
    """Return whether the text contains all the words, in any case and order."""
    text = text.casefold()
    return all(word in text for word in words.casefold().split())
