"""Files that a kill and a power cut find whole."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ggbench import files
from ggbench.errors import GgbenchError, UsageError
from ggbench.files import (
    PART_SUFFIX,
    make_folders,
    remove_left,
    replace_file,
    sync_folder,
    take_free_name,
    temporary_folder,
    write_as,
    write_new,
)
from ggbench.gguf_file.twin import plan_twin
from ggbench.gguf_file.twin_writer import write_twin
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.locks import held
from ggbench.runs.store.database import Store
from tests.conftest import TINY
from tests.fakes.hub import TestHub
from tests.fakes.synced_disk import SyncedDisk
from tests.fakes.tiny_repo import add_tiny_repo, tiny_listing


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SyncedDisk:
    return SyncedDisk(monkeypatch, tmp_path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "config or cache": lambda path: replace_file(path, b"content"),
    "saved": lambda path: write_as(path, b"content", force=False),
    "saved over another": lambda path: write_as(path, b"content", force=True),
    "saved under a free name": lambda path: write_new(path.parent, "name", ".csv", b"content"),
    "twin": lambda path: write_twin(plan_twin(TINY, ["q8_0"], name="tiny")["q8_0"], path),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_power_cut_after_a_write_takes_nothing(writer: str, tmp_path: Path, disk: SyncedDisk) -> None:
    WRITERS[writer](tmp_path / "file")
    assert disk.named
    assert disk.lost_by_a_power_cut() == []


@pytest.mark.parametrize("number", [0, 1], ids=["one file", "shards"])
def test_a_power_cut_after_a_pull_takes_nothing(
    number: int, tmp_path: Path, hub: TestHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    add_tiny_repo(hub)
    listing = tiny_listing(hub)
    disk = SyncedDisk(monkeypatch, tmp_path)
    download(HubAccess.from_environment(), listing, listing.variants[number])
    assert disk.named
    assert disk.lost_by_a_power_cut() == []


def test_a_power_cut_after_a_damaged_store_was_moved_aside_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh store beside the lost name of the damaged one would hide it."""
    path = tmp_path / "results.sqlite"
    path.write_bytes(b"no database")
    with path.open("rb") as file:
        os.fsync(file.fileno())
    disk = SyncedDisk(monkeypatch, tmp_path)
    disk._synced[path.stat().st_ino] = (path.stat().st_size, path.stat().st_mtime_ns)
    with Store.open(path):
        pass
    assert [name for name in disk.named if "broken" in name]
    assert disk.lost_by_a_power_cut() == []


def test_new_folders_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    make_folders(tmp_path / "a" / "b")
    assert set(synced) == {tmp_path, tmp_path / "a"}


def test_a_disk_that_is_full_at_the_sync_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"after")
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    code = errno.EINVAL
    sync_folder(tmp_path)
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
def test_a_taken_name_is_left_as_it_is(has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, taken = tmp_path / "new", tmp_path / "taken"
    new.write_bytes(b"new")
    taken.write_bytes(b"taken")
    if not has_links:

        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(FileExistsError):
        take_free_name(new, taken)
    assert (new.read_bytes(), taken.read_bytes()) == (b"new", b"taken")
    take_free_name(new, tmp_path / "free")
    assert (tmp_path / "free").read_bytes() == b"new"
    assert not new.exists()


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    replace_file(tmp_path / ("n" * 255), b"content")
    assert [len(entry.name) for entry in tmp_path.iterdir()] == [255]


@pytest.mark.parametrize("name", ["n" * 256, "circle", "file/inside"])
def test_a_name_that_no_file_can_have_is_a_usage_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    for force in (False, True):
        with pytest.raises(UsageError):
            write_as(tmp_path / name, b"content", force=force)
    assert (tmp_path / "circle").is_symlink()


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    """A link leads to what is replaced or made, and a pipe or device is written where it is, without --force."""
    (tmp_path / "file").write_bytes(b"before")
    for name, target in (("link", "file"), ("dangling", "made")):
        (tmp_path / name).symlink_to(target)
    with pytest.raises(UsageError, match="exists already"):
        write_as(tmp_path / "link", b"after", force=False)
    for name, force in (("link", True), ("dangling", False)):
        write_as(tmp_path / name, b"after", force=force)
    assert [(tmp_path / name).read_bytes() for name in ("file", "made")] == [b"after", b"after"]
    replace_file(tmp_path / "link", b"settings")
    assert (tmp_path / "file").read_bytes() == b"settings"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for force in (False, True):
        write_as(tmp_path / "pipe", [b"pi", b"ece"], force=force)
        assert os.read(reader, 100) == b"piece"
    os.close(reader)
    write_as(Path(os.devnull), b"after", force=False)
    with pytest.raises(GgbenchError, match="the disk filled up"):
        write_as(Path("/dev/full"), b"after", force=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dangling", "file", "link", "made", "pipe"]
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo() and Path("/dev/full").is_char_device()


def test_an_output_that_is_a_file_is_appended_to_as_the_shell_says(tmp_path: Path) -> None:
    saved = os.dup(1)
    with (tmp_path / "file").open("wb") as file:
        file.write(b"before ")
        file.flush()
        os.dup2(file.fileno(), 1)
        try:
            write_as(Path("/dev/stdout"), b"after", force=False)
        finally:
            os.dup2(saved, 1)
            os.close(saved)
    assert (tmp_path / "file").read_bytes() == b"before after"


def test_what_a_kill_left_is_removed_by_the_next_unless_another_holds_it(tmp_path: Path) -> None:
    left, living, others = (tmp_path / name for name in (f".a{PART_SUFFIX}", f".b{PART_SUFFIX}", "others"))
    for folder in (left, living, others):
        folder.mkdir()
        (folder / "part").touch()
    link = tmp_path / f".c{PART_SUFFIX}"
    link.symlink_to(others)
    with held(living), temporary_folder(tmp_path) as own:
        remove_left.cache_clear()  # as in another process
        write_as(tmp_path / "file", b"content", force=False)
        assert set(tmp_path.iterdir()) == {living, others, link, own, tmp_path / "file"}
    assert (others / "part").exists() and not own.exists()
