"""The tables of the results file and their version.

`PRAGMA user_version` is the version, `PRAGMA application_id` says that the file is ggbench's. Once a release has
written a version, a change of the tables raises it and comes with the step that brings such a file up to date.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x6767626E
"""`ggbn` in ASCII."""
VERSION = 5

_TABLES = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, engine TEXT NOT NULL, model TEXT NOT NULL,
        quant TEXT NOT NULL, source TEXT NOT NULL, subject TEXT NOT NULL, setup TEXT NOT NULL, settings TEXT NOT NULL,
        environment TEXT, command TEXT NOT NULL, started_at TEXT NOT NULL, finished_at TEXT,
        owner_pid INTEGER NOT NULL, owner_started_at REAL NOT NULL, state TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '', n_samples INTEGER NOT NULL DEFAULT 0, memory TEXT, gpu_use TEXT, result TEXT
    )""",
    "CREATE INDEX runs_by_model ON runs (model, quant, id)",
    "CREATE INDEX runs_by_kind ON runs (kind, id)",
    "CREATE INDEX runs_running ON runs (id) WHERE state = 'running'",
    """CREATE TABLE samples (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, series TEXT NOT NULL,
        first_position INTEGER NOT NULL, at_ns INTEGER NOT NULL,
        step_ns BLOB NOT NULL CHECK (length(step_ns) % 8 = 0),
        sample_ns BLOB CHECK (length(sample_ns) = length(step_ns)),
        UNIQUE (run_id, series, first_position)
    )""",
    """CREATE TABLE observations (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, number INTEGER NOT NULL,
        at_ns INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (run_id, number)
    )""",
)
"""`subject` to `environment`, `memory` to `result` and `body` are JSON of records. Times of day are UTC in ISO 8601,
`owner_started_at` is in seconds since the boot and `at_ns` in nanoseconds since the epoch. `step_ns` and `sample_ns`
are int64 little-endian, one value for each position from `first_position` on; `sample_ns` is NULL where the sampler was
not timed. `n_samples` counts the steps without warm-up, so that a list need not read them."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in a file without any."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def identify(connection: sqlite3.Connection) -> tuple[int, bool]:
    """Return the file's version, 0 for an empty one, and whether it is the database of another program."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    return (0 if is_empty else version), application_id != APPLICATION_ID and not is_empty
