"""A Hub repo's files and GGUF variants, and those in Hugging Face's download cache.

Files are grouped into variants only by name, so the result is the same for a Hub listing and for the cache. The cache's
layout is documented and shared with llama.cpp: `models--org--name` contains `blobs`, files
named by their hash; `snapshots/COMMIT`, the repo's paths as links to blobs; and `refs`, the commit of each branch. It
is read without a request and without importing huggingface_hub.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import (
    Role,
    canonical_quant,
    compact,
    model_name,
    parse_shard_name,
    quant_label,
    role,
)
from ggbench.hub.access import HubAccess
from ggbench.record import Record
from ggbench.text import sanitize

_MAX_MISSING = 100
"""Maximum number of missing shards listed by name; a file may claim to be one of 99,999."""


class RepoFile(Record):
    path: str
    """Path inside the repo, with slashes; never absolute, no part is `..`."""
    n_bytes: int
    sha256: str | None
    """SHA-256 of the content, as LFS and Xet name it; None for a small file stored in git itself."""
    blob_id: str
    """Git's object id, which names files without a sha256."""

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def etag(self) -> str:
        """Name of the blob in the Hub's cache: the sha256, or git's object id."""
        return self.sha256 or self.blob_id


class RepoVariant(Record):
    name: str
    """The path inside the repo, without shard suffix and `.gguf` if no other's is the same then; printable."""
    quant: str | None
    """Its `quant_label`."""
    files: tuple[RepoFile, ...]
    """Existing shards, in order."""
    missing: tuple[str, ...] = ()
    """Paths of missing shards."""
    role: Role = "model"
    """Its `role`."""

    @property
    def stem(self) -> str:
        return self.name.rsplit("/", 1)[-1]

    @property
    def file_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)

    @property
    def n_missing(self) -> int:
        """Number of missing shards; `missing` lists only the first."""
        shard = parse_shard_name(self.files[0].name)
        return 0 if shard is None else shard.count - len(self.files)

    def require_all_shards(self, repo: str) -> None:
        """Raise BadFile, naming the first missing shard, if the variant is incomplete."""
        if self.missing:
            more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
            raise BadFile(
                f"{sanitize(repo)} is missing {sanitize(self.missing[0])}{more}, a shard of {self.name}",
                "use another quant, or check the repo: the upload may still be in progress",
            )

    def answers_to(self, quant: str) -> bool:
        """Return whether `quant`, in any spelling, is this variant's name, a file name or, of a model, its quant."""
        names = {self.name, self.stem, f"{self.stem}.gguf"}
        names.update(name for file in self.files for name in (file.name, file.path))
        is_named = quant.lower() in {name.lower() for name in names}
        is_quant = self.quant is not None and compact(self.quant) == compact(canonical_quant(quant))
        return is_named or (is_quant and self.role == "model")


class RepoListing(Record):
    repo: str
    """`org/name`, as the Hub spells it."""
    revision: str
    """The requested revision, `main` by default."""
    commit: str
    """The commit that the revision resolved to, 40 hex digits."""
    variants: tuple[RepoVariant, ...]
    """Models, then drafts, the largest first."""
    sidecars: tuple[RepoFile, ...]
    """Other GGUF files: projectors, importance matrices."""
    listed_at: str
    """Time of the Hub query, UTC, ISO 8601; empty if it was just now."""

    @property
    def models(self) -> tuple[RepoVariant, ...]:
        return tuple(variant for variant in self.variants if variant.role == "model")

    @property
    def total_bytes(self) -> int:
        return sum(variant.file_bytes for variant in self.models)


class RepoSummary(Record):
    """One search result."""

    repo: str
    downloads: int | None
    """Downloads in the last 30 days, by the Hub's count."""
    last_modified: str | None
    """UTC, ISO 8601."""
    gated: bool


def group_variants(files: Iterable[RepoFile]) -> tuple[RepoVariant, ...]:
    """Group files into variants, models before drafts and largest first; an incomplete one lists its missing shards."""
    groups: defaultdict[str, list[RepoFile]] = defaultdict(list)
    for file in files:
        shard = parse_shard_name(file.path)  # splits into different counts stay separate
        groups[shard.sibling(shard.count) if shard else file.path].append(file)
    ordered = sorted(
        (sorted(shards, key=lambda file: file.path) for shards in groups.values()),
        key=lambda shards: (
            role(shards[0].path) != "model",
            -sum(file.n_bytes for file in shards),
            shards[0].path,
        ),
    )
    counts = Counter(map(_shown_name, ordered))
    return tuple(_variant(shards, counts) for shards in ordered)


def _shown_name(shards: Sequence[RepoFile]) -> str:
    return sanitize(model_name(shards[0].path))


def _variant(shards: Sequence[RepoFile], counts: Counter[str]) -> RepoVariant:
    """Return the files as a variant; one that shares its name has its file's path, escaped as paths may look alike."""
    name, path = _shown_name(shards), shards[0].path
    name = name if counts[name] == 1 else repr(path)[1:-1]
    return RepoVariant(name, quant_label(path), tuple(shards), _missing(shards), role(path))


def _missing(shards: Sequence[RepoFile]) -> tuple[str, ...]:
    shard = parse_shard_name(shards[0].path)
    if shard is None or len(shards) == shard.count:
        return ()
    there = {file.path for file in shards}
    expected = map(shard.sibling, range(1, shard.count + 1))
    return tuple(islice((path for path in expected if path not in there), _MAX_MISSING))


_REPO_PREFIX = "models--"


def repo_folder(access: HubAccess, repo: str) -> Path:
    return access.hub_cache / f"{_REPO_PREFIX}{repo.replace('/', '--')}"


def cached_paths(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> tuple[Path, ...] | None:
    """Return the files of a variant from one snapshot, preferring the listing's commit; None unless all are complete.

    A file is complete if its link leads to a blob of the right name and size. If the cache has files instead of links,
    a file with this path and size at the listing's commit counts.
    """
    if variant.missing or not variant.files:
        return None
    for snapshot in snapshots(repo_folder(access, listing.repo), listing.commit):
        paths = tuple(snapshot / file.path for file in variant.files)
        own = snapshot.name == listing.commit
        if all(_is_whole(path, file, own=own) for path, file in zip(paths, variant.files, strict=True)):
            return paths
    return None


def recorded_commit(folder: Path, revision: str) -> str | None:
    """Return the commit of a branch or tag at its last download into a repo's cache folder; None without a record."""
    try:
        return (folder / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        return None


def snapshots(folder: Path, first: str | None) -> list[Path]:
    """Return the snapshots in a repo's cache folder: the one of the commit `first`, then the newest."""
    try:
        with os.scandir(folder / "snapshots") as entries:
            dated = [
                (each.name != first, -each.stat().st_mtime_ns, each.path) for each in entries if each.is_dir()
            ]
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


def _is_whole(path: Path, file: RepoFile, *, own: bool) -> bool:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != file.n_bytes:
            return False
        return path.readlink().name == file.etag if path.is_symlink() else own or not file.etag
    except OSError:
        return False
