"""Twins as sources of a target's file: made here, from the catalog or from the header of a published file.

The header is available before the file is made, so that a model that does not fit is reported first.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ggbench import paths
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import cached_twin, plan_twin, twin_of, write_cached
from ggbench.models.catalog import CatalogModel
from ggbench.models.repo_variants import FoundVariant, OnProgress

ARTICLE_QUANTS = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k")
"""Default quants of a twin: the article's eight, in its order."""

CONFIRM_ABOVE_BYTES = 10**9
"""Ask before a larger download; a smaller one proceeds with a notice."""


class SynthTwin(msgspec.Struct, frozen=True):
    """A twin of a catalog model."""

    model: CatalogModel
    quant: str
    download_bytes: int = 0

    def header(self) -> ModelFile:
        """Return the planned twin. Raises as `plan_twin` does."""
        return plan_twin(self.model.hyper, [self.quant], name=self.model.id)[self.quant]

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """Return the cached twin, written first if missing. Raises as `cached_twin` does."""
        return cached_twin(self.model.id, self.model.hyper, self.quant, paths.twins_dir(), on_progress=on_progress)

    def sizes(self) -> dict[str, int]:
        """Return the planned sizes of the article's eight quants, without headers."""
        planned = plan_twin(self.model.hyper, ARTICLE_QUANTS, name=self.model.id)
        return {quant: file.weight_bytes or file.file_bytes for quant, file in planned.items()}


class PublishedTwin(msgspec.Struct, frozen=True):
    """A twin of a Hub file, made from its real header."""

    found: FoundVariant
    download_bytes: int = 0
    """Headers are not counted."""

    def header(self) -> ModelFile:
        """Return the planned twin. Raises as `FoundVariant.header` and `twin_of` do."""
        return twin_of(self.found.header(), self.found.origin)

    def materialize(self, on_progress: OnProgress | None = None) -> Path:
        """Return the cached twin, written first if missing. Raises as `header` and `write_twin` do."""
        name = f"{self.found.repo}-{self.found.variant.name}"
        return write_cached(self.header(), name, paths.twins_dir(), on_progress)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the published files."""
        return self.found.sizes()


FileSource = FoundVariant | SynthTwin | PublishedTwin
"""How to obtain a target's GGUF."""
