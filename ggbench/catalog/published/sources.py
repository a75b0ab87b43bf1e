"""The documents behind the published rows: titles, versions, row counts, remarks, and what was left out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ggbench.catalog.published.rows import PublishedRow, data_text


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a document."""

    name: str
    rows: int
    versions: Mapping[str, str]
    """Software and its version, in the document's order; empty if not stated."""
    remark: str
    """ggbench's remark on the table; may be empty."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Figures of a document that are not among the rows."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Source:
    """One document."""

    id: str
    title: str
    rows: int
    tables: tuple[Table, ...]
    remarks: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


@functools.cache
def load_sources() -> tuple[Source, ...]:
    """Return the five documents, in the order of `data/sources.toml`."""
    import tomllib

    document = tomllib.loads(data_text("sources.toml"))
    return tuple(
        Source(
            id=entry["id"],
            title=entry["title"],
            rows=entry["rows"],
            tables=tuple(
                Table(
                    name, rows, MappingProxyType(environment["versions"]), entry.get("table_remarks", {}).get(name, "")
                )
                for environment in entry["environment"]
                for name, rows in environment["tables"].items()
            ),
            remarks=tuple(entry["remarks"]),
            left_out=tuple(
                LeftOut(left["what"], left["why"]) for left in document["left_out"] if left["source"] == entry["id"]
            ),
        )
        for entry in document["source"]
    )


def table_of(row: PublishedRow) -> Table:
    """Return the table that a row comes from."""
    return _tables()[row.source, row.table]


def versions_of(row: PublishedRow) -> dict[str, str]:
    """Return the software versions of a row: the table's, overridden by the row's own."""
    versions = dict(table_of(row).versions)
    if row.versions:
        name, version = row.versions.split(" ", 1)
        versions[name] = version
    return versions


@functools.cache
def _tables() -> dict[tuple[str, str], Table]:
    return {(source.id, table.name): table for source in load_sources() for table in source.tables}
