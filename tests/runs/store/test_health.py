"""Results files looked at, sound and not; none of them is changed by it."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from ggbench.runs.run import RunHead
from ggbench.runs.store.connection import VERSION
from ggbench.runs.store.database import Store
from ggbench.runs.store.health import inspect_store


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if not each.name.endswith("-shm")}


def test_a_sound_store_is_counted_while_it_is_written(path: Path, head: RunHead) -> None:
    assert (inspect_store(path).n_bytes, path.parent.exists()) == (None, False)
    with Store.open(path) as store:
        store.begin(head)
        store.append_samples(store.begin(head), "decode/p25/b1/r0", 0, list(range(100)))
        before = contents(path.parent)
        health = inspect_store(path)
        assert contents(path.parent) == before
    assert (health.n_runs, health.problem) == (2, "")


@pytest.mark.parametrize(("version", "what"), [(VERSION - 1, "before its first release"), (VERSION + 3, "newer")])
def test_a_store_of_another_version_says_so(path: Path, version: int, what: str) -> None:
    Store.open(path).close()
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"PRAGMA user_version = {version}")
        raw.execute("ALTER TABLE runs RENAME state TO s")
    before = contents(path.parent)
    health = inspect_store(path)
    assert (what in health.problem, health.n_runs) == (True, None)
    assert contents(path.parent) == before


def test_a_damaged_store_is_a_problem(path: Path, head: RunHead) -> None:
    with Store.open(path) as store:
        run_id = store.begin(head)
        for chunk in range(40):
            store.append_samples(run_id, "decode/p25/b1/r0", chunk * 100, list(range(100)))
    with path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 4096 * 4)
    before = contents(path.parent)
    health = inspect_store(path)
    assert ("is damaged" in health.problem, ".recover" in health.hint) == (True, True)
    assert contents(path.parent) == before


@pytest.mark.parametrize("content", [b"not a database at all, " * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_a_problem(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert inspect_store(path).problem
    assert path.read_bytes() == content
