"""Downloads of split models, and of a file in several ranges."""

from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from ggbench.errors import NetworkError
from ggbench.hub import part_file
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download, needed_bytes, summed
from ggbench.hub.repo_records import RepoListing, RepoVariant
from tests.fakes.hub import Cut, Hang, TestHub
from tests.fakes.tiny_repo import MIB, SHARD_PATHS, SHARDS, part_of


def test_shards_are_downloaded_as_one(access: HubAccess, listing: RepoListing, split: RepoVariant) -> None:
    reported: list[tuple[int, int, int]] = []
    paths = download(access, listing, split, on_progress=lambda files: reported.append(summed(files)))
    assert [path.read_bytes() for path in paths] == list(SHARDS)
    assert [path.name for path in paths] == [Path(path).name for path in SHARD_PATHS]
    assert len({path.parent for path in paths}) == 1
    assert reported[-1] == (3 * MIB, 3 * MIB, 3 * MIB)


def test_two_shards_are_downloaded_in_parallel(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_file, "READ_TIMEOUT_S", 2)
    hub.fail(f"*{SHARD_PATHS[0]}", Hang())
    blobs = [part_of(access, split).with_name(str(file.sha256)) for file in split.files]
    with pytest.raises(CancelledError):
        download(access, listing, split, cancel=lambda: blobs[1].exists() and blobs[2].exists())
    assert not blobs[0].exists()


def test_a_complete_shard_is_not_fetched_again(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant
) -> None:
    hub.fail(f"*{SHARD_PATHS[1]}", Cut(MIB // 2))
    hub.fail(f"*{SHARD_PATHS[1]}", Cut(0), times=None)
    with pytest.raises(NetworkError):
        download(access, listing, split)
    hub.heal()
    hub.forget_requests()
    missing = needed_bytes(access, listing, split)
    assert MIB // 2 <= missing <= 3 * MIB - MIB // 2
    assert [path.read_bytes() for path in download(access, listing, split)] == list(SHARDS)
    assert hub.sent_bytes() == missing


def test_a_large_file_is_requested_in_ranges(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub's CDN serves no longer ones."""
    monkeypatch.setattr(part_file, "RANGE_BYTES", 2 * MIB)
    (path,) = download(access, listing, one)
    assert path.stat().st_size == 3 * MIB
    asked = [each.range for each in hub.requests if each.path.startswith("/cdn/")]
    assert asked == [f"bytes=0-{2 * MIB - 1}", f"bytes={2 * MIB}-{3 * MIB - 1}"]
