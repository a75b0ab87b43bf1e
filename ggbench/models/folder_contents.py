"""Read the header of every GGUF in and below a folder; a bad file is listed with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import BadFile, GgbenchError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import quant_label
from ggbench.models.local_files import MAX_FOLDERS, LocalVariant, variants_in
from ggbench.text import plain
from ggbench.units import format_count


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One GGUF of a folder, or the shards of one."""

    variant: LocalVariant
    file: ModelFile | None
    """None where the header cannot be read."""
    reason: str
    """Why it cannot be loaded; empty where it can."""

    @property
    def quant(self) -> str | None:
        """By its name or its folder's, else by its header; None where neither has one."""
        return self.variant.quant or (quant_label(self.file) if self.file is not None else None)


def read_folder(folder: Path) -> Iterator[FolderEntry]:
    """Yield every GGUF in and below a folder by name, sidecars included. Raises BadFile where there is none."""
    try:
        variants, is_truncated = variants_in(folder, with_sidecars=True)
    except OSError as error:
        raise BadFile(f"{plain(str(folder))} cannot be read: {error.strerror}", "check the path") from None
    if is_truncated:
        what = f"{plain(str(folder))} has more than {format_count(MAX_FOLDERS)} folders"
        raise BadFile(what, "give one of them")
    if not variants:
        raise BadFile(f"no GGUF file in {plain(str(folder))} or the folders below", "give a .gguf file, or its folder")
    for variant in sorted(variants, key=lambda each: each.name.lower()):
        try:
            file = read_model_file(variant.paths[0], allow_missing_data=True)
        except GgbenchError as error:
            yield FolderEntry(variant, None, variant.shortage or error.message)
        else:
            truncation = file.truncation and f"truncated: {file.truncation}"
            yield FolderEntry(variant, file, variant.shortage or truncation)
