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
    with Store.open(path) as store:
        store.begin(head)
        store.append_samples(store.begin(head), "decode/p25/b1/r0", 0, list(range(100)))
        before = contents(path.parent)
        health = inspect_store(path)
        assert contents(path.parent) == before

    assert (health.version, health.n_runs, health.n_running) == (health.newest_version, 2, 2)
    assert (health.problem, health.is_foreign) == ("", False)
    assert health.file_bytes is not None
    assert health.file_bytes > len(before["results.sqlite"])


def test_a_large_store_is_checked_in_part(path: Path, head: RunHead, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        store.begin(head)
    assert not inspect_store(path).is_partly_checked
    monkeypatch.setattr("ggbench.runs.store.health._CHECK_S", 0.0)
    monkeypatch.setattr("ggbench.runs.store.health._CHECK_STEPS", 1)
    health = inspect_store(path)
    assert (health.is_partly_checked, health.problem, health.n_runs) == (True, "", 1)
    monkeypatch.setattr("ggbench.runs.store.health._LARGE_BYTES", 0)
    assert inspect_store(path) == health


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 3])
def test_a_store_of_another_version_says_which(path: Path, version: int) -> None:
    Store.open(path).close()
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"PRAGMA user_version = {version}")
        raw.execute("ALTER TABLE runs RENAME state TO s")
    before = contents(path.parent)

    health = inspect_store(path)

    assert (health.version, health.problem, health.n_runs) == (version, "", None)
    assert contents(path.parent) == before


@pytest.mark.parametrize("is_large", [False, True])
def test_a_damaged_store_says_what_is_wrong(
    path: Path, head: RunHead, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr("ggbench.runs.store.health._LARGE_BYTES", 0)
    with Store.open(path) as store:
        run_id = store.begin(head)
        for chunk in range(40):
            store.append_samples(run_id, "decode/p25/b1/r0", chunk * 100, list(range(100)))
    with path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 4096 * 4)
    before = contents(path.parent)

    assert inspect_store(path).problem
    assert contents(path.parent) == before


@pytest.mark.parametrize("content", [b"not a database at all, " * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_a_problem(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    health = inspect_store(path)

    assert health.problem
    assert path.read_bytes() == content


def test_another_programs_database_is_foreign(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()

    health = inspect_store(path)

    assert (health.is_foreign, health.n_runs, health.problem) == (True, None, "")


def test_a_store_that_is_not_there_is_sound_and_one_that_was_moved_aside_is_counted(path: Path) -> None:
    health = inspect_store(path)
    assert (health.file_bytes, health.version, health.problem) == (None, None, "")
    assert not path.parent.exists()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"garbage")
    Store.open(path).close()
    health = inspect_store(path)
    assert (health.n_set_aside, health.problem, health.n_runs) == (1, "", 0)
