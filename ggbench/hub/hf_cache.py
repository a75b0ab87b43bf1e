"""Contents of Hugging Face's download cache, read from its folders without a request or importing huggingface_hub.

The layout is documented and shared with llama.cpp: `models--org--name`, or `datasets--org--name`, holds `blobs`, files
named by their hash; `snapshots/COMMIT`, the repo's paths as links to blobs; and `refs`, the commit of each branch.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ggbench.errors import BadFile
from ggbench.hub.access import HubAccess
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant, path_on_hub
from ggbench.text import sanitize

_SHA256 = re.compile(r"[0-9a-f]{64}")
_OLLAMA_BLOB = re.compile(r"sha256-([0-9a-f]{64})")
_CHUNK_BYTES = 1 << 20
_REPO_PREFIX = "models--"
_MAX_LINKS = 40
"""Symbolic links followed, the same limit as Linux."""


class VerifiedFile(msgspec.Struct, frozen=True):
    """A file's SHA-256 compared with the one in its name."""

    path: Path
    sha256_expected: str | None
    """None where neither the path nor a link target is named by a hash."""
    sha256_found: str
    matches: bool | None
    """None where there is no expected hash."""


def repo_folder(access: HubAccess, repo: str) -> Path:
    """Return the cache folder of a repo, whether it exists or not."""
    return access.hub_cache / path_on_hub(repo).replace("/", "--")


def cached_paths(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> tuple[Path, ...] | None:
    """Return the files of a variant from one snapshot, preferring the listing's commit; None unless all are complete.

    A file is complete where its link leads to a blob of the right name and size. Where the cache holds files instead of
    links, a file of that path and size at the listing's commit counts.
    """
    if variant.missing or not variant.files:
        return None
    for snapshot in snapshots(repo_folder(access, listing.repo), listing.commit):
        paths = tuple(snapshot / file.path for file in variant.files)
        own = snapshot.name == listing.commit
        if all(_is_whole(path, file, own=own) for path, file in zip(paths, variant.files, strict=True)):
            return paths
    return None


def cached_file(access: HubAccess, repo: str, path: str) -> Path | None:
    """Return a file by its path in a repo, from the newest snapshot that has it; None where none has.

    A file appears in a snapshot once it is complete.
    """
    folder = repo_folder(access, repo)
    found = (snapshot / path for snapshot in snapshots(folder, recorded_commit(folder, "main")))
    return next((each for each in found if each.is_file()), None)


def recorded_commit(folder: Path, revision: str) -> str | None:
    """Return the commit of a branch or tag at its last download into a repo's cache folder; None without a record."""
    try:
        return None if ".." in revision.split("/") else (folder / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        return None


def snapshots(folder: Path, first: str | None) -> list[Path]:
    """Return the snapshots in a repo's cache folder: the one of the commit `first`, then the newest."""
    try:
        with os.scandir(folder / "snapshots") as entries:
            dated = [(each.name != first, -each.stat().st_mtime_ns, each.path) for each in entries if each.is_dir()]
    except OSError:
        return []
    return [Path(path) for _, _, path in sorted(dated)]


def find_snapshots(hub_cache: Path) -> Iterator[tuple[str, Path]]:
    """Yield repo and folder of every cached snapshot, in each repo `main` first. Raises OSError for the cache."""
    with os.scandir(hub_cache) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith(_REPO_PREFIX))
    for name in names:
        repo = name.removeprefix(_REPO_PREFIX).replace("--", "/")
        folder = hub_cache / name
        for snapshot in snapshots(folder, recorded_commit(folder, "main")):
            yield repo, snapshot


def verify_blob(path: Path, on_progress: Callable[[int, int], None] | None = None) -> VerifiedFile:
    """Hash a file and verify it against the SHA-256 in its name: `blobs/SHA256` here, `sha256-HEX` in Ollama's store.

    `on_progress` receives the bytes hashed and the total. Raises BadFile where the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        expected = _stated_sha256(path)
        with path.open("rb", buffering=0) as source:
            total = path.stat().st_size
            buffer = memoryview(bytearray(_CHUNK_BYTES))
            done = 0
            while n_read := source.readinto(buffer):
                digest.update(buffer[:n_read])
                done += n_read
                if on_progress is not None:
                    on_progress(done, total)
    except OSError as error:
        raise BadFile(f"{sanitize(str(path))} cannot be read: {error.strerror}", "check the path") from None
    found = digest.hexdigest()
    return VerifiedFile(path, expected, found, None if expected is None else found == expected)


def _stated_sha256(path: Path) -> str | None:
    # Follow one link at a time: a blob may itself link to a store that names files by another hash.
    for _ in range(_MAX_LINKS):
        if match := _OLLAMA_BLOB.fullmatch(path.name):
            return match[1]
        if path.absolute().parent.name == "blobs" and _SHA256.fullmatch(path.name):
            return path.name
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _is_whole(path: Path, file: RepoFile, *, own: bool) -> bool:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != file.n_bytes:
            return False
        return path.readlink().name == file.etag if path.is_symlink() else own or not file.etag
    except OSError:
        return False
