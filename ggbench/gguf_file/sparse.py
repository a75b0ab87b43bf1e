"""Sparse files that llama.cpp can load without data: a header, then a hole as long as the tensors.

The file of a model of 118 GB takes some hundred kilobytes of a temporary folder.
"""

from __future__ import annotations

from pathlib import Path

from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.encoded_header import encode_header, write_sparse_file
from ggbench.gguf_file.header import read_local_header
from ggbench.gguf_file.header_bytes import ALIGNMENT, ALIGNMENT_KEY
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.twin import twin_of


def write_sparse(file: ModelFile, folder: Path) -> Path:
    """Write the model's header, followed by a hole, into `folder`, for each shard; return the path of the first.

    The header is the local file's where there is one, even without its tensors; otherwise it is encoded from `file`,
    without a tokenizer if `file` does not hold the tokenizer's arrays.
    Raises DoesNotFit if the file cannot be created, Unsupported for a header that cannot be encoded, and BadFile.
    """
    if not file.paths:
        whole = twin_of(file, file.name) if _lacks_arrays(file) else file
        header = encode_header(whole.metadata, whole.tensors)
        return write_sparse_file(folder / "model.gguf", header.data, header.file_bytes)
    first, *_ = [_copy(path, folder) for path in file.paths]
    return first


def _lacks_arrays(file: ModelFile) -> bool:
    """Whether the tokenizer's arrays were left out, as from a remote header, or the model is split into shards."""
    is_split = gguf_constants.Keys.Split.LLM_KV_SPLIT_COUNT in file.metadata
    return is_split or any(isinstance(value, ArrayLength) for value in file.metadata.values())


def _copy(path: Path, folder: Path) -> Path:
    header = read_local_header(path, allow_missing_data=True)
    stated = header.metadata.get(ALIGNMENT_KEY, ALIGNMENT)
    alignment = stated if isinstance(stated, int) and stated > 0 else ALIGNMENT
    end = header.data_offset + sum(-(-(tensor.n_bytes or 0) // alignment) * alignment for tensor in header.tensors)
    return write_sparse_file(folder / path.name, header.raw, max(end, header.file_bytes))
