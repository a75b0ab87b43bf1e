"""Files that llama.cpp takes for a model as long as it reads no tensor: a header, then a hole of the tensors' length.

A file of 118 GB so takes some hundred kilobytes of a temporary folder.
"""

from __future__ import annotations

from pathlib import Path

from ggbench.errors import DoesNotFit
from ggbench.gguf_file.encoded_header import ALIGNMENT, encode_header
from ggbench.gguf_file.header import read_local_header
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.twin import twin_of


def write_sparse(file: ModelFile, folder: Path) -> Path:
    """Write the model's header with a hole behind it into `folder`; for a split model each shard. The first one's path.

    The header is that of the local file where there is one, which may lack its tensors, else it is made from `file`,
    with no tokenizer where `file` has lost it.
    Raises DoesNotFit where the folder takes no such file, Unsupported for a header that cannot be made, and BadFile.
    """
    try:
        if not file.paths:
            whole = twin_of(file, file.name) if _lacks_arrays(file) else file
            header = encode_header(whole.metadata, whole.tensors)
            return _write(folder / "model.gguf", header.data, header.file_bytes)
        first, *_ = [_copy(path, folder) for path in file.paths]
        return first
    except OSError as error:
        raise DoesNotFit(
            f"no temporary file for a header: {error.strerror}", "set TMPDIR to a folder with room"
        ) from error


def _lacks_arrays(file: ModelFile) -> bool:
    """Whether it was read from elsewhere, where the tokenizer's arrays were left out, or is split into shards."""
    return "split.count" in file.metadata or any(isinstance(value, ArrayLength) for value in file.metadata.values())


def _copy(path: Path, folder: Path) -> Path:
    header = read_local_header(path, allow_missing_data=True)
    stated = header.metadata.get("general.alignment", ALIGNMENT)
    alignment = stated if isinstance(stated, int) and stated > 0 else ALIGNMENT
    end = header.data_offset + sum(-(-(tensor.n_bytes or 0) // alignment) * alignment for tensor in header.tensors)
    return _write(folder / path.name, header.raw, max(end, header.file_bytes))


def _write(path: Path, data: bytes, n_bytes: int) -> Path:
    with path.open("wb") as file:
        file.write(data)
        file.truncate(n_bytes)
    return path
