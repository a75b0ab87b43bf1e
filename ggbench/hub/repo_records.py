"""What is told of a repo of the Hub, frozen: its GGUF variants, each a file or the shards of one."""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.gguf_file.quants import names_quant


@dataclass(frozen=True, slots=True)
class RepoFile:
    """One file of a repo at one commit."""

    path: str
    """Inside the repo, with slashes; never absolute, no part of it `..`."""
    n_bytes: int
    sha256: str | None
    """Of the content, as LFS and Xet name it; None for a small file that git itself keeps."""
    blob_id: str
    """Git's name of the blob, which names files that have no sha256."""

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def etag(self) -> str:
        """What the Hub's cache names the blob: the sha256, or git's name where there is none."""
        return self.sha256 or self.blob_id


@dataclass(frozen=True, slots=True)
class RepoVariant:
    """One quant of a repo."""

    name: str
    """The path inside the repo without shard suffix and `.gguf`; printable."""
    quant: str | None
    """In lower case; None where neither the file's name nor its folder's has a quant in it."""
    files: tuple[RepoFile, ...]
    """The shards that are there, in order."""
    missing: tuple[str, ...] = ()
    """Paths of the shards that should be there and are not."""

    @property
    def file_bytes(self) -> int:
        """Over the files that are there."""
        return sum(file.n_bytes for file in self.files)

    def answers_to(self, quant: str) -> bool:
        """Whether a person who says `quant`, in any case, may mean this one: its quant, its name, or a file's name."""
        stem = self.name.rsplit("/", 1)[-1]
        names = (self.name, stem, f"{stem}.gguf", *(file.name for file in self.files), *(f.path for f in self.files))
        return names_quant(quant, self.quant, names)


@dataclass(frozen=True, slots=True)
class RepoListing:
    """What a repo holds at one commit."""

    repo: str
    """`org/name`, as the Hub spells it."""
    revision: str
    """What was asked for, `main` unless told."""
    commit: str
    """The 40 hex digits that the revision stood for."""
    variants: tuple[RepoVariant, ...]
    """Largest first."""
    sidecars: tuple[RepoFile, ...]
    """GGUF files that belong to a model without being one: projectors, importance matrices, draft heads."""
    n_other_files: int
    """Files that are no GGUF."""
    listed_at: str
    """UTC, ISO 8601: when the Hub was asked."""

    @property
    def total_bytes(self) -> int:
        """Of all variants together."""
        return sum(variant.file_bytes for variant in self.variants)


@dataclass(frozen=True, slots=True)
class RepoSummary:
    """One repo that a search found."""

    repo: str
    downloads: int | None
    """In the last 30 days, as the Hub counts."""
    likes: int | None
    last_modified: str | None
    """UTC, ISO 8601."""
    gated: bool
