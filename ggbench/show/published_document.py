"""Published rows as JSON and CSV with every column; a figure is a number, or the word printed in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec.structs import fields

from ggbench.errors import UnknownName
from ggbench.models.published import (
    METRICS,
    WITH_ERRORS,
    PublishedDocument,
    PublishedFigure,
    PublishedRow,
    Table,
    versions_of,
)
from ggbench.show.document import Document, Field, Get, Shape, field, many, of, sometimes, within

_FIELDS = tuple(each.name for each in fields(PublishedRow))


def _cells() -> Iterator[Field]:
    for name in _FIELDS:
        if name == "versions":
            yield from field(name, dict[str, str], "Of the software.", versions_of)
        elif name in METRICS:
            text = "A number, or the word printed in its place, such as `oom`; null is not stated."
            yield from field(name, float | str | None, text, _plain_of(name))
        else:
            yield from of(PublishedRow, name)
    for name in WITH_ERRORS:
        yield from field(f"{name}_error", float | None, "As printed beside the figure.", _error_of(name))


def _plain_of(name: str) -> Get:
    return lambda row: _plain(getattr(row, name))


def _error_of(name: str) -> Get:
    return lambda row: (figure := getattr(row, name)) and figure.error


ROW = Shape("PublishedRow", "One published row.", _cells())
NEAR = Shape(
    "NearRow",
    "A published row near to a run.",
    field("differences", list[str], "How its conditions differ from those of the run."),
    sometimes(
        field("ln_ppl_ratio", float | None, "Of a quality, as the row has it, or derived from it."),
        field("ln_ppl_ratio_error", float | None),
    ),
    within(lambda near: near.row, ROW.fields),
)
"""Of a `NearRow`."""
AGAINST = sometimes(field("against", many(NEAR), "With --against: the nearest published rows."))
_TABLE = Shape("Table", "One table of a document.", of(Table, "name rows versions remark?"))
_SOURCE = Shape(
    "PublishedDocument",
    "A document that rows are taken from.",
    of(PublishedDocument, "id title rows"),
    field("tables", many(_TABLE)),
    of(PublishedDocument, "remarks left_out"),
)
PUBLISHED = Document(
    "published",
    "published",
    "Published rows, and the documents that they are from.",
    field("rows", many(ROW)),
    field("sources", many(_SOURCE)),
)
COLUMNS = tuple(each.name for each in ROW.fields)
"""Names of all fields of a row, then those of its errors."""


def published_csv(rows: Sequence[PublishedRow]) -> str:
    """Format the rows as CSV with a header; an empty cell is not stated, versions read `vLLM 0.6.3; CUDA 12.4`."""
    from ggbench.show.text import csv_text

    rows_of_cells = (ROW.value(row, versions=versions_text(versions_of(row))) for row in rows)
    return csv_text(COLUMNS, (cells.values() for cells in rows_of_cells))


def versions_text(versions: Mapping[str, str]) -> str:
    """Format `vLLM 0.6.3; CUDA 12.4`."""
    return "; ".join(f"{name} {version}" for name, version in versions.items())


def sort_published(rows: Sequence[PublishedRow], key: str) -> tuple[PublishedRow, ...]:
    """Sort the rows by a column, ascending, or descending with a leading minus.

    Words come after numbers, rows that do not state the column last. Raises UnknownName for an unknown column.
    """
    name = key.strip().lstrip("-").lower().replace("-", "_")
    if name not in _FIELDS:
        raise UnknownName("published column", name, _FIELDS)
    stated = [(value, row) for row in rows if (value := _plain(getattr(row, name))) is not None]
    is_descending = key.strip().startswith("-")
    ordered: list[PublishedRow] = []
    for is_word in (False, True):
        alike = [pair for pair in stated if isinstance(pair[0], str) == is_word]
        ordered += [row for _, row in sorted(alike, key=itemgetter(0), reverse=is_descending)]
    return (*ordered, *(row for row in rows if _plain(getattr(row, name)) is None))


def _plain(cell: PublishedFigure | str | int | None) -> str | int | float | None:
    return cell.plain if isinstance(cell, PublishedFigure) else cell
