"""Steps that are taken, that fail and that are killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ggbench.errors import StoreError
from ggbench.runs.store import migrations
from ggbench.runs.store.database import Store
from tests.fakes.old_stores import build, schema, version, whole


def add_note(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'")


def fail_halfway(connection: sqlite3.Connection) -> None:
    """A step that changes something and then breaks."""
    connection.execute("DROP TABLE observations")
    connection.execute("ALTER TABLE nowhere ADD COLUMN note TEXT")


def test_a_later_step_is_taken_once_and_keeps_the_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(version(1), path)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_note))
    for _ in range(2):
        with Store.open(path) as store:
            assert len(store.list_runs()) == 2
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT note FROM runs").fetchall() == [("none",), ("none",)]
    assert raw.execute("PRAGMA user_version").fetchone() == (migrations.newest_version(),)
    raw.close()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_step_that_fails_leaves_the_file_at_its_version(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    build(version(number), path)
    before = schema(path)
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_note, fail_halfway))
        with pytest.raises(StoreError, match="nowhere"):
            Store.open(path)
    assert schema(path) == before
    with Store.open(path) as store:
        assert store.notices == ()
        assert whole(store, 1).is_complete


KILLED = """
import os, signal, sys
from pathlib import Path
from ggbench.store import migrations
from ggbench.runs.store.database import Store

def die(connection):
    connection.execute("PRAGMA cache_spill = 1")
    os.kill(os.getpid(), signal.SIGKILL)

migrations.MIGRATIONS = (*migrations.MIGRATIONS, die)
Store.open(Path(sys.argv[1]))
"""


def test_a_migration_that_is_killed_leaves_the_file_as_it_was(path: Path) -> None:
    build(version(3), path)
    before = schema(path)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert ended.returncode == -9
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA user_version").fetchone() == (3,)
    assert raw.execute("SELECT count(*) FROM sample_chunks").fetchone() == (4,)
    raw.close()
    assert schema(path) == before
    with Store.open(path) as store:
        assert len(store.list_runs()) == 4
        assert whole(store, 3).is_complete
