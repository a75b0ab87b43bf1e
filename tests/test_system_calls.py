"""The calls that other systems lack, beside what stands in for them there, as far as Linux can run that."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ggbench import system_calls
from ggbench.system_calls import (
    extend_where_room,
    lock_file,
    lock_record,
    read_at,
    reserve_room,
    scratch_file,
    scratch_file_on_disk,
    seek_and_read,
    seek_and_write,
    write_at,
)


@pytest.mark.parametrize(("read", "write"), [(read_at, write_at), (seek_and_read, seek_and_write)])
def test_bytes_go_to_their_offset_from_any_thread(
    tmp_path: Path, read: Callable[[int, memoryview, int], int], write: Callable[[int, memoryview, int], int]
) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    wrong: list[int] = []

    def read_back() -> None:
        buffer = memoryview(bytearray(4))
        wrong.extend(n for n in range(1000) if read(descriptor, buffer, 0) != 4 or bytes(buffer) != b"head")

    write(descriptor, memoryview(b"head"), 0)
    reader = threading.Thread(target=read_back)
    reader.start()
    for number in range(1000):
        assert write(descriptor, memoryview(b"%04d" % number), 4 + 4 * number) == 4
    reader.join()
    os.close(descriptor)

    assert wrong == []
    assert (tmp_path / "file").read_bytes() == b"head" + b"".join(b"%04d" % number for number in range(1000))


def test_a_read_at_the_end_returns_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    buffer = memoryview(bytearray(8))
    assert [each(descriptor, buffer, 1) for each in (read_at, seek_and_read)] == [2, 2]
    assert bytes(buffer[:2]) == b"bc"
    assert [each(descriptor, buffer, 3) for each in (read_at, seek_and_read)] == [0, 0]
    os.close(descriptor)


@pytest.mark.parametrize("reserve", [reserve_room, extend_where_room])
def test_room_is_reserved_or_refused(tmp_path: Path, reserve: Callable[[int, int, Path], None]) -> None:
    with (tmp_path / "file").open("wb") as file:
        reserve(file.fileno(), 100_000, tmp_path)
        assert (tmp_path / "file").stat().st_size == 100_000
        with pytest.raises(OSError) as refused:
            reserve(file.fileno(), 1 << 55, tmp_path)
    assert refused.value.errno in (errno.ENOSPC, errno.EFBIG)


@pytest.mark.parametrize("make", [scratch_file, scratch_file_on_disk])
def test_a_scratch_file_is_shared_and_gone_at_the_end(make: Callable[[str, int], AbstractContextManager[str]]) -> None:
    with make("ggbench-test", 4096) as path:
        with Path(path).open("r+b") as file:
            file.write(b"rows")
        assert Path(path).stat().st_size == 4096
        with Path(path).open("rb") as file:
            assert file.read(4) == b"rows"
    assert not Path(path).exists()


def test_locks_are_shared_or_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    first, second, third = (os.open(tmp_path / "file", os.O_RDONLY) for _ in range(3))
    lock_file(first, shared=True)
    lock_file(second, shared=True)
    with pytest.raises(BlockingIOError):
        lock_file(third, waits=False)
    os.close(first)
    os.close(second)
    lock_file(third, waits=False)
    os.close(third)


def test_a_record_lock_is_this_processs_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    again = f"import sys, fcntl; fcntl.lockf(open({str(path)!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with path.open("w+b") as file:
        lock_record(file.fileno())
        lock_record(file.fileno())
        refused = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True)
    assert "BlockingIOError" in refused.stderr


def test_only_the_seams_ask_which_system_it_is() -> None:
    package = Path(system_calls.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in ("sys.platform", "import fcntl", "import resource"))
    }
    assert found == {
        "system_calls.py",
        "catalog/model_stores.py",
        "engine/address_space.py",
        "engine/process.py",
        "machine/clock.py",
        "machine/condition.py",
        "machine/read_probe.py",
    }
