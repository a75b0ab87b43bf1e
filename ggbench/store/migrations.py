"""The schema of the results file, as the ordered steps that lead to it.

A released step is never edited: files in the wild have already taken it. A change is a new function at the end.
`PRAGMA user_version` counts the steps that a file has taken; `PRAGMA application_id` says that it is ggbench's.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from ggbench.store.version_4 import compose_runs

Migration = Callable[[sqlite3.Connection], None]

APPLICATION_ID = 0x6767626E
"""`ggbn` in ASCII."""


def create_runs_and_samples(connection: sqlite3.Connection) -> None:
    """Version 1: one row for each run, its raw decode samples in chunks, and its prefill timings.

    `step_ns` and `sample_ns` are int64 little-endian, one value for each position from `first_position` on;
    `sample_ns` is NULL where the sampler was not timed. `n_samples` counts the decode steps in the chunks, so that a
    list need not read them. `config`, `environment` and `outcome_row` are JSON of `ggbench.records`. Times of day are
    UTC in ISO 8601; `owner_started_at` is in seconds since the epoch.
    """
    connection.execute(
        """
        CREATE TABLE runs (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL,
            model TEXT NOT NULL,
            quant TEXT NOT NULL,
            file TEXT NOT NULL,
            provenance TEXT NOT NULL,
            file_bytes INTEGER NOT NULL,
            header_sha256 TEXT NOT NULL,
            n_params INTEGER NOT NULL,
            bpw REAL,
            weight_bytes INTEGER,
            kv_bytes_per_token INTEGER,
            command TEXT NOT NULL,
            config TEXT NOT NULL,
            environment TEXT,
            started_at TEXT NOT NULL,
            finished_at TEXT,
            owner_pid INTEGER NOT NULL,
            owner_started_at REAL NOT NULL,
            state TEXT NOT NULL,
            n_samples INTEGER NOT NULL DEFAULT 0,
            outcome_row TEXT
        )
        """
    )
    connection.execute("CREATE INDEX runs_by_model ON runs (model)")
    connection.execute("CREATE INDEX runs_running ON runs (id) WHERE state = 'running'")
    connection.execute(
        """
        CREATE TABLE sample_chunks (
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            phase TEXT NOT NULL CHECK (phase IN ('warmup', 'decode')),
            repeat INTEGER NOT NULL,
            first_position INTEGER NOT NULL,
            step_ns BLOB NOT NULL CHECK (length(step_ns) % 8 = 0),
            sample_ns BLOB CHECK (length(sample_ns) = length(step_ns)),
            PRIMARY KEY (run_id, phase, repeat, first_position)
        )
        """
    )
    connection.execute(
        """
        CREATE TABLE prefills (
            id INTEGER PRIMARY KEY,
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            repeat INTEGER NOT NULL,
            n_prompt INTEGER NOT NULL,
            prefill_ns INTEGER NOT NULL,
            warmup INTEGER NOT NULL CHECK (warmup IN (0, 1))
        )
        """
    )
    connection.execute("CREATE INDEX prefills_by_run ON prefills (run_id)")


def create_readings(connection: sqlite3.Connection) -> None:
    """Version 2: what the machine did beside each run, about once a second.

    `at_ns` is nanoseconds since the epoch; `reading` is JSON of `ggbench.machine_records.MachineReading`.
    """
    connection.execute(
        """
        CREATE TABLE readings (
            id INTEGER PRIMARY KEY,
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            at_ns INTEGER NOT NULL,
            reading TEXT NOT NULL
        )
        """
    )
    connection.execute("CREATE INDEX readings_by_run ON readings (run_id)")


def create_probes(connection: sqlite3.Connection) -> None:
    """Version 3: what each search for the largest context asked, in its order, and its certificate once it ended.

    `probe` is JSON of `ggbench.records.Probe`, `certificate` of `ggbench.records.Certificate`; runs of other kinds have
    neither.
    """
    connection.execute("ALTER TABLE runs ADD COLUMN certificate TEXT")
    connection.execute(
        """
        CREATE TABLE probes (
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            probe TEXT NOT NULL,
            PRIMARY KEY (run_id, number)
        )
        """
    )


def withdraw_b_without_w(connection: sqlite3.Connection) -> None:
    """Version 5: a decode without W, or whose interval of B includes zero, has no `b_ms`.

    Versions up to 4 stored the median or the line's value there, which is not the latency of a first token.
    """
    rows = connection.execute("SELECT id, result FROM runs WHERE kind = 'decode' AND result IS NOT NULL").fetchall()
    for run_id, text in rows:
        result = json.loads(text)
        fit = result.get("fit")
        if fit and (fit.get("w_tokens_per_ms") is None or (fit.get("b_ci95") or [0.0])[0] <= 0):
            result["fit"] = fit | {"b_ms": None}
            connection.execute("UPDATE runs SET result = ? WHERE id = ?", (json.dumps(result), run_id))


MIGRATIONS: tuple[Migration, ...] = (
    create_runs_and_samples, create_readings, create_probes, compose_runs, withdraw_b_without_w
)  # fmt: skip


def version_of(connection: sqlite3.Connection) -> int:
    """Steps that this file has taken; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Take the steps that are missing; to be called inside a transaction, so that a failing step leaves no trace."""
    for version, step in enumerate(migrations[version_of(connection) :], start=version_of(connection) + 1):
        step(connection)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
