"""Facts derived from each ended run, as an indexed table: which runs repeat each other, measured a loss, or are copies.

The table is a cache. It is filled when a question needs it, so it may lack the newest runs or be missing altogether;
one of another ggbench is derived again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence, Sized
from pathlib import Path

import msgspec

from ggbench import __version__
from ggbench.errors import StoreError
from ggbench.record import Record
from ggbench.runs.store.connection import as_store_errors, writing
from ggbench.runs.store.runs import StoredRun, storable_text, stored_run_of

_COLUMNS = (
    "run_id INTEGER PRIMARY KEY, machine TEXT, setting TEXT, header TEXT, shape TEXT, has_rates INTEGER, loss TEXT,"
    " origin TEXT, content TEXT, name TEXT, long_name TEXT"
)
_TABLE = f"CREATE TABLE facts ({_COLUMNS} /* ggbench {__version__}, derivation 8 */)"
_INDEXES = (
    "CREATE INDEX facts_by_setting ON facts (setting) WHERE machine IS NOT NULL",
    "CREATE INDEX facts_by_machine ON facts (machine, setting, has_rates)",
    "CREATE INDEX facts_by_shape ON facts (shape, machine, setting)",
    "CREATE INDEX facts_by_header ON facts (header, machine, setting)",
    "CREATE INDEX facts_of_loss ON facts (header, loss) WHERE loss IS NOT NULL",
    "CREATE INDEX facts_by_origin ON facts (origin)",
    "CREATE INDEX facts_by_content ON facts (content) WHERE content IS NOT NULL",
    "CREATE INDEX facts_by_name ON facts (name)",
    "CREATE INDEX facts_by_long_name ON facts (long_name)",
)
_TRIGGERS = (
    "CREATE TRIGGER facts_ended AFTER UPDATE OF state ON runs BEGIN DELETE FROM facts WHERE run_id = new.id; END",
    "CREATE TRIGGER facts_deleted AFTER DELETE ON runs BEGIN DELETE FROM facts WHERE run_id = old.id; END",
)

NEWEST = 12
"""Maximum number of runs per setting, as a machine's noise changes over the years."""


_BATCH = 500
"""Number of runs whose facts are stored in one transaction, as other processes wait for it."""


class RunFacts(Record):
    """What is looked for in a run. Keys are None if unknown."""

    run_id: int
    machine: str | None = None
    """Key of the machine of a completed run measured with ggbench; None for others."""
    setting: str | None = None
    """Key that is equal for repeats; None for a run that did not complete."""
    header: str | None = None
    """SHA-256 of the file's header."""
    shape: str | None = None
    """`ModelFile.shape_key`."""
    has_rates: bool = False
    """Whether the rates [bytes/s] of reading weights and cache follow from it, and the machine was steady."""
    loss: str | None = None
    """Key of base, text and cache types of a measured loss."""
    origin: str = ""
    """Kind, start and quant, which a copy of the run has too."""
    content: str | None = None
    """SHA-256 of the content of an imported run."""
    name: str = ""
    """The model as lists name it."""
    long_name: str = ""
    """And where another has that name."""


