"""Frozen records of a Hub repo: its files, and its GGUF variants, each a single file or a set of shards."""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.gguf_file.quants import names_quant


@dataclass(frozen=True, slots=True)
class RepoFile:
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


@dataclass(frozen=True, slots=True)
class RepoVariant:
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
    def file_bytes(self) -> int:
        """Total size of the existing files."""
        return sum(file.n_bytes for file in self.files)

    def answers_to(self, quant: str) -> bool:
        """Return whether `quant`, in any case, matches this variant's quant, name or a file name."""
        stem = self.name.rsplit("/", 1)[-1]
        names = (self.name, stem, f"{stem}.gguf", *(file.name for file in self.files), *(f.path for f in self.files))
        return names_quant(quant, self.quant, names)


@dataclass(frozen=True, slots=True)
class RepoListing:
    """Contents of a repo at one commit."""

    repo: str
    """`org/name`, as the Hub spells it."""
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
    """When the Hub was queried, UTC, ISO 8601."""

    @property
    def total_bytes(self) -> int:
        """Total size of all variants."""
        return sum(variant.file_bytes for variant in self.variants)


@dataclass(frozen=True, slots=True)
class RepoSummary:
    """One search result."""

    repo: str
    downloads: int | None
    """Downloads of the last 30 days, as counted by the Hub."""
    likes: int | None
    last_modified: str | None
    """UTC, ISO 8601."""
    gated: bool
