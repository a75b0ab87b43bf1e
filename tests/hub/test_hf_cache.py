"""Hugging Face's cache, read without a request."""

import hashlib
import os
from pathlib import Path

import pytest

from ggbench.hub.access import HubAccess
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant, cached_paths, repo_folder
from ggbench.models.sources import FoundVariant, RepoRequest, find_variants
from tests.fakes.hub import TestHub

REPO = "org/tiny-GGUF"
OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def access(tmp_path: Path) -> HubAccess:
    """Offline, so that any request would be an error."""
    return HubAccess(
        offline=True, endpoint="http://127.0.0.1:9", hub_cache=tmp_path / "hub", listings_dir=tmp_path / "listings",
        headers_dir=tmp_path / "headers",
    )  # fmt: skip


def _put(access: HubAccess, commit: str, path: str, content: bytes) -> RepoFile:
    sha256 = hashlib.sha256(content).hexdigest()
    folder = repo_folder(access, REPO)
    blob = folder / "blobs" / sha256
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link = folder / "snapshots" / commit / path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return RepoFile(path, len(content), sha256, "0" * 40)


def _listing(commit: str, variant: RepoVariant) -> RepoListing:
    return RepoListing(REPO, "main", commit, (variant,), (), "2026-01-02T03:04:05Z")


def cached_variants(access: HubAccess) -> tuple[FoundVariant, ...]:
    """What a request for every variant of the repo finds without a network."""
    return find_variants(access, RepoRequest(REPO))


def _set_main(access: HubAccess, commit: str) -> None:
    ref = repo_folder(access, REPO) / "refs" / "main"
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit)


def test_a_file_of_hf_download_is_found(tmp_path: Path, access: HubAccess) -> None:
    from huggingface_hub import hf_hub_download

    path = "Q4_K_M/tiny-Q4_K_M.gguf"
    with TestHub() as hub:
        commit = hub.add_repo(REPO, {path: b"GGUF and more"})
        there = hf_hub_download(REPO, path, cache_dir=access.hub_cache, endpoint=hub.url)
    (found,) = cached_variants(access)
    assert found.paths == (Path(there),)
    assert (found.variant.name, found.variant.quant, found.commit) == ("Q4_K_M/tiny-Q4_K_M", "q4_k_m", commit)
    (file,) = found.variant.files
    assert (file.path, file.n_bytes, file.sha256) == (path, 13, hashlib.sha256(b"GGUF and more").hexdigest())
    assert cached_paths(access, _listing(commit, found.variant), found.variant) == found.paths


def test_shards_are_one_variant_only_when_complete(access: HubAccess) -> None:
    small = [_put(access, NEW, f"s-q2_k-0000{n}-of-00002.gguf", bytes([n]) * 10) for n in (1, 2)]
    _put(access, NEW, "l-q8_0-00001-of-00003.gguf", b"l" * 100)
    _put(access, NEW, "l-q8_0-00003-of-00003.gguf", b"m" * 100)
    large = _put(access, NEW, "x-q6_k.gguf", b"x" * 50)
    _put(access, NEW, "mmproj-x-f16.gguf", b"p")
    _put(access, NEW, "README.md", b"# x")
    found = cached_variants(access)
    assert [(each.variant.name, each.variant.quant) for each in found] == [("x-q6_k", "q6_k"), ("s-q2_k", "q2_k")]
    assert [file.sha256 for file in found[1].variant.files] == [file.sha256 for file in small]
    assert found[0].variant.files[0].sha256 == large.sha256


def test_a_file_in_two_snapshots_is_listed_once_at_main(access: HubAccess) -> None:
    file = _put(access, OLD, "a-q8_0.gguf", b"same")
    _put(access, OLD, "b-q8_0.gguf", b"only in the old one")
    _put(access, NEW, "a-q8_0.gguf", b"same")
    for main, other in ((OLD, NEW), (NEW, OLD)):
        _set_main(access, main)
        found = {each.variant.name: each.commit for each in cached_variants(access)}
        assert found == {"a-q8_0": main, "b-q8_0": OLD}
        variant = RepoVariant("a-q8_0", "q8_0", (file,))
        paths = cached_paths(access, _listing(other, variant), variant)
        assert paths is not None and paths[0].parent.name == other


def test_a_changed_file_is_not_used_for_the_new_commit(access: HubAccess) -> None:
    file = _put(access, OLD, "a-q8_0.gguf", b"old one")
    new = RepoFile(file.path, file.n_bytes, hashlib.sha256(b"new one").hexdigest(), "")
    variant = RepoVariant("a-q8_0", "q8_0", (new,))
    assert cached_paths(access, _listing(NEW, variant), variant) is None


@pytest.mark.parametrize("damage", ["blob gone", "blob cut off", "link gone"])
def test_an_incomplete_file_does_not_count(access: HubAccess, damage: str) -> None:
    files = tuple(_put(access, NEW, f"s-q2_k-0000{n}-of-00002.gguf", bytes([n]) * 10) for n in (1, 2))
    variant = RepoVariant("s-q2_k", "q2_k", files)
    blob = repo_folder(access, REPO) / "blobs" / str(files[1].sha256)
    if damage == "blob gone":
        blob.unlink()
    elif damage == "blob cut off":
        blob.write_bytes(b"short")
    else:
        (repo_folder(access, REPO) / "snapshots" / NEW / files[1].path).unlink()
    assert cached_paths(access, _listing(NEW, variant), variant) is None


def test_an_unchanged_file_of_an_older_commit_is_used(access: HubAccess) -> None:
    """Another README moves the branch; the 20 GB beside it are the same."""
    variant = RepoVariant("a-q8_0", "q8_0", (_put(access, OLD, "a-q8_0.gguf", b"same"),))
    paths = cached_paths(access, _listing(NEW, variant), variant)
    assert paths is not None and paths[0].parent.name == OLD
