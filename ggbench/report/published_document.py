"""Published rows as JSON and CSV with every column; a figure is a number, or the word printed in its place."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields

from ggbench.catalog.published import METRICS, Figure, PublishedRow, Source, versions_of
from ggbench.errors import UnknownName

COLUMNS = tuple(field.name for field in fields(PublishedRow))
"""Names of all fields of a row."""


def published_document(row: PublishedRow) -> dict[str, object]:
    """Return one row with its software versions; null is not stated, a word such as `oom` stays a string."""
    out: dict[str, object] = {name: _plain(getattr(row, name)) for name in COLUMNS}
    return out | {"versions": versions_of(row)}


def source_document(source: Source) -> dict[str, object]:
    """Return one document: its tables with row counts and versions, remarks, and what was left out."""
    return {
        "id": source.id,
        "title": source.title,
        "rows": source.rows,
        "tables": [
            {"name": table.name, "rows": table.rows, "versions": dict(table.versions), "remark": table.remark or None}
            for table in source.tables
        ],
        "remarks": list(source.remarks),
        "left_out": [{"what": left.what, "why": left.why} for left in source.left_out],
    }


def published_csv(rows: Sequence[PublishedRow]) -> str:
    """Format the rows as CSV with a header; an empty cell is not stated, versions read `vLLM 0.6.3; CUDA 12.4`."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells = {name: _plain(getattr(row, name)) for name in COLUMNS} | {"versions": versions_text(versions_of(row))}
        writer.writerow(["" if cells[name] is None else cells[name] for name in COLUMNS])
    return buffer.getvalue()


def versions_text(versions: Mapping[str, str]) -> str:
    """Format `vLLM 0.6.3; CUDA 12.4`."""
    return "; ".join(f"{name} {version}" for name, version in versions.items())


def sort_published(rows: Sequence[PublishedRow], key: str) -> tuple[PublishedRow, ...]:
    """Sort the rows by a column, ascending, or descending with a leading minus.

    Words come after numbers, rows that do not state the column last. Raises UnknownName for an unknown column.
    """
    name = key.strip().lstrip("-").lower().replace("-", "_")
    if name not in COLUMNS:
        raise UnknownName(
            "published column", name, (*METRICS, *(column for column in COLUMNS if column not in METRICS))
        )
    numbers: list[tuple[float, PublishedRow]] = []
    words: list[tuple[str, PublishedRow]] = []
    not_stated: list[PublishedRow] = []
    for row in rows:
        value = _plain(getattr(row, name))
        if value is None:
            not_stated.append(row)
        elif isinstance(value, str):
            words.append((value, row))
        else:
            numbers.append((value, row))
    descending = key.strip().startswith("-")
    numbers.sort(key=lambda pair: pair[0], reverse=descending)
    words.sort(key=lambda pair: pair[0], reverse=descending)
    return (*(row for _, row in numbers), *(row for _, row in words), *not_stated)


def _plain(cell: Figure | str | int | None) -> str | int | float | None:
    return cell.plain if isinstance(cell, Figure) else cell
