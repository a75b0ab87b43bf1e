"""A vision or audio projector: the GGUF beside a model that llama.cpp loads with `--mmproj`.

llama.cpp puts all of its tensors on the first GPU, however many layers of the model are there, else in main memory, and
computes beside the model's own buffers. How large that compute buffer is depends on the image and is known only once
clip has reserved it, so it is not counted. Source: tools/mtmd/clip.cpp, `clip_ctx` and `load_tensors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.gguf_file.header import read_model_file
from ggbench.text import plain

_ARCHITECTURE = "clip"


@dataclass(frozen=True, slots=True)
class Projector:
    """A projector's file and what its tensors take."""

    path: Path
    weight_bytes: int
    """Without a compute buffer."""


def read_projector(path: Path) -> Projector:
    """Return the projector in a file, from its header. Raises BadFile for another kind of file."""
    file = read_model_file(path)
    if file.architecture != _ARCHITECTURE:
        raise BadFile(
            f"{plain(path.name)} is a model of the architecture {plain(file.architecture)}, not a projector",
            "give the file that is published beside the model as mmproj",
        )
    if file.weight_bytes is None:
        raise BadFile(
            f"{plain(path.name)} has tensors of unknown type: {plain(', '.join(file.unknown_types))}",
            "take another file of the projector, as F16",
        )
    return Projector(path, file.weight_bytes)
