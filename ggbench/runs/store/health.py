"""The results file looked at without opening it as a store; reading it changes nothing."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from ggbench import paths
from ggbench.errors import StoreError
from ggbench.record import Record
from ggbench.runs.store.connection import as_store_errors, connect_to_read, is_empty
from ggbench.runs.store.database import Store


class StoreHealth(Record):
    """The state of the results file."""

    path: str
    n_bytes: int | None = None
    """None if the file does not exist yet."""
    n_runs: int | None = None
    """None if it cannot be read."""
    problem: str = ""
    """Why it cannot be used as it is; empty if it can."""
    hint: str = ""


_MOST_CHECKED_BYTES = 64 << 20
"""A larger file is only opened: SQLite's check reads all of it."""


def inspect_store(path: Path | None = None) -> StoreHealth:
    path = path or paths.results_file()
    try:
        health = StoreHealth(str(path), path.stat().st_size)
    except FileNotFoundError:
        return StoreHealth(str(path))
    except OSError as error:
        return StoreHealth(str(path), problem=f"{path}: {error.strerror}", hint="allow this user to read it")
    try:
        with as_store_errors(path), contextlib.closing(connect_to_read(path)) as connection:
            if path.stat().st_size <= _MOST_CHECKED_BYTES:
                _check(connection)
            is_new = is_empty(connection, path)
            n_runs = 0 if is_new else connection.execute("SELECT count(*) FROM runs").fetchone()[0]
    except StoreError as error:
        return replace(health, problem=error.message, hint=error.hint)
    return replace(health, n_runs=n_runs)


def _check(connection: sqlite3.Connection) -> None:
    """Raise DatabaseError if SQLite finds damage."""
    fault = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if fault != "ok":
        error = sqlite3.DatabaseError(fault)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


@contextlib.contextmanager
def open_if_any() -> Iterator[Store | None]:
    """Yield the store, for estimates; None without a run, or if they cannot be read. Creates no file."""
    with contextlib.ExitStack() as opened:
        store = None
        with contextlib.suppress(sqlite3.Error, StoreError):
            connection = opened.enter_context(contextlib.closing(connect_to_read(paths.results_file())))
            if connection.execute("SELECT 1 FROM runs LIMIT 1").fetchone() is not None:
                store = opened.enter_context(Store.open())
        yield store
