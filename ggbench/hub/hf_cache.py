"""What Hugging Face's cache holds already, told from its folders alone: no request, and no import of huggingface_hub.

The layout is the cache's documented one, which llama.cpp shares: `models--org--name` holds `blobs`, files named by
their content; `snapshots/COMMIT`, the repo's paths as links to them; and `refs`, the commit of each branch.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import is_sidecar
from ggbench.hub.access import HubAccess
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.hub.variant_grouping import group_variants
from ggbench.plain import plain

_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_NAME = re.compile(r"[0-9a-f]{40}")
_OLLAMA_BLOB = re.compile(r"sha256-([0-9a-f]{64})")
_CHUNK_BYTES = 1 << 20
_MAX_LINKS = 40
"""Links followed one by one, as Linux does."""


@dataclass(frozen=True, slots=True)
class CachedVariant:
    """A variant whose files are all in the cache."""

    variant: RepoVariant
    """Its files as the cache names them; a file that is no link has neither sha256 nor blob."""
    paths: tuple[Path, ...]
    """In the snapshot, in the order of the variant's files."""
    commit: str


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file held against its name."""

    path: Path
    sha256_expected: str | None
    """None where no name on the way to the content is one."""
    sha256_found: str
    matches: bool | None
    """None where there is nothing to compare with."""


def repo_folder(access: HubAccess, repo: str) -> Path:
    """Where the cache keeps a repo of models, whether it is there or not."""
    return access.hub_cache / f"models--{'--'.join(repo.split('/'))}"


def cached_paths(
    access: HubAccess, listing: RepoListing | None, repo: str, variant: RepoVariant
) -> tuple[Path, ...] | None:
    """The files of a variant in one snapshot of the cache, the listing's own first; None unless all are whole.

    A file is whole where its link leads to the blob of its name and size. Where the cache holds files instead of links,
    a file of that path and size at the listing's own commit counts.
    """
    if variant.missing or not variant.files:
        return None
    folder = repo_folder(access, repo)
    commit = listing.commit if listing else None
    for snapshot in sorted(_snapshots(folder), key=lambda each: each.name != commit):
        paths = tuple(snapshot / file.path for file in variant.files)
        own = snapshot.name == commit
        if all(_is_whole(path, file, own=own) for path, file in zip(paths, variant.files, strict=True)):
            return paths
    return None


def cached_variants(access: HubAccess, repo: str) -> tuple[CachedVariant, ...]:
    """Every variant of a repo that is whole in the cache, largest first.

    One that several snapshots hold is told once, at the commit that `main` stands for where that has it. Sidecars and
    variants that lack a shard are left out.
    """
    folder = repo_folder(access, repo)
    main = cached_commit(access, repo, "main")
    found: dict[tuple[str, ...], CachedVariant] = {}
    for snapshot in sorted(_snapshots(folder), key=lambda each: (each.name != main, -_mtime_ns(each), each.name)):
        for each in _variants_in(snapshot):
            found.setdefault((each.variant.name, *(_identity(file) for file in each.variant.files)), each)
    return tuple(sorted(found.values(), key=lambda each: (-each.variant.file_bytes, each.variant.name)))


def cached_commit(access: HubAccess, repo: str, revision: str) -> str | None:
    """The commit that a branch or tag stood for at its last download; None where the cache does not say it."""
    if ".." in revision.split("/"):
        return None
    try:
        return (repo_folder(access, repo) / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        return None


def verify_blob(path: Path, on_progress: Callable[[int, int], None] | None = None) -> VerifiedFile:
    """Hash a file and hold it against the name of its blob: `blobs/SHA256` here, `sha256-HEX` in Ollama's store.

    `on_progress` is told the bytes hashed and the bytes in all. Raises BadFile where the file cannot be read.
    """
    import hashlib

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
        raise BadFile(f"{plain(str(path))} cannot be read: {error.strerror}", "check the path") from None
    found = digest.hexdigest()
    return VerifiedFile(path, expected, found, None if expected is None else found == expected)


def _stated_sha256(path: Path) -> str | None:
    # One link at a time: a blob may itself be a link to a store that names files by another hash.
    for _ in range(_MAX_LINKS):
        if match := _OLLAMA_BLOB.fullmatch(path.name):
            return match[1]
        if path.absolute().parent.name == "blobs" and _SHA256.fullmatch(path.name):
            return path.name
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _snapshots(folder: Path) -> Iterator[Path]:
    try:
        yield from (each for each in (folder / "snapshots").iterdir() if each.is_dir())
    except OSError:
        return


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_whole(path: Path, file: RepoFile, *, own: bool) -> bool:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != file.n_bytes:
            return False
        return path.readlink().name == file.etag if path.is_symlink() else own or not file.etag
    except OSError:
        return False


def _variants_in(snapshot: Path) -> Iterator[CachedVariant]:
    for variant in group_variants(_gguf_files(snapshot)):
        if not variant.missing:
            yield CachedVariant(variant, tuple(snapshot / file.path for file in variant.files), snapshot.name)


def _identity(file: RepoFile) -> str:
    return file.etag or f"{file.path} {file.n_bytes}"


def _gguf_files(snapshot: Path) -> Iterator[RepoFile]:
    for path in snapshot.rglob("*"):
        inside = path.relative_to(snapshot).as_posix()
        if path.suffix.lower() != ".gguf" or is_sidecar(inside):
            continue
        try:
            found = path.stat()
            blob = path.readlink().name if path.is_symlink() else ""
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            sha256 = blob if _SHA256.fullmatch(blob) else None
            yield RepoFile(inside, found.st_size, sha256, blob if _GIT_NAME.fullmatch(blob) else "")
