import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.errors import StoreError
from ggbench.locks import held
from ggbench.runs.run import RunHead
from ggbench.runs.store.database import Store
from tests.fakes.clock import Clock

SERIES = "decode/p25/b1/r0"


@pytest.fixture
def guarded_folder(head: RunHead) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    (folder / "old.sqlite").touch()
    with Store.open(folder / "full.sqlite") as store:
        store.append_samples(store.begin(head), SERIES, 0, [7] * 100)
    folder.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def fill(path: Path, head: RunHead, n_chunks: int = 40) -> None:
    with Store.open(path) as store:
        run_id = store.begin(head)
        for chunk in range(n_chunks):
            store.append_samples(run_id, SERIES, chunk * 100, list(range(100)))


def moved_aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob("results.broken-*.sqlite"))


def test_a_missing_folder_is_made_and_an_empty_file_is_a_fresh_store(path: Path, head: RunHead) -> None:
    path.parent.mkdir()
    path.touch()
    with Store.open(path) as store:
        assert (store.begin(head), store.notices) == (1, ())
    with Store.open(path.parent / "a" / "b" / "results.sqlite") as store:
        assert (store.list_runs(), store.notices) == ((), ())


def test_a_file_that_is_no_database_is_moved_aside_byte_for_byte(path: Path, head: RunHead) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all\n" * 100)
    Path(f"{path}-wal").write_bytes(b"its log")
    with Store.open(path) as store:
        store.begin(head)
        (kept,) = moved_aside(path)
        assert [str(kept) in notice for notice in store.notices] == [True]
    assert kept.read_bytes() == b"not a database at all\n" * 100
    assert Path(f"{kept}-wal").read_bytes() == b"its log"
    with Store.open(path) as store:
        assert (len(store.list_runs()), store.notices) == (1, ())


@pytest.mark.parametrize("damage", ["page size", "first page", "tables", "truncated"])
def test_a_damaged_database_is_moved_aside_byte_for_byte(path: Path, head: RunHead, damage: str) -> None:
    fill(path, head)
    content = bytearray(path.read_bytes())
    assert len(content) > 5 * 4096
    if damage == "page size":
        content[16:18] = b"\x12\x34"
    elif damage == "first page":
        content[100:4096] = b"\xa5" * 3996
    elif damage == "tables":
        content[4096:] = b"\xa5" * (len(content) - 4096)
    else:
        del content[4096:]
    path.write_bytes(content)
    with Store.open(path) as store:
        assert store.list_runs() == ()
        assert len(store.notices) == 1
        (kept,) = moved_aside(path)
    assert kept.read_bytes() == bytes(content)


def test_damage_among_the_samples_costs_the_run_it_is_in(path: Path, head: RunHead) -> None:
    with Store.open(path) as store:
        whole, damaged = store.begin(head), store.begin(head)
        store.append_samples(whole, SERIES, 0, [7] * 10)
        for chunk in range(40):
            store.append_samples(damaged, SERIES, chunk * 100, [8] * 100)
    content = bytearray(path.read_bytes())
    page = content.rfind((8).to_bytes(8, "little") * 50) // 4096 * 4096
    content[page : page + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    with Store.open(path) as store:
        assert (store.notices, len(store.list_runs())) == ((), 2)
        assert store.load_samples(whole).step_ns.tolist() == [7] * 10
        with pytest.raises(StoreError, match="damaged") as caught:
            store.load_samples(damaged)
    assert ".recover" in caught.value.hint
    assert path.read_bytes() == bytes(content)


@pytest.mark.parametrize(
    ("version", "what", "hint"),
    [(99, "a newer ggbench", "upgrade"), (4, "before its first release", "move it away"), (-1, "before", "move")],
)
def test_a_store_of_another_version_is_refused_and_not_touched(
    path: Path, head: RunHead, version: int, what: str, hint: str
) -> None:
    fill(path, head)
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=what) as caught:
        Store.open(path)
    assert hint in caught.value.hint
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["results.sqlite"]


def test_a_database_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TABLE bookmarks (url TEXT)")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_an_error_with_a_way_out(guarded_folder: Path) -> None:
    for name in ("results.sqlite", "old.sqlite"):
        with pytest.raises(StoreError, match="cannot") as caught:
            Store.open(guarded_folder / name)
        assert "XDG_DATA_HOME" in caught.value.hint


