"""Results files as each version of the store left them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run

DATA = Path(__file__).parent.parent / "data"
SCRIPTS = sorted(DATA.glob("store_v*.sql"))


def build(script: Path, path: Path, *changes: str) -> None:
    """Make the database that a version left, with something else in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = sqlite3.connect(path)
    raw.executescript(script.read_text(encoding="utf-8"))
    for change in changes:
        raw.execute(change)
    raw.commit()
    raw.close()


def version(number: int) -> Path:
    return DATA / f"store_v{number}.sql"


def schema(path: Path) -> list[tuple[str, str]]:
    """Names and definitions of all tables and indexes."""
    raw = sqlite3.connect(path)
    found = raw.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    raw.close()
    return [(name, " ".join(sql.split())) for name, sql in found if not name.startswith("sqlite_")]


def whole(store: Store, run_id: int) -> Run:
    return read_run(store, store.load_run(run_id))
