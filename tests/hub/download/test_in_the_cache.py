"""What a download leaves in the cache: as huggingface_hub would, found again, and nowhere else."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from ggbench.errors import BadFile, DoesNotFit, UsageError
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download, needed_bytes
from ggbench.hub.hf_cache import cached_paths, repo_folder
from ggbench.hub.repo_records import RepoListing, RepoVariant
from tests.fakes.hub import TestHub
from tests.fakes.tiny_repo import CONTENT, FILE, MIB, REPO, SHARDS, put_part


def test_a_download_lies_in_the_cache_as_huggingface_hub_itself_would_put_it(
    access: HubAccess, listing: RepoListing, one: RepoVariant
) -> None:
    """Its own commands see one whole revision named main, and its own download finds the file there."""
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    seen = scan_cache_dir(access.hub_cache)
    assert not seen.warnings and not seen.incomplete_files
    ((repo, revision),) = [(repo, revision) for repo in seen.repos for revision in repo.revisions]
    assert (repo.repo_id, repo.size_on_disk) == (REPO, len(CONTENT))
    assert (revision.commit_hash, revision.refs) == (listing.commit, frozenset({"main"}))
    assert try_to_load_from_cache(REPO, FILE, cache_dir=access.hub_cache) == str(path)


def test_huggingface_hub_takes_a_file_that_ggbench_downloaded(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """Its own download of the branch asks for no byte of it."""
    from huggingface_hub import hf_hub_download

    (path,) = download(access, listing, one)
    hub.forget_requests()
    assert hf_hub_download(REPO, FILE, cache_dir=access.hub_cache, endpoint=hub.url) == str(path)
    assert hub.sent_bytes() == 0


def test_what_is_whole_is_not_asked_for_again(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """A second download makes no request, also offline."""
    paths = download(access, listing, one)
    hub.forget_requests()
    assert needed_bytes(access, listing, one) == 0
    assert download(replace(access, offline=True), listing, one) == paths
    assert hub.requests == []


def test_a_blob_that_was_cut_off_is_replaced(access: HubAccess, listing: RepoListing, one: RepoVariant) -> None:
    """What has a blob's name and not its size does not count as the file."""
    (path,) = download(access, listing, one)
    os.truncate(path, MIB)
    assert cached_paths(access, listing, REPO, one) is None
    assert download(access, listing, one) == (path,)
    assert path.read_bytes() == CONTENT


def test_two_downloads_at_once_move_the_file_once(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """The second waits for the first and then finds the file."""
    found: list[tuple[Path, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(download(access, listing, one))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(set(found)) == 1
    assert hub.sent_bytes() == len(CONTENT)


@pytest.mark.parametrize("revision", ["main", "refs/pr/7", "v1.0"])
def test_the_branch_is_remembered_as_the_cache_does(
    access: HubAccess, listing: RepoListing, one: RepoVariant, revision: str
) -> None:
    """A revision that is no commit names it under refs."""
    download(access, replace(listing, revision=revision), one)
    assert (repo_folder(access, REPO) / "refs" / revision).read_text() == listing.commit


def test_a_commit_or_a_crooked_revision_names_nothing(
    access: HubAccess, listing: RepoListing, one: RepoVariant
) -> None:
    """Neither is written under refs."""
    for revision in (listing.commit, "../../evil", "/evil"):
        shutil.rmtree(access.hub_cache, ignore_errors=True)
        download(access, replace(listing, revision=revision), one)
        assert not (repo_folder(access, REPO) / "refs").exists()
        assert not (access.hub_cache / "evil").exists()


def test_a_path_that_leads_out_of_its_folder_is_refused(
    access: HubAccess, listing: RepoListing, one: RepoVariant, tmp_path: Path
) -> None:
    """Whatever a listing says, no file lands beside the folder."""
    for path in ("../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "..\\evil.gguf"):
        evil = replace(one, files=(replace(one.files[0], path=path),))
        for to in (None, tmp_path / "to"):
            with pytest.raises(BadFile, match="out of its folder"):
                download(access, listing, evil, to=to)


def test_a_hash_that_is_none_names_no_file(access: HubAccess, listing: RepoListing, one: RepoVariant) -> None:
    """Names of blobs come from the Hub as well: they may not lead anywhere."""
    for evil in ("../../../evil", "", "0" * 63):
        variant = replace(one, files=(replace(one.files[0], sha256=evil, blob_id=evil),))
        with pytest.raises(BadFile, match="hash"):
            download(access, listing, variant)
    with pytest.raises(BadFile, match="hash"):
        download(access, replace(listing, commit="../../evil"), one)


def test_where_no_links_can_be_made_the_snapshot_has_the_file_itself(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is on the disk once, is found again, and huggingface_hub's own commands count it."""
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


def test_a_cache_that_cannot_be_written_is_told_with_what_to_do(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the cache should be, and a file system that takes no writes."""
    access.hub_cache.parent.mkdir()
    access.hub_cache.write_text("not a folder")
    with pytest.raises(UsageError, match="cannot write into") as caught:
        download(access, listing, one)
    assert "HF_HUB_CACHE" in caught.value.hint
    access.hub_cache.unlink()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UsageError, match="Read-only file system"):
        download(access, listing, one)
    assert hub.requests == []


def test_room_is_looked_at_first(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how much is missing, the part counts as there, and nothing is asked for."""
    put_part(access, one, CONTENT[:MIB])
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(0, 0, MIB // 2))
    with pytest.raises(DoesNotFit, match=r"1\.50 MiB missing: 2\.00 MiB have to come, 512\.0 KiB are free"):
        download(access, listing, one)
    assert hub.requests == []
