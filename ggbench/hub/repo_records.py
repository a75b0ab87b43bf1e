"""Frozen records of a Hub repo: its files, and its GGUF variants, each a single file or a set of shards.

Files are grouped into variants by their names only, so that the result is the same for a Hub listing and for the cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import model_name, names_quant, parse_shard_name, quant_from_file_name
from ggbench.text import sanitize

_MAX_MISSING = 100
"""Missing shards listed by name; a file may claim to be one of 99,999."""


def path_on_hub(repo: str) -> str:
    """Return `models/org/name` for a model repo `org/name`; a dataset repo `datasets/org/name` is named by its kind."""
    return repo if repo.count("/") == 2 else f"models/{repo}"


class RepoFile(msgspec.Struct, frozen=True):
    """One file of a repo at one commit."""

    path: str
    """Path inside the repo, with slashes; never absolute, no part is `..`."""
    n_bytes: int
    sha256: str | None
    """SHA-256 of the content, as LFS and Xet name it; None for a small file stored in git itself."""
    blob_id: str
    """Git's object id, which names files without a sha256."""

    @property
    def name(self) -> str:
        """File name without folders."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def etag(self) -> str:
        """Name of the blob in the Hub's cache: the sha256, or git's object id."""
        return self.sha256 or self.blob_id


class RepoVariant(msgspec.Struct, frozen=True):
    """One quant of a repo."""

    name: str
    """The path inside the repo without shard suffix and `.gguf`; printable."""
    quant: str | None
    """In lower case; None where neither the file's name nor its folder's has a quant in it."""
    files: tuple[RepoFile, ...]
    """Existing shards, in order."""
    missing: tuple[str, ...] = ()
    """Paths of missing shards."""

    @property
    def stem(self) -> str:
        """The name without folders."""
        return self.name.rsplit("/", 1)[-1]

    @property
    def file_bytes(self) -> int:
        """Total size of the existing files."""
        return sum(file.n_bytes for file in self.files)

    @property
    def n_missing(self) -> int:
        """Number of missing shards, of which `missing` lists the first."""
        shard = parse_shard_name(self.files[0].name)
        return 0 if shard is None else shard.count - len(self.files)

    def require_all_shards(self, repo: str) -> None:
        """Raise BadFile, naming the first missing shard, where the variant is incomplete."""
        if self.missing:
            more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
            raise BadFile(
                f"{sanitize(repo)} is missing {sanitize(self.missing[0])}{more}, a shard of {self.name}",
                "take another quant, or check the repo: the upload may still be in progress",
            )

    def answers_to(self, quant: str) -> bool:
        """Return whether `quant`, in any case, matches this variant's quant, name or a file name."""
        in_files = (name for file in self.files for name in (file.name, file.path))
        return names_quant(quant, self.quant, (self.name, self.stem, f"{self.stem}.gguf", *in_files))


class RepoListing(msgspec.Struct, frozen=True):
    """Contents of a repo at one commit."""

    repo: str
    """`org/name`, as the Hub spells it, or `datasets/org/name`."""
    revision: str
    """The requested revision, `main` by default."""
    commit: str
    """The commit that the revision resolved to, 40 hex digits."""
    variants: tuple[RepoVariant, ...]
    """Largest first."""
    sidecars: tuple[RepoFile, ...]
    """GGUF files that are not models: projectors, importance matrices, draft heads."""
    n_other_files: int
    """Number of files that are not GGUF."""
    listed_at: str
    """When the Hub was queried, UTC, ISO 8601; empty where that was just now."""

    @property
    def total_bytes(self) -> int:
        """Total size of all variants."""
        return sum(variant.file_bytes for variant in self.variants)


class RepoSummary(msgspec.Struct, frozen=True):
    """One search result."""

    repo: str
    downloads: int | None
    """Downloads of the last 30 days, as counted by the Hub."""
    likes: int | None
    last_modified: str | None
    """UTC, ISO 8601."""
    gated: bool


def group_variants(files: Iterable[RepoFile]) -> tuple[RepoVariant, ...]:
    """Group files into variants, largest first; an incomplete variant lists its missing shards."""
    groups: defaultdict[str, list[RepoFile]] = defaultdict(list)
    for file in files:
        groups[_shared_path(file.path)].append(file)
    ordered = sorted(
        (sorted(shards, key=lambda file: file.path) for shards in groups.values()),
        key=lambda shards: (-sum(file.n_bytes for file in shards), shards[0].path),
    )
    names: set[str] = set()
    variants = []
    for shards in ordered:
        path = shards[0].path
        name = next(each for each in _names(path) if each not in names)
        names.add(name)
        variants.append(RepoVariant(name, quant_from_file_name(path), tuple(shards), _missing(shards)))
    return tuple(variants)


def _shared_path(path: str) -> str:
    """Return the key shared by the shards of one variant; splits into different counts stay separate."""
    shard = parse_shard_name(path)
    return path if shard is None else shard.sibling(shard.count)


def _names(path: str) -> Iterator[str]:
    """Yield candidate names of a variant, best first: `x.gguf` and a split `x` cannot both be `x`."""
    yield sanitize(model_name(path))
    yield sanitize(path[: -len(".gguf")])
    yield sanitize(path)
    yield from (f"{sanitize(path)} {n}" for n in range(2, 1 << 30))


def _missing(shards: Sequence[RepoFile]) -> tuple[str, ...]:
    shard = parse_shard_name(shards[0].path)
    if shard is None or len(shards) == shard.count:
        return ()
    there = {file.path for file in shards}
    expected = map(shard.sibling, range(1, shard.count + 1))
    return tuple(islice((path for path in expected if path not in there), _MAX_MISSING))
