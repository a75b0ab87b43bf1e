"""Twins of one model on disk, which have the tensors outside their layers in common.

Each is a model split into two files: its own layers, and a second file that all twins link to. The embedding and the
output of a model are as large as several of its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.encoded_header import encode_header
from ggbench.gguf_file.model_file import ModelFile, layer_of
from ggbench.gguf_file.shards import ShardName
from ggbench.gguf_file.twin_writer import write_twin


@dataclass(frozen=True, slots=True)
class TwinGroup:
    """The files of some twins, planned."""

    own: tuple[ModelFile, ...]
    """One of each twin, in their order."""
    shared: ModelFile | None
    """None where there is one twin alone, which is one file."""

    @property
    def file_bytes(self) -> int:
        """Bytes on disk of all files, each once."""
        files = [*self.own, *([self.shared] if self.shared is not None else [])]
        return sum(file.file_bytes for file in files)

    def write(self, number: int, folder: Path) -> Path:
        """Write what is missing of this twin to a folder that is removed after use, and return the path to load.

        Raises as `write_twin` does.
        """
        if self.shared is None:
            path = folder / f"twin-{number}.gguf"
            write_twin(self.own[number], path, is_kept=False)
            return path
        shared = folder / "shared.gguf"
        if not shared.exists():
            write_twin(self.shared, shared, is_kept=False)
        name = ShardName(f"twin-{number}", 1, 2)
        (folder / name.sibling(2)).symlink_to(shared.name)
        path = folder / name.sibling(1)
        write_twin(self.own[number], path, is_kept=False)
        return path


def group_twins(twins: Sequence[ModelFile]) -> TwinGroup:
    """Plan the files of twins of one model, which are planned as whole files each."""
    if len(twins) == 1:
        return TwinGroup((twins[0],), None)
    own = tuple(_part(twin, 0, in_layers=True) for twin in twins)
    return TwinGroup(own, _part(twins[0], 1, in_layers=False))


def _part(twin: ModelFile, number: int, *, in_layers: bool) -> ModelFile:
    """One of the two files of a twin, with the tensors inside or outside its layers."""
    keys = gguf_constants.Keys.Split
    metadata = twin.metadata | {
        keys.LLM_KV_SPLIT_NO: number,
        keys.LLM_KV_SPLIT_COUNT: 2,
        keys.LLM_KV_SPLIT_TENSORS_COUNT: len(twin.tensors),
    }
    tensors = tuple(tensor for tensor in twin.tensors if (layer_of(tensor.name) is not None) is in_layers)
    return replace(twin, metadata=metadata, tensors=tensors, file_bytes=encode_header(metadata, tensors).file_bytes)
