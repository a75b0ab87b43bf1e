"""Where the file of a target comes from when it is not on this disk: made here as a twin, or downloaded.

A source is asked for the header first, which makes and downloads no file, so that what does not fit is told before
anything is spent on it.
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

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess

ARTICLE_QUANTS = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k")
"""What a twin is made in when no quant is named: the eight of the article, in its order."""

CONFIRM_ABOVE_BYTES = 10**9
"""Up to this a download goes ahead with a notice; more is asked for first."""

OnProgress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes in all; it may raise to stop."""


class FileSource(Protocol):
    """How a target's file is had."""

    @property
    def download_bytes(self) -> int:
        """What `materialize` would still move over the network; a header is not counted."""

    def header(self) -> ModelFile:
        """What the file will hold; at most a header is downloaded, and it is kept. Raises GgbenchError."""

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """The file, or the first shard, made or downloaded where it is not there whole. Raises GgbenchError."""

    def sizes(self) -> dict[str, int]:
        """Bytes of every quant that there is of this model, by its name; a twin's without its header."""


@dataclass(frozen=True, slots=True)
class SynthTwin:
    """A twin of a catalog model."""

    model: CatalogModel
    quant: str
    folder: Path
    """Where twins are kept."""

    @property
    def download_bytes(self) -> int:
        """Nothing: it is made from the catalog alone."""
        return 0

    def header(self) -> ModelFile:
        """The plan of the twin. Raises as `plan_twin` does."""
        from ggbench.gguf_file.twin import plan_twin

        return plan_twin(self.model.hyper, [self.quant], name=self.model.id)[self.quant]

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """The twin in the cache, written first where it is not there. Raises as `cached_twin` does."""
        from ggbench.gguf_file.twin import cached_twin

        return cached_twin(self.model.id, self.model.hyper, self.quant, self.folder, on_progress=on_progress)

    def sizes(self) -> dict[str, int]:
        """Of the article's eight, by plan."""
        from ggbench.gguf_file.twin import plan_twin

        planned = plan_twin(self.model.hyper, ARTICLE_QUANTS, name=self.model.id)
        return {quant: file.weight_bytes or file.file_bytes for quant, file in planned.items()}


@dataclass(frozen=True, slots=True)
class PublishedTwin:
    """A twin of a file on the Hub, from its real header."""

    access: HubAccess
    found: FoundVariant
    folder: Path
    """Where twins are kept."""

    @property
    def download_bytes(self) -> int:
        """Nothing but the header."""
        return 0

    def header(self) -> ModelFile:
        """The plan of the twin. Raises as `published_header` and `twin_of` do."""
        from ggbench.gguf_file.twin import twin_of

        return twin_of(published_header(self.access, self.found), self.found.origin)

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """The twin in the cache, written first where it is not there. Raises as `header` and `write_twin` do."""
        from ggbench.gguf_file.twin import cached_twin_of

        published = published_header(self.access, self.found)
        name = f"{self.found.repo}-{self.found.variant.name}"
        return cached_twin_of(published, self.found.origin, name, self.folder, on_progress)

    def sizes(self) -> dict[str, int]:
        """Of the published files."""
        return self.found.sizes()


@dataclass(frozen=True, slots=True)
class HubDownload:
    """A file on the Hub that is not on this disk, until `materialize` has been there."""

    access: HubAccess
    found: FoundVariant

    @property
    def download_bytes(self) -> int:
        """The whole of it without the parts that an earlier try has left; zero where it cannot be had."""
        from ggbench.hub.download import needed_bytes

        if self.found.variant.missing:
            return 0
        return needed_bytes(self.access, self.found.listing, self.found.variant)

    def header(self) -> ModelFile:
        """The header, read by range where the file is not here. Raises as `published_header` does."""
        from ggbench.hub.hf_cache import cached_paths

        here = cached_paths(self.access, self.found.listing, self.found.repo, self.found.variant)
        return published_header(self.access, replace(self.found, paths=here))

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """The file in Hugging Face's cache. Raises as `hub.download.download` does, BadFile for a missing shard."""
        from ggbench.hub.download import download

        self.found.require_all_shards()
        return download(self.access, self.found.listing, self.found.variant, on_progress=on_progress)[0]

    def sizes(self) -> dict[str, int]:
        """Of the files of the repo."""
        return self.found.sizes()


def published_header(access: HubAccess, found: FoundVariant) -> ModelFile:
    """What a published file holds, from this disk where it is there, else from the Hub by range.

    Raises NetworkError, and BadFile for a header that is broken or of which a shard is missing.
    """
    found.require_all_shards()
    if found.paths:
        return read_model_file(found.paths[0])
    from ggbench.hub.headers import read_variant_header

    return read_variant_header(access, found.listing, found.variant)
