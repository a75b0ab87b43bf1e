"""The numbers of stored runs with what they measured, read without changing the results file or making one."""

from __future__ import annotations

import contextlib
import sqlite3

import msgspec

from ggbench import paths
from ggbench.runs.store.health import open_to_read


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
