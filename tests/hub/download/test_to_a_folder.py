"""Downloads into a folder of the user's choice."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.errors import UsageError
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.hub.repo_records import RepoListing, RepoVariant
from tests.fakes.hub import Hang, TestHub
from tests.fakes.tiny_repo import BODIES, CONTENT, FILE, MIB, SHARD_PATHS, SHARDS


def test_files_keep_their_folders_and_nothing_else_stays(
    access: HubAccess, listing: RepoListing, split: RepoVariant, tmp_path: Path
) -> None:
    to = tmp_path / "models"
    paths = download(access, listing, split, to=to)
    assert paths == tuple(to / path for path in SHARD_PATHS)
    assert [path.read_bytes() for path in paths] == list(SHARDS)
    assert sorted(path for path in to.rglob("*") if path.is_file()) == sorted(paths)
    assert not access.hub_cache.exists()


@pytest.mark.parametrize("content", [b"mine", CONTENT[::-1]], ids=["other size", "same size"])
def test_another_file_is_never_overwritten(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UsageError, match="not overwritten"):
        download(access, listing, one, to=tmp_path)
    assert (tmp_path / FILE).read_bytes() == content
    assert hub.requests == []


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, tmp_path: Path
) -> None:
    hub.fail(BODIES, Hang(MIB))

    def take_the_name(_files: object) -> None:
        (tmp_path / FILE).write_bytes(b"mine")

    with pytest.raises(UsageError, match="not overwritten"):
        download(access, listing, one, to=tmp_path, on_progress=take_the_name)
    assert (tmp_path / FILE).read_bytes() == b"mine"


def test_the_cache_fills_the_folder_without_a_request(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant, tmp_path: Path
) -> None:
    cached = download(access, listing, split)
    hub.forget_requests()
    to = tmp_path / "to"
    paths = download(replace(access, offline=True), listing, split, to=to)
    assert [path.read_bytes() for path in paths] == list(SHARDS)
    assert not any(path.samefile(other) for path, other in zip(paths, cached, strict=True))
    assert hub.requests == []


def test_a_right_file_is_kept_and_a_damaged_one_of_the_cache_not_copied(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, tmp_path: Path
) -> None:
    (cached,) = download(access, listing, one)
    cached.write_bytes(CONTENT[::-1])
    (path,) = download(access, listing, one, to=tmp_path / "to")
    assert path.read_bytes() == CONTENT
    hub.forget_requests()
    assert download(access, listing, one, to=tmp_path / "to") == (path,)
    assert hub.requests == []