class FactsTable:
    """The table in an open results file; in memory if the file cannot be written. Raises StoreError."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        self._is_current = self._is_in_memory = False

    def update(self, derive: Callable[[StoredRun], RunFacts]) -> None:
        """Derive the facts of the ended runs that have none."""
        if not self._is_current:
            self._create()
        before: tuple[int, ...] = ()
        # Again, if the file could no longer be written and all are in memory; a damaged file may keep none.
        while (missing := self._missing()) and missing != before:
            before = missing
            for start in range(0, len(missing), _BATCH):
                self._derive(missing[start : start + _BATCH], derive)

    def _missing(self) -> tuple[int, ...]:
        if not self._is_in_memory:  # the triggers remove no fact there
            ((n_ended, n_known),) = self._select(
                "SELECT (SELECT count(*) FROM runs) - (SELECT count(*) FROM runs WHERE state = 'running'),"
                " (SELECT count(*) FROM facts)"
            )
            if n_ended == n_known:
                return ()
        found = self._select(
            "SELECT id FROM runs INDEXED BY runs_by_kind EXCEPT SELECT run_id FROM facts"
            " EXCEPT SELECT id FROM runs WHERE state = 'running'"
        )
        return tuple(row[0] for row in found)

    def _derive(self, run_ids: Sequence[int], derive: Callable[[StoredRun], RunFacts]) -> None:
        """Derive the facts, then store those of runs that no other process has meanwhile deleted or ended again."""
        records = self._select(f"SELECT * FROM runs WHERE id IN ({_places(run_ids)})", *run_ids)
        facts = [
            (*msgspec.structs.astuple(derive(stored_run_of(record))), record["id"], record["state"])
            for record in records
        ]
        try:
            with writing(self._connection, self._path):
                self._insert(facts)
        except StoreError:
            self._create_in_memory()
            self._insert(facts)

    def of_file(self, machine: str, header: str, shape: str) -> tuple[tuple[int, ...], ...]:
        """Return the newest runs of each setting of a machine, newest first, at most twelve, for files with this header
        or this shape.
        """
        settings: dict[str, None] = {}
        for name, value in (("header", header), ("shape", shape)):
            if value:
                found = self._select(
                    f"SELECT setting FROM facts WHERE {name} = ? AND machine = ? GROUP BY setting",
                    value,
                    machine,
                )
                settings |= dict.fromkeys(row[0] for row in found)
        newest = (
            "SELECT run_id FROM facts WHERE setting = ? AND machine IS NOT NULL"
            f" ORDER BY run_id DESC LIMIT {NEWEST}"
        )
        return tuple(tuple(row[0] for row in self._select(newest, setting)) for setting in settings)

    def with_rates(self, machine: str) -> tuple[int, ...]:
        """Return the newest steady run of each setting of a machine from which the rates of reading memory follow."""
        found = self._select(
            "SELECT max(run_id) FROM facts WHERE machine = ? AND has_rates GROUP BY setting ORDER BY 1 DESC",
            machine,
        )
        return tuple(row[0] for row in found)

    def with_loss(self, headers: Collection[str]) -> tuple[int, ...]:
        """Return the newest run of each loss of files with these headers, newest first."""
        found = self._select(
            f"SELECT max(run_id) FROM facts WHERE header IN ({_places(headers)}) AND loss IS NOT NULL"
            " GROUP BY header, loss ORDER BY 1 DESC",
            *headers,
        )
        return tuple(row[0] for row in found)

    def copies(self, origin: str, content: str) -> tuple[int, ...]:
        """Return the runs imported with this content, then all runs of this origin, each oldest first."""
        found = [
            self._select(f"SELECT run_id FROM facts WHERE {name} = ? ORDER BY run_id", value)
            for name, value in (("content", content), ("origin", origin))
        ]
        return tuple(dict.fromkeys(row[0] for rows in found for row in rows))

    def named(self, model: str) -> tuple[int, ...]:
        """Return the runs of a model, by either of its names in lists, newest first."""
        sql = "SELECT run_id FROM facts WHERE name = ?1 OR long_name = ?1 ORDER BY run_id DESC"
        return tuple(row[0] for row in self._select(sql, storable_text(model)))

    def _create(self) -> None:
        if not self._is_created():
            try:
                with writing(self._connection, self._path):
                    if not self._is_created():  # by another process meanwhile
                        for name in ("TABLE facts", "TRIGGER facts_ended", "TRIGGER facts_deleted"):
                            kind, _, name = name.partition(" ")
                            self._connection.execute(f"DROP {kind} IF EXISTS {name}")
                        for statement in (_TABLE, *_INDEXES, *_TRIGGERS):
                            self._connection.execute(statement)
            except StoreError:
                self._create_in_memory()
        self._is_current = True

    def _create_in_memory(self) -> None:
        """Create the table where it hides one in the file, and needs no disk."""
        self._is_in_memory = True
        with as_store_errors(self._path):
            self._connection.execute("PRAGMA temp_store = MEMORY")
            self._connection.execute(_TABLE.replace("TABLE", "TEMP TABLE IF NOT EXISTS", 1))

    def _is_created(self) -> bool:
        return [
            tuple(row) for row in self._select("SELECT sql FROM main.sqlite_master WHERE name = 'facts'")
        ] == [(_TABLE,)]

    def _insert(self, facts: Sequence[tuple[object, ...]]) -> None:
        """Store facts, each followed by the id and the state of the run that they were derived from."""
        unchanged = "EXISTS (SELECT 1 FROM runs WHERE id = ? AND state = ?)"
        with as_store_errors(self._path):
            self._connection.executemany(
                f"INSERT OR REPLACE INTO facts SELECT {_places(RunFacts.__struct_fields__)} WHERE {unchanged}",
                facts,
            )

    def _select(self, sql: str, *parameters: object) -> list[sqlite3.Row]:
        with as_store_errors(self._path):
            return self._connection.execute(sql, parameters).fetchall()


def _places(values: Sized) -> str:
    return ", ".join("?" * len(values))
