"""Run llama.cpp's own quantizer: to get the type of each tensor, and to quantize numbers.

Its mixture of types for a quant depends on the whole shape of a model and changes between releases, so it is run, not
imitated. A dry run reports its choices only in the log, so they are parsed there.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from ggbench import paths
from ggbench.errors import BindingFailed, EngineFailed, Unsupported
from ggbench.files import get_cached, put_cached, temporary_folder
from ggbench.gguf_file.ggml_types import GgmlType, tensor_bytes
from ggbench.gguf_file.gguf_constants import defer_package
from ggbench.gguf_file.header import encode_header, write_sparse_file
from ggbench.gguf_file.model_file import TensorInfo

if TYPE_CHECKING:
    import numpy as np

_TENSOR = re.compile(
    r"\[ *\d+/ *\d+\] +(?P<name>\S+) +- +\[[\d, ]*\], +type = +(?P<before>\w+), "
    r"+size = +[\d.]+ MiB(?: +-> +[\d.]+ MiB \((?P<after>\w+)\))?"
)
_NOT_QUANTIZABLE = frozenset({"q8_1", "q8_K", "i8", "i16", "i32", "i64", "f64"})
"""Types for which ggml aborts the process; the first two are for internal arithmetic."""

_WITH_IMPORTANCE = "iq"
"""Prefix of the quants whose types are chosen as with an importance matrix."""

_log_in_use = threading.Lock()
"""llama.cpp has one log callback for the whole process."""


def choose_types(
    metadata: Mapping[str, object], tensors: Sequence[TensorInfo], ftypes: Mapping[str, int]
) -> dict[str, tuple[TensorInfo, ...]]:
    """Return for each quant the tensors with their types and bytes from llama.cpp's quantizer.

    `tensors` are those of the unquantized model; `ftypes` maps a quant's name to llama.cpp's number. llama.cpp reads a
    sparse file with no data after the header, so the tensors take no disk space. Its choices are cached for each model
    and build. They depend on whether there is an importance matrix: i-quants are rarely published without one, so
    theirs are made as if there were one, those of other quants without. Raises EngineFailed if llama.cpp refuses.
    """
    listed = tuple(tensors)
    header = encode_header(metadata, listed)
    cache = paths.caches_dir() / "quant_types" / f"{hashlib.sha256(header.data + _build()).hexdigest()}.json"
    chosen = _cached(cache, len(listed))
    missing = {quant: ftype for quant, ftype in ftypes.items() if quant not in chosen}
    if missing:
        with temporary_folder() as folder:
            path = write_sparse_file(folder / "model.gguf", header.data, header.file_bytes)
            for quant, ftype in missing.items():
                chosen[quant] = _chosen(quant, listed, _dry_run(os.fsencode(path), quant, ftype))
        put_cached(cache, msgspec.json.encode(chosen))
    return {quant: tuple(map(_retyped, listed, chosen[quant])) for quant in ftypes}


def _build() -> bytes:
    """Return a fingerprint of the llama.cpp build, without loading it (its libraries' sizes and times), and of the way
    it is asked.
    """
    spec = importlib.util.find_spec("llama_cpp")
    folders = (spec and spec.submodule_search_locations) or ()
    files = sorted(file for folder in folders for file in Path(folder, "lib").glob("lib*"))
    return repr(
        [_WITH_IMPORTANCE, *((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)]
    ).encode()


def _cached(path: Path, n_tensors: int) -> dict[str, list[str]]:
    """Return the types of each quant's tensors from an earlier dry run; empty without one."""
    with contextlib.suppress(msgspec.DecodeError):
        found = msgspec.json.decode(get_cached(path) or b"{}", type=dict[str, list[str]])
        return {quant: types for quant, types in found.items() if len(types) == n_tensors}
    return {}


def quantize(ggml_type: GgmlType, values: np.ndarray) -> bytes:
    """Quantize float32 numbers, whole blocks of 256, with equal importance. Raises Unsupported for some types."""
    import numpy as np

    if ggml_type.name in _NOT_QUANTIZABLE:
        raise Unsupported(f"ggml has no quantizer for {ggml_type.name}", "use a file of another quant")
    library = _functions()._lib  # also resolves ggml's symbols, in the library loaded by llama_cpp
    library.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    row_length = 256
    source = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, row_length)
    target = np.empty(ggml_type.row_bytes(source.size), dtype=np.uint8)
    importance = np.ones(row_length, dtype=np.float32)
    library.ggml_quantize_chunk(
        ctypes.c_int(ggml_type.type_id),
        ctypes.c_void_p(source.ctypes.data),
        ctypes.c_void_p(target.ctypes.data),
        ctypes.c_int64(0),
        ctypes.c_int64(len(source)),
        ctypes.c_int64(row_length),
        ctypes.c_void_p(
            importance.ctypes.data if library.ggml_quantize_requires_imatrix(ggml_type.type_id) else None
        ),
    )
    return target.tobytes()


def _functions() -> ModuleType:
    defer_package("llama_cpp")
    import llama_cpp.llama_cpp as functions

    return functions  # type: ignore[no-any-return]


def _dry_run(path: bytes, quant: str, ftype: int) -> str:
    lib = _functions()
    params = lib.llama_model_quantize_default_params()
    wanted = {"ftype": ftype, "dry_run": True, "nthread": 1}
    if quant.startswith(_WITH_IMPORTANCE):
        entry = lib.llama_model_imatrix_data
        # a null name ends the list
        wanted["imatrix"] = (entry * 2)(entry(b"any tensor", (ctypes.c_float * 1)(1.0), 1))
    fields = [name for name, *_ in params._fields_]
    for name, value in wanted.items():
        if name not in fields:
            raise BindingFailed(f"this llama.cpp's quantizer has no {name}")
        setattr(params, name, value)
    with _captured_log() as lines:
        status = lib.llama_model_quantize(path, b"", ctypes.byref(params))
    log = b"".join(lines).decode("utf-8", "replace")
    if status != 0:
        reason = log.strip().rpartition("\n")[2]
        raise EngineFailed(f"llama.cpp does not quantize this model to {quant}: {reason}", "use another quant")
    return log


@contextlib.contextmanager
def _captured_log() -> Iterator[list[bytes]]:
    lib = _functions()
    lines: list[bytes] = []
    keep = lib.llama_log_callback(lambda _level, text, _user_data: lines.append(text))
    with _log_in_use:
        before, user_data = lib.llama_log_callback(), ctypes.c_void_p()
        lib.llama_log_get(ctypes.byref(before), ctypes.byref(user_data))
        lib.llama_log_set(keep, None)
        try:
            yield lines
        finally:
            lib.llama_log_set(before, user_data)


def _chosen(quant: str, tensors: Sequence[TensorInfo], log: str) -> list[str]:
    """Return the type of each tensor, from the log of a dry run."""
    by_name = {match["name"]: match["after"] or match["before"] for match in _TENSOR.finditer(log)}
    missing = [tensor.name for tensor in tensors if tensor.name not in by_name]
    if missing:
        raise BindingFailed(f"llama.cpp's quantizer did not report {missing[0]} for {quant}")
    return [by_name[tensor.name] for tensor in tensors]


def _retyped(tensor: TensorInfo, type_name: str) -> TensorInfo:
    return TensorInfo(tensor.name, tensor.shape, type_name, tensor_bytes(type_name, tensor.shape))