def test_a_store_that_cannot_be_written_can_be_read(guarded_folder: Path, head: RunHead) -> None:
    before = sorted(guarded_folder.iterdir())
    with Store.open(guarded_folder / "full.sqlite") as store:
        assert "cannot be written" in store.notices[0]
        assert [(run.state, run.n_samples) for run in store.list_runs()] == [("interrupted", 100)]
        assert store.load_samples(1).step_ns.tolist() == [7] * 100
        with pytest.raises(StoreError) as caught:
            store.begin(head)
        assert "XDG_DATA_HOME" in caught.value.hint
    assert sorted(guarded_folder.iterdir()) == before


@pytest.mark.parametrize("blocker", ["file as folder", "folder as file"])
def test_a_path_that_cannot_be_a_file_is_an_error_with_a_way_out(tmp_path: Path, blocker: str) -> None:
    path = tmp_path / "data" / "results.sqlite"
    if blocker == "file as folder":
        path.parent.touch()
    else:
        path.mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot open") as caught:
        Store.open(path)
    assert "XDG_DATA_HOME" in caught.value.hint


def test_a_full_disk_is_an_error_and_keeps_what_was_stored(path: Path, head: RunHead) -> None:
    with Store.open(path) as store:
        run_id = store.begin(head)
        store.append_samples(run_id, SERIES, 0, [7] * 100)
        store._connection.execute("PRAGMA max_page_count = 1")  # SQLite clips it to the size that the file has
        with pytest.raises(StoreError, match="disk is full") as caught:
            store.append_samples(run_id, SERIES, 100, [8] * 100_000)
        assert "kept" in caught.value.hint
        assert store.load_samples(run_id).step_ns.tolist() == [7] * 100
    with Store.open(path) as store:
        assert store.load_run(run_id).state == "interrupted"


def test_a_second_store_of_a_process_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    visit = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('SELECT * FROM runs').fetchall(); c.close()"
    with Store.open(path) as first:
        first.list_runs()
        with Store.open(path):
            pass
        subprocess.run([sys.executable, "-c", visit], check=True)
        assert path.with_name(f"{path.name}-wal").exists()


def test_two_files_damaged_in_one_second_are_both_kept(path: Path) -> None:
    path.parent.mkdir()
    for content in (b"the first", b"the second"):
        path.write_bytes(content)
        Store.open(path).close()
    kept = {each.read_bytes() for each in path.parent.glob("results.broken-*.sqlite")}
    assert kept == {b"the first", b"the second"}


def test_a_disk_quota_is_an_error_with_a_way_out(path: Path) -> None:
    """The kernel reports it as an I/O error, not as a full disk. Bytecode would be cut there too, and kept."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))\n"
        "from pathlib import Path; from ggbench.runs.store.database import Store\n"
        "from ggbench.errors import StoreError\n"
        "try: Store.open(Path(sys.argv[1]))\n"
        "except StoreError as error: print(error.message, '|', error.hint)\n"
    )
    ended = subprocess.run([sys.executable, "-B", "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "results.sqlite" in ended.stdout and "quota" in ended.stdout


@pytest.mark.parametrize("is_in_use", [False, True])
def test_a_file_without_a_log_gets_one_at_the_next_opening(path: Path, head: RunHead, is_in_use: bool) -> None:
    """A kill between its tables and its mode leaves it so, or a copy; a reader would then block a writer."""
    fill(path, head, 1)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        if is_in_use:
            raw.execute("BEGIN")
            raw.execute("SELECT * FROM runs").fetchone()
            with contextlib.suppress(StoreError):
                Store.open(path).close()
            raw.execute("COMMIT")
    with Store.open(path) as store:
        assert store._connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert store.load_run(1).n_samples == 100


def test_another_that_holds_the_folder_for_long_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.runs.store.connection._OPENING_LIMIT_S", 0)
    path.parent.mkdir()
    with held(path.parent), pytest.raises(StoreError, match="another program has held"):
        Store.open(path)


def test_a_store_says_what_it_waits_for_and_waits_as_long_as_it_was_told(
    path: Path, head: RunHead, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr("ggbench.locks.time", clock)
    with Store.open(path) as store, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for limit_s, says in ((1, ""), (5, f"waiting for another program that writes {path}\n")):
            store.wait_at_most(limit_s)
            begun_s = clock.now_s
            with pytest.raises(StoreError, match="another program keeps"):
                store.begin(head)
            assert capsys.readouterr().err == says
            assert clock.now_s - begun_s == pytest.approx(limit_s, abs=0.1)
        other.execute("COMMIT")
        assert store.begin(head) == 1
