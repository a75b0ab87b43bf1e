"""Write a planned twin to disk: completely or not at all, at the speed of the disk.

A file under the final name is always complete: it is written under a temporary name in the same folder, then renamed. A
tensor's bytes are a random tile for each type, quantized once and repeated. The tile's length is a large prime times
the longest block, so it never divides a row: every row starts at a different offset in the tile, and a thousand
adjacent rows are all different.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.errors import UsageError
from ggbench.files import disk_errors, make_folders, require_room, take_name, written_aside
from ggbench.gguf_file.ggml_types import GgmlType, type_by_name
from ggbench.gguf_file.header import encode_header, n_padding
from ggbench.gguf_file.model_file import ModelFile, TensorInfo

if TYPE_CHECKING:
    import numpy as np

Progress = Callable[[int, int], None]
"""Called with the bytes written and the total bytes."""

_REPORT_BYTES = 16 << 20

_BLOCK = 256
_N_BLOCKS = 1021
_CHUNK_BYTES = 1 << 20
"""Small enough to stay in a CPU's cache during repeated writes."""
_OWN_ELEMENTS = 1 << 22
"""An f32 tensor up to this size gets unique values: norms, biases, and routers, whose rows must differ."""
_WEIGHT_SCALE = 0.02
"""Standard deviation of matrices at the usual initialization of transformers."""
_SEED = 20240424
_INTEGERS = frozenset({"i8", "i16", "i32", "i64", "f64"})


def write_twin(
    planned: ModelFile, path: Path, on_progress: Progress | None = None, *, is_kept: bool = True
) -> None:
    """Write the twin of this plan to `path`, replacing any file there; the same plan gives the same bytes.

    Missing folders are created. A temporary file is not synced to disk. Raises DoesNotFit before writing if the disk
    lacks room, or when it fills up; UsageError if the folder cannot be written to. After any failure, including Ctrl-C,
    no file is left behind.
    """
    if not planned.is_twin:
        raise ValueError(f"{planned.name} is not a twin's plan")
    header = encode_header(planned.metadata, planned.tensors)
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "give a file to write")
    require_room(path.parent, header.file_bytes, "the twin needs")
    with disk_errors(path.parent):
        make_folders(path.parent)
        with written_aside(path) as part:
            with part.open("wb") as file:
                report_at = 0
                for chunk in _pieces(planned, header.data):
                    file.write(chunk)
                    if on_progress is not None and file.tell() >= report_at:
                        report_at = file.tell() + _REPORT_BYTES
                        on_progress(file.tell(), header.file_bytes)
            if is_kept:
                take_name(part, path)
            else:
                part.replace(path)
    if on_progress is not None:
        on_progress(header.file_bytes, header.file_bytes)


def _pieces(planned: ModelFile, header: bytes) -> Iterator[bytes | memoryview]:
    yield header
    for tensor in planned.tensors:
        yield from _chunks(tensor)
        yield bytes(n_padding(tensor.n_bytes or 0))


def _chunks(tensor: TensorInfo) -> Iterator[memoryview]:
    """Yield the bytes of this tensor, about 1 MiB at a time. Raises Unsupported for a type without a quantizer."""
    ggml_type = type_by_name(tensor.type_name)
    left = ggml_type.row_bytes(tensor.n_elements)
    if ggml_type.name == "f32" and tensor.n_elements <= _OWN_ELEMENTS:
        yield memoryview(_own_values(tensor).tobytes())
        return
    buffer, period = _repeated_tile(ggml_type)
    start = zlib.crc32(tensor.name.encode("utf-8", "surrogateescape")) % _N_BLOCKS * (period // _N_BLOCKS)
    n_chunk = len(buffer) - period
    while left > 0:
        chunk = buffer[start : start + min(n_chunk, left)]
        left -= len(chunk)
        yield chunk


@functools.lru_cache(maxsize=8)
def _repeated_tile(ggml_type: GgmlType) -> tuple[memoryview, int]:
    """Return a buffer of complete tiles, one more than a chunk needs, and the bytes of one tile."""
    import numpy as np

    from ggbench.gguf_file.quantizer import quantize

    if ggml_type.name in _INTEGERS:
        tile = bytes(ggml_type.row_bytes(_BLOCK * _N_BLOCKS))
    else:
        values = np.random.default_rng(_SEED).standard_normal(_BLOCK * _N_BLOCKS, dtype=np.float32)
        tile = quantize(ggml_type, values * np.float32(_WEIGHT_SCALE))
    return memoryview(tile * (1 + max(1, _CHUNK_BYTES // len(tile)))), len(tile)


def _own_values(tensor: TensorInfo) -> np.ndarray:
    """Return values like those of trained models, so that activations neither vanish nor overflow."""
    import numpy as np

    name = tensor.name
    generator = np.random.default_rng([_SEED, zlib.crc32(name.encode("utf-8", "surrogateescape"))])
    values = generator.standard_normal(tensor.n_elements, dtype=np.float32) * np.float32(_WEIGHT_SCALE)
    if name.endswith("ssm_a"):
        values = -1 - np.abs(values)  # a decay: llama.cpp takes its exponential
    if name.endswith("norm.weight") or name.startswith("rope_"):
        values += 1
    return values
