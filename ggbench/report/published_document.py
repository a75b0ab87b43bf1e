"""Published rows for programs: JSON and CSV with every column, figures as numbers or as the words in their place."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields

from ggbench.catalog.published import METRICS, Figure, PublishedRow, Source, versions_of
from ggbench.errors import UnknownName

COLUMNS = tuple(field.name for field in fields(PublishedRow))
"""Names of everything that a row can state."""


def published_document(row: PublishedRow) -> dict[str, object]:
    """One row: null is not stated, a word such as `oom` stands for itself; with the versions of the software."""
    out: dict[str, object] = {name: _plain(getattr(row, name)) for name in COLUMNS}
    return out | {"versions": versions_of(row)}


def source_document(source: Source) -> dict[str, object]:
    """One document: its tables with their rows and versions, remarks, and what was left out."""
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
    """The rows under the columns' names; an empty cell is not stated, versions stand as `vLLM 0.6.3; CUDA 12.4`."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells = {name: _plain(getattr(row, name)) for name in COLUMNS} | {"versions": versions_text(versions_of(row))}
        writer.writerow(["" if cells[name] is None else cells[name] for name in COLUMNS])
    return buffer.getvalue()


def versions_text(versions: Mapping[str, str]) -> str:
    """`vLLM 0.6.3; CUDA 12.4`."""
    return "; ".join(f"{name} {version}" for name, version in versions.items())


def sort_published(rows: Sequence[PublishedRow], key: str) -> tuple[PublishedRow, ...]:
    """The rows by a column, rising, or falling with a minus in front; words come after numbers, not stated last.

    Raises UnknownName for a column that is none.
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
    falling = key.strip().startswith("-")
    numbers.sort(key=lambda pair: pair[0], reverse=falling)
    words.sort(key=lambda pair: pair[0], reverse=falling)
    return (*(row for _, row in numbers), *(row for _, row in words), *not_stated)


def _plain(cell: Figure | str | int | None) -> str | int | float | None:
    return cell.plain if isinstance(cell, Figure) else cell
