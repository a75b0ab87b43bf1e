"""Downloads into the cache: laid out as by huggingface_hub, and nowhere else."""

import errno
import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.hub.repo_records import RepoListing, RepoVariant, cached_paths, repo_folder
from tests.fakes.hub import TestHub
from tests.fakes.tiny_repo import CONTENT, FILE, MIB, REPO, SHARDS


def test_a_download_has_the_layout_of_huggingface_hub(
    access: HubAccess, listing: RepoListing, one: RepoVariant
) -> None:
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    seen = scan_cache_dir(access.hub_cache)
    assert not seen.warnings and not seen.incomplete_files
    ((repo, revision),) = [(repo, revision) for repo in seen.repos for revision in repo.revisions]
    assert (repo.repo_id, repo.size_on_disk) == (REPO, len(CONTENT))
    assert (revision.commit_hash, revision.refs) == (listing.commit, frozenset({"main"}))
    assert try_to_load_from_cache(REPO, FILE, cache_dir=access.hub_cache) == str(path)


def test_a_truncated_blob_is_replaced(access: HubAccess, listing: RepoListing, one: RepoVariant) -> None:
    (path,) = download(access, listing, one)
    os.truncate(path, MIB)
    assert cached_paths(access, listing, one) is None
    assert download(access, listing, one) == (path,)
    assert path.read_bytes() == CONTENT


def test_a_name_stays_until_its_new_link_is_complete(
    access: HubAccess, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = download(access, listing, one)
    path.unlink()
    path.write_bytes(b"before")
    monkeypatch.setattr(Path, "symlink_to", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        download(access, listing, one)
    assert path.read_bytes() == b"before"


def test_concurrent_downloads_fetch_the_file_once(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    found: list[tuple[Path, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(download(access, listing, one))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(set(found)) == 1
    assert hub.sent_bytes() == len(CONTENT)


def test_without_symlinks_the_snapshot_has_the_file(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import scan_cache_dir

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    paths = download(access, listing, split)
    assert [path.read_bytes() for path in paths] == list(SHARDS)
    assert not any(path.is_symlink() for path in paths)
    assert list((repo_folder(access, REPO) / "blobs").iterdir()) == []
    assert scan_cache_dir(access.hub_cache).size_on_disk == 3 * MIB
    hub.forget_requests()
    assert download(access, listing, split) == paths
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["refs/pr/7", "v1.0", "the commit"])
def test_a_branch_is_recorded_and_a_commit_is_not(
    access: HubAccess, listing: RepoListing, one: RepoVariant, revision: str
) -> None:
    """Under refs, as by huggingface_hub."""
    given = listing.commit if revision == "the commit" else revision
    download(access, replace(listing, revision=given), one)
    refs = repo_folder(access, REPO) / "refs"
    if revision == "the commit":
        assert not refs.exists()
    else:
        assert (refs / revision).read_text() == listing.commit
