"""The version of the results file, and the steps that bring an older one up to date.

`PRAGMA user_version` is the version, `PRAGMA application_id` says that the file is ggbench's. A released step is never
edited: files in the wild have already taken it. A change is a new function at the end of `MIGRATIONS`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

from ggbench.runs.store.version_4 import convert_to_version_4, create_tables

APPLICATION_ID = 0x6767626E
"""`ggbn` in ASCII."""


def withdraw_b_without_w(connection: sqlite3.Connection) -> None:
    """Version 5: a decode without W, or whose interval of B includes zero, has no `b_ms`.

    Before, it was the median or the line's value there, which is not the latency of a first token.
    """
    rows = connection.execute("SELECT id, result FROM runs WHERE kind = 'decode' AND result IS NOT NULL").fetchall()
    for run_id, text in rows:
        result = json.loads(text)
        fit = result.get("fit")
        if fit and (fit.get("w_tokens_per_ms") is None or (fit.get("b_ci95") or [0.0])[0] <= 0):
            result["fit"] = fit | {"b_ms": None}
            connection.execute("UPDATE runs SET result = ? WHERE id = ?", (json.dumps(result), run_id))


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (withdraw_b_without_w,)
"""The steps to version 5 and later, in order."""


def newest_version() -> int:
    """Return the version that this ggbench writes."""
    return 4 + len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of this file; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file up to date; to be called inside a transaction, so that a failing step leaves no trace."""
    version = version_of(connection)
    if version == 0:
        create_tables(connection)
    elif version < 4:
        convert_to_version_4(connection, version)
    for step in MIGRATIONS[max(0, version - 4) :]:
        step(connection)
    connection.execute(f"PRAGMA user_version = {newest_version()}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
