"""Whether the results file is sound, found without changing it: not moved aside, not created."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench import paths
from ggbench.runs.store.connection import VERSION, identify
from ggbench.runs.store.runs import RUNNING


class StoreHealth(msgspec.Struct, frozen=True):
    """The results file as it is; looking at it changes nothing."""

    path: str
    file_bytes: int | None
    """With its write-ahead log; None where there is none yet."""
    version: int | None
    """Of its tables; None where it cannot be read."""
    newest_version: int
    """That this ggbench knows."""
    n_runs: int | None
    n_running: int = 0
    """Runs that still say so."""
    problem: str = ""
    """What SQLite's integrity check found, or why the file cannot be read; empty where it is sound."""
    is_foreign: bool = False
    """Whether it is the database of another program."""
    n_set_aside: int = 0
    """Damaged files that were moved aside and kept."""


_BUSY_TIMEOUT_S = 2.0
_MOST_FAULTS = 3
_LOG = "-wal"
"""What the name of the write-ahead log ends in, which may hold the newest runs."""


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
        faults = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
        if faults != ["ok"]:
            return replace(health, problem="; ".join(faults))
        if version != VERSION or is_foreign:
            return health
        n_runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        running = connection.execute("SELECT count(*) FROM runs WHERE state = ?", (RUNNING,)).fetchone()[0]
        return replace(health, n_runs=n_runs, n_running=running)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the file so that SQLite writes nothing: not even the files beside it, where there are none yet."""
    mode = "mode=ro" if Path(f"{path}{_LOG}").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_TIMEOUT_S)


class NumberedRun(msgspec.Struct, frozen=True):
    """One stored run by its number. Its texts are as stored, not sanitized."""

    run_id: int
    kind: str
    model: str
    quant: str


def recent_runs(limit: int) -> tuple[NumberedRun, ...]:
    """Return at most `limit` runs, the newest first; none where the file is missing, damaged or of another version."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(open_to_read(paths.results_file())) as connection:
        rows = connection.execute("SELECT id, kind, model, quant FROM runs ORDER BY id DESC LIMIT ?", (limit,))
        return tuple(NumberedRun(*row) for row in rows)
    return ()
