"""The results file looked at without opening it as a store: its health, and the numbers of the newest runs."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench import paths
from ggbench.runs.store.connection import VERSION, identify, primary_code
from ggbench.runs.store.runs import RUNNING


class StoreHealth(msgspec.Struct, frozen=True):
    """The state of the results file; reading it changes nothing."""

    path: str
    file_bytes: int | None
    """Size including the write-ahead log; None if the file does not exist yet."""
    version: int | None
    """Version of its tables; None if it cannot be read."""
    newest_version: int
    """The version that this ggbench writes."""
    n_runs: int | None
    n_running: int = 0
    """Number of runs marked as running."""
    problem: str = ""
    """Errors of SQLite's integrity check, or why the file cannot be read; empty if it is intact."""
    is_partly_checked: bool = False
    """Whether of a large file only the newest runs were checked, or its integrity check was ended early."""
    is_foreign: bool = False
    """Whether it is the database of another program."""
    n_set_aside: int = 0
    """Damaged files that were moved aside and kept."""


_READING_TIMEOUT_S = 2.0
_LARGE_BYTES = 256 << 20
"""Size above which only the newest runs are read: before 3.42 SQLite cannot be interrupted while it checks a table."""
_NEWEST = 500
_CHECK_S = 0.3
"""Time for the integrity check, which reads the whole file."""
_CHECK_STEPS = 10_000
"""Steps of SQLite between two looks at the clock."""
_MOST_FAULTS = 3
_LOG = "-wal"
"""Suffix of the write-ahead log, which may contain the newest runs."""


def inspect_store(path: Path | None = None) -> StoreHealth:
    path = path or paths.results_file()
    n_set_aside = len(list(path.parent.glob(f"{path.stem}.broken-*{path.suffix}")))
    health = StoreHealth(str(path), None, None, VERSION, None, n_set_aside=n_set_aside)
    try:
        n_bytes = path.stat().st_size
    except FileNotFoundError:
        return health
    except OSError as error:
        return replace(health, problem=error.strerror or "it cannot be read")
    log = Path(f"{path}{_LOG}")
    health = replace(health, file_bytes=n_bytes + (log.stat().st_size if log.exists() else 0))
    try:
        return _inspected(path, health)
    except sqlite3.Error as error:
        return replace(health, problem=str(error))


def _inspected(path: Path, health: StoreHealth) -> StoreHealth:
    with contextlib.closing(open_to_read(path)) as connection:
        version, is_foreign = identify(connection)
        health = replace(health, version=version, is_foreign=is_foreign)
        is_own = version == VERSION and not is_foreign
        if is_own and (health.file_bytes or 0) > _LARGE_BYTES:
            _read_newest(connection)
            health = replace(health, is_partly_checked=True)
        else:
            faults, is_whole = _check(connection)
            health = replace(health, problem="; ".join(faults), is_partly_checked=not is_whole)
        if health.problem or not is_own:
            return health
        n_runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        running = connection.execute("SELECT count(*) FROM runs WHERE state = ?", (RUNNING,)).fetchone()[0]
        return replace(health, n_runs=n_runs, n_running=running)


def _check(connection: sqlite3.Connection) -> tuple[list[str], bool]:
    """Return the faults that SQLite finds, and whether it finished."""
    found = None
    with _for_a_moment(connection):
        found = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
    return [] if found in (None, ["ok"]) else found, found is not None


def _read_newest(connection: sqlite3.Connection) -> None:
    """Read the newest runs, as many as there is time for. Raises sqlite3.Error if they are damaged."""
    with _for_a_moment(connection):
        for table, column in (("runs", "id"), ("samples", "run_id"), ("observations", "run_id")):
            newest = f"SELECT * FROM {table} WHERE {column} > (SELECT max(id) FROM runs) - ?"
            for _ in connection.execute(newest, (_NEWEST,)):
                pass


@contextlib.contextmanager
def _for_a_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """End the block when a statement takes longer than it may."""
    end = time.monotonic() + _CHECK_S
    connection.set_progress_handler(lambda: time.monotonic() > end, _CHECK_STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if primary_code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
    finally:
        connection.set_progress_handler(None, 0)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the file so that SQLite writes nothing, not even files next to it."""
    mode = "mode=ro" if Path(f"{path}{_LOG}").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_READING_TIMEOUT_S)


class NumberedRun(msgspec.Struct, frozen=True):
    """One stored run by its number. Its texts are as stored, not sanitized."""

    run_id: int
    kind: str
    model: str
    quant: str


def recent_runs(limit: int) -> tuple[NumberedRun, ...]:
    """Return at most `limit` runs, newest first; none if the file is missing, damaged or of another version."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(open_to_read(paths.results_file())) as connection:
        rows = connection.execute("SELECT id, kind, model, quant FROM runs ORDER BY id DESC LIMIT ?", (limit,))
        return tuple(NumberedRun(*row) for row in rows)
    return ()
