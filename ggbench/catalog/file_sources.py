"""Sources of a target's file when it is not on this disk: a twin made here, or a download.

The header is available before the file is made or downloaded, so that a model that does not fit is reported first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ggbench.catalog.models import CatalogModel
from ggbench.catalog.repo_variants import FoundVariant
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import cached_twin, plan_twin, twin_of, write_cached

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess

ARTICLE_QUANTS = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k")
"""Default quants of a twin: the article's eight, in its order."""

CONFIRM_ABOVE_BYTES = 10**9
"""Ask before a larger download; a smaller one proceeds with a notice."""

OnProgress = Callable[[int, int], None]
"""Receives the bytes present and the total; may raise to cancel."""


class FileSource(Protocol):
    """How to obtain a target's GGUF."""

    @property
    def download_bytes(self) -> int:
        """Bytes that `materialize` would still download, headers excluded."""

    def header(self) -> ModelFile:
        """Return the header of the file; downloads at most the header and caches it. Raises GgbenchError."""

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """Return the file or its first shard, made or downloaded where incomplete. Raises GgbenchError."""

    def sizes(self) -> dict[str, int]:
        """Return the size of every available quant of this model; a twin's without its header."""


@dataclass(frozen=True, slots=True)
class SynthTwin:
    """A twin of a catalog model."""

    model: CatalogModel
    quant: str
    folder: Path
    """Folder for twins."""
    download_bytes: int = 0
    """It is made from the catalog alone."""

    def header(self) -> ModelFile:
        """Return the planned twin. Raises as `plan_twin` does."""
        return plan_twin(self.model.hyper, [self.quant], name=self.model.id)[self.quant]

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """Return the cached twin, written first if missing. Raises as `cached_twin` does."""
        return cached_twin(self.model.id, self.model.hyper, self.quant, self.folder, on_progress=on_progress)

    def sizes(self) -> dict[str, int]:
        """Return the planned sizes of the article's eight quants."""
        planned = plan_twin(self.model.hyper, ARTICLE_QUANTS, name=self.model.id)
        return {quant: file.weight_bytes or file.file_bytes for quant, file in planned.items()}


@dataclass(frozen=True, slots=True)
class PublishedTwin:
    """A twin of a Hub file, made from its real header."""

    access: HubAccess
    found: FoundVariant
    folder: Path
    """Folder for twins."""
    download_bytes: int = 0
    """Only the header is downloaded."""

    def header(self) -> ModelFile:
        """Return the planned twin. Raises as `published_header` and `twin_of` do."""
        return twin_of(published_header(self.access, self.found), self.found.origin)

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """Return the cached twin, written first if missing. Raises as `header` and `write_twin` do."""
        name = f"{self.found.repo}-{self.found.variant.name}"
        return write_cached(self.header(), name, self.folder, on_progress)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the published files."""
        return self.found.sizes()


@dataclass(frozen=True, slots=True)
class HubDownload:
    """A Hub file that is not on this disk yet."""

    access: HubAccess
    found: FoundVariant

    @property
    def download_bytes(self) -> int:
        """Size of the files minus parts of an earlier try; 0 where a shard is missing."""
        from ggbench.hub.download import needed_bytes

        if self.found.variant.missing:
            return 0
        return needed_bytes(self.access, self.found.listing, self.found.variant)

    def header(self) -> ModelFile:
        """Return the header, read by range where the file is not local. Raises as `published_header` does."""
        from ggbench.hub.hf_cache import cached_paths

        here = cached_paths(self.access, self.found.listing, self.found.repo, self.found.variant)
        return published_header(self.access, replace(self.found, paths=here))

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """Download into Hugging Face's cache. Raises as `hub.download.download` does, BadFile for a missing shard."""
        from ggbench.hub.download import download
        from ggbench.hub.download_progress import FileProgress, summed

        def on_files(files: tuple[FileProgress, ...]) -> None:
            if on_progress is not None:
                on_progress(*summed(files)[:2])

        self.found.require_all_shards()
        return download(self.access, self.found.listing, self.found.variant, on_progress=on_files)[0]

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the repo's files."""
        return self.found.sizes()


def published_header(access: HubAccess, found: FoundVariant) -> ModelFile:
    """Return the header of a published file, from this disk if it is there, else from the Hub by range.

    Raises NetworkError, and BadFile for a broken header or a missing shard.
    """
    found.require_all_shards()
    if found.paths:
        return read_model_file(found.paths[0])
    from ggbench.hub.headers import read_variant_header

    return read_variant_header(access, found.listing, found.variant)
