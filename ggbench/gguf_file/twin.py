"""Twins: GGUF files of a model's true shape and types with no trained weights, to measure it before it is downloaded.

Speed depends on shapes and types, not on the values of the weights. A twin is planned as a ModelFile, which is enough
to count with, and written from it; its metadata marks it as a twin.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import ggbench
from ggbench.errors import BadFile, Unsupported, UsageError
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.blueprint import Hyperparameters, build_metadata, build_tensors
from ggbench.gguf_file.encoded_header import encode_header, encode_model
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.header_bytes import ALIGNMENT_KEY
from ggbench.gguf_file.layer_selection import select_layers
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quantizer import choose_types
from ggbench.gguf_file.quants import ftype_by_name
from ggbench.gguf_file.twin_writer import Progress, remove_abandoned_parts, write_twin

_FORMAT = 1
"""Version of the fill; a new one invalidates cached twins."""
_FINGERPRINT = "ggbench.twin.fingerprint"
_LEFT_OUT = ("tokenizer.", "split.", "ggbench.", ALIGNMENT_KEY)
"""Beginnings of keys that are not copied: a twin is one file with no tokenizer and the default alignment."""


def plan_twin(
    hyper: Hyperparameters, quants: Sequence[str], n_layer: int | None = None, *, name: str, source: str = ""
) -> dict[str, ModelFile]:
    """Return the twin of each quant as a ModelFile with no path, by the quant's name in lower case; write no file.

    `name` is the model's name, `source` where its shape comes from (`catalog:qwen1.5-7b`). `n_layer` makes a shallower
    model. The types are those that the installed llama.cpp gives a model of this depth without an importance matrix.
    Raises UnknownName for a quant, UsageError for one that needs such a matrix, EngineFailed.
    """
    if n_layer is not None:
        if n_layer > hyper.n_layer:
            raise UsageError(
                f"{name} has {hyper.n_layer} layers, not {n_layer}", "a twin may have fewer layers, never more"
            )
        hyper = dataclasses.replace(hyper, n_layer=n_layer)
    ftypes = {quant.lower(): ftype_by_name(quant) for quant in quants}
    metadata, tensors = build_metadata(hyper), build_tensors(hyper)
    by_quant = choose_types(metadata, tensors, ftypes)
    keys, version = gguf_constants.Keys.General, gguf_constants.GGML_QUANT_VERSION
    added = {quant: {keys.FILE_TYPE: ftype, keys.QUANTIZATION_VERSION: version} for quant, ftype in ftypes.items()}
    return {
        quant: _planned(f"{name} {quant}", metadata | added[quant], retyped, name, source)
        for quant, retyped in by_quant.items()
    }


def twin_of(model: ModelFile, source: str, layers: Sequence[int] | None = None) -> ModelFile:
    """Plan a twin with the tensors, types and metadata of a header, without its tokenizer.

    `source` names the original (`org/name`). Shards become one file. `layers` are those to keep, in this order; a layer
    may be kept several times. Raises Unsupported where the type of a tensor, or the size of the vocabulary, is unknown,
    and as `select_layers` does.
    """
    if model.n_vocab is None:
        raise Unsupported(
            f"{model.name}: its header does not give the size of its vocabulary", "measure the file itself"
        )
    metadata = {
        key: value
        for key, value in model.metadata.items()
        if not key.startswith(_LEFT_OUT) and value != [] and not isinstance(value, ArrayLength)
    }
    keys = gguf_constants.Keys
    metadata |= {keys.LLM.VOCAB_SIZE.format(arch=model.architecture): model.n_vocab, keys.Tokenizer.MODEL: "none"}
    tensors = tuple(dataclasses.replace(tensor, shard=0) for tensor in model.tensors)
    if layers is not None:
        metadata, tensors = select_layers(model, metadata, layers)
    return _planned(model.name, metadata, tensors, model.name, source)


def cached_twin(
    model_id: str,
    hyper: Hyperparameters,
    quant: str,
    directory: Path,
    n_layer: int | None = None,
    on_progress: Progress | None = None,
) -> Path:
    """Return the file of a catalog model's twin in this folder. Raises as `plan_twin` and `write_cached` do."""
    planned = plan_twin(hyper, [quant], n_layer, name=model_id, source=f"catalog:{model_id}")[quant.lower()]
    depth = "" if n_layer is None or n_layer == hyper.n_layer else f"-{n_layer}-layers"
    return write_cached(planned, f"{model_id}{depth}-{quant.lower()}", directory, on_progress)


def write_cached(planned: ModelFile, name: str, directory: Path, on_progress: Progress | None = None) -> Path:
    """Return the file of this twin in this folder, named after `name`; write it unless it is there and complete.

    Two processes may ask for the same twin at once: each writes its own, and the later one replaces the earlier.
    Raises as `write_twin` does.
    """
    path = directory / f"{_file_stem(name)}.gguf"
    if not _is_same(path, planned):
        remove_abandoned_parts(directory)
        write_twin(planned, path, on_progress)
    return path


def _planned(
    name: str, metadata: Mapping[str, object], tensors: Sequence[TensorInfo], model_name: str, source: str
) -> ModelFile:
    shape = hashlib.sha256(f"{_FORMAT} ".encode() + encode_header(metadata, tensors).data)
    return encode_model(
        {
            **metadata,
            gguf_constants.Keys.General.NAME: model_name,
            "ggbench.version": ggbench.__version__,
            "ggbench.twin": True,
            "ggbench.twin.source": source,
            _FINGERPRINT: shape.hexdigest()[:16],
        },
        tensors,
        name,
    )


def _is_same(path: Path, planned: ModelFile) -> bool:
    if not path.is_file():
        return False
    try:
        found = read_model_file(path)
    except BadFile:
        return False
    return found.file_bytes == planned.file_bytes and found.metadata.get(_FINGERPRINT) == planned.metadata[_FINGERPRINT]


def _file_stem(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).lstrip(".")
