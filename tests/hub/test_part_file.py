"""Part files on disk."""

import hashlib
import random
import threading
from pathlib import Path

import pytest

from ggbench.hub.part_file import PartFile, file_agrees, file_bytes, locked
from ggbench.hub.repo_records import RepoFile

CONTENT = random.Random(5).randbytes(9 << 20)
FILE = RepoFile("a.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "")


def go_on() -> None:
    """Nothing stops it."""


class Enough(Exception):
    """Something does."""


def stop() -> None:
    raise Enough


def test_appended_bytes_are_on_disk_immediately(tmp_path: Path) -> None:
    path = tmp_path / "part"
    with PartFile(path, FILE) as part:
        for end in (1, 1000, 70_000):
            part.append(CONTENT[part.n_bytes : end])
            assert path.read_bytes() == CONTENT[:end]


@pytest.mark.parametrize("n_kept", [0, 1, 1 << 20, 5_000_001, len(CONTENT)])
def test_the_hash_covers_old_and_new_bytes(tmp_path: Path, n_kept: int) -> None:
    path = tmp_path / "folder" / "part"
    path.parent.mkdir()
    path.write_bytes(CONTENT[:n_kept])
    with PartFile(path, FILE) as part:
        assert part.missing_bytes == len(CONTENT) - n_kept
        for begin in range(n_kept, len(CONTENT), 1 << 16):
            part.append(CONTENT[begin : begin + (1 << 16)])
        assert part.missing_bytes == 0
        assert part.agrees(go_on)
    assert file_agrees(path, FILE, go_on)


def test_one_wrong_byte_anywhere_does_not_agree(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"\0" + CONTENT[1:1000])
    with PartFile(path, FILE) as part:
        part.append(CONTENT[1000:])
        assert not part.agrees(go_on)
        part.restart()
        assert part.n_bytes == file_bytes(path) == 0
        part.append(CONTENT)
        assert part.agrees(go_on)


def test_a_lock_is_held_by_one_and_waiting_for_it_can_be_stopped(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "a.lock"
    order: list[str] = []
    waits = threading.Event()

    def wait_for_it() -> None:
        with locked(lock, waits.set):
            order.append("second")

    with locked(lock, go_on):
        with pytest.raises(Enough), locked(lock, stop):
            order.append("never")
        second = threading.Thread(target=wait_for_it)
        second.start()
        assert waits.wait(10)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
