"""Published rows as JSON and CSV with every column; a figure is a number, or the word printed in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import itemgetter

from ggbench.errors import UnknownName
from ggbench.models.published.rows import WITH_ERRORS, Figure, PublishedRow, Source, versions_of
from ggbench.show.documents import picked
from ggbench.show.text import csv_text

_FIELDS = tuple(field.name for field in fields(PublishedRow))
COLUMNS = (*_FIELDS, *(f"{name}_error" for name in WITH_ERRORS))
"""Names of all fields of a row, then those of its errors."""


def published_document(row: PublishedRow) -> dict[str, object]:
    """Return one row with its software versions; null is not stated, a word such as `oom` stays a string."""
    return _cells(row) | {"versions": versions_of(row)}


def source_document(source: Source) -> dict[str, object]:
    """Return one document: its tables with row counts and versions, remarks, and what was left out."""
    return {
        **picked(source, "id title rows"),
        "tables": [
            {"name": table.name, "rows": table.rows, "versions": dict(table.versions), "remark": table.remark or None}
            for table in source.tables
        ],
        "remarks": source.remarks,
        "left_out": [picked(left, "what why") for left in source.left_out],
    }


def published_csv(rows: Sequence[PublishedRow]) -> str:
    """Format the rows as CSV with a header; an empty cell is not stated, versions read `vLLM 0.6.3; CUDA 12.4`."""
    rows_of_cells = (_cells(row) | {"versions": versions_text(versions_of(row))} for row in rows)
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


def _cells(row: PublishedRow) -> dict[str, object]:
    errors = {f"{name}_error": figure and figure.error for name in WITH_ERRORS for figure in [getattr(row, name)]}
    return {name: _plain(getattr(row, name)) for name in _FIELDS} | errors


def _plain(cell: Figure | str | int | None) -> str | int | float | None:
    return cell.plain if isinstance(cell, Figure) else cell
