"""Folders and their disks."""

import os
from pathlib import Path

import psutil
import pytest

from ggbench.machine.disks import describe_place


def test_files_count_once_and_links_not_at_all(tmp_path: Path) -> None:
    blob = tmp_path / "blobs/a"
    blob.parent.mkdir()
    blob.write_bytes(os.urandom(1 << 20))
    (tmp_path / "again").hardlink_to(blob)
    (tmp_path / "link").symlink_to(blob)
    (tmp_path / "loop").symlink_to(tmp_path)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)

    place = describe_place("caches", "XDG_CACHE_HOME", tmp_path)

    assert place.used_bytes is not None
    assert 1 << 20 <= place.used_bytes < (1 << 20) + (1 << 16)
    assert place.is_writable
    assert place.file_system


def test_a_missing_folder_has_the_disk_of_the_nearest_above(tmp_path: Path) -> None:
    place = describe_place("results", "XDG_DATA_HOME", tmp_path / "a/b/c")

    assert (place.used_bytes, place.is_writable) == (0, True)
    assert place.disk == tmp_path.stat().st_dev
    assert place.free_bytes is not None
    assert abs(place.free_bytes - psutil.disk_usage(str(tmp_path)).free) < 1 << 30
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path, is_link: bool) -> None:
    blocking = tmp_path / "blocking"
    blocking.symlink_to(tmp_path / "missing") if is_link else blocking.touch()

    place = describe_place("results", "XDG_DATA_HOME", blocking / "ggbench")

    assert (place.is_writable, place.disk) == (False, tmp_path.stat().st_dev)
