"""What the tables share: columns that sort rows, and a filter by words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
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


def has_words(text: str, words: str) -> bool:
    """Return whether the text contains every one of the words, in any case and order."""
    text = text.casefold()
    return all(word in text for word in words.casefold().split())
