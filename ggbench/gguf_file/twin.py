"""Twins: GGUF files with a model's true shape and types but no trained weights, to measure it before downloading it.

Speed depends on shapes and types, not on weight values. A twin is planned as a ModelFile, which is enough for counting,
and written from it; its metadata marks it as a twin. A twin with only some layers lets each kind of layer be measured
alone: llama.cpp derives windows, recurrent states and experts from a layer's index and the number of layers, so the
selection's metadata states them. A sparse file, a header followed by a hole as long as the tensors, loads without data:
for a 118 GB model it takes a few hundred kilobytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.errors import BadFile, Unsupported, UsageError
from ggbench.files import remove_left, require_room
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.architecture import RECURRENT_LAYERS, has_windows, is_between_attention
from ggbench.gguf_file.ggml_types import tensor_bytes
from ggbench.gguf_file.header import (
    SPLIT_COUNT,
    encode_header,
    encode_model,
    read_local_header,
    read_model_file,
    write_sparse_file,
)
from ggbench.gguf_file.hyperparameters import FAMILIES, Hyperparameters
from ggbench.gguf_file.layout import build_metadata, build_tensors
from ggbench.gguf_file.model_file import SCALED_KEY, ModelFile, TensorInfo, layer_of, tensors_by_layer
from ggbench.gguf_file.parser import ALIGNMENT, ALIGNMENT_KEY, ArrayLength
from ggbench.gguf_file.quantizer import choose_types
from ggbench.gguf_file.quants import ftype_by_name
from ggbench.gguf_file.twin_writer import Progress, write_twin
from ggbench.paths import forecasts_dir
from ggbench.text import sanitize

_FORMAT = 1
"""Version of the fill; a new one invalidates cached twins."""
_FINGERPRINT = "ggbench.twin.fingerprint"
_LEFT_OUT = ("tokenizer.", "split.", "ggbench.", ALIGNMENT_KEY)
"""Prefixes of keys not to copy: a twin is one file with no tokenizer and the default alignment."""


def plan_twin(
    hyper: Hyperparameters, quants: Sequence[str], *, name: str, source: str = ""
) -> dict[str, ModelFile]:
    """Return the twin of each quant as a ModelFile with no path, by the quant's name in lower case; write no file.

    `name` is the model's name, `source` the source of its shape (`catalog:qwen1.5-7b`). The types are those chosen
    by the installed llama.cpp, except those of experts that are never requantized. Raises UnknownName for a quant,
    EngineFailed.
    """
    ftypes = {quant.lower(): ftype_by_name(quant) for quant in quants}
    metadata, tensors = build_metadata(hyper), build_tensors(hyper)
    planned = {}
    for quant, retyped in choose_types(metadata, tensors, ftypes).items():
        added = {
            "general.file_type": ftypes[quant],
            "general.quantization_version": gguf_constants.GGML_QUANT_VERSION,
        }
        if experts := FAMILIES[hyper.architecture].experts_type:
            retyped = tuple(
                replace(each, type_name=experts, n_bytes=tensor_bytes(experts, each.shape))
                if each.name.endswith("_exps.weight")
                else each
                for each in retyped
            )
        planned[quant] = _planned(f"{name} {quant}", metadata | added, retyped, name, source)
    return planned


def scaled(model: ModelFile, file_bytes: int, name: str, mark: str = "") -> ModelFile:
    """Return a model whose matrices have other sizes in the same proportions, so that they fill a file.

    The header keeps their types, which llama.cpp's allocator needs. Its hash is of no file, and its key of no other
    model, so that no run of the unscaled types counts for it.
    """
    scaled_bytes = sum(each.n_bytes or 0 for each in model.tensors if each.type_name != "f32")
    share = 1 + (file_bytes - model.file_bytes) / max(1, scaled_bytes)
    tensors = tuple(
        each if each.type_name == "f32" else replace(each, n_bytes=round((each.n_bytes or 0) * share))
        for each in model.tensors
    )
    return replace(
        model,
        name=name,
        tensors=tensors,
        file_bytes=file_bytes,
        header_sha256=hashlib.sha256(f"{model.header_sha256} {file_bytes}".encode()).hexdigest(),
        metadata={**model.metadata, SCALED_KEY: f"{mark}{file_bytes}"},
    )


def twin_of(model: ModelFile, source: str, layers: Sequence[int] | None = None) -> ModelFile:
    """Plan a twin with the tensors, types and metadata of a header, without its tokenizer.

    `source` names the original (`org/name`). Shards become one file. `layers` are those to keep, in this order; a layer
    may be kept several times. Raises Unsupported if the type of a tensor, or the size of the vocabulary, is unknown,
    and like `select_layers`.
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
    metadata |= {f"{model.architecture}.vocab_size": model.n_vocab, "tokenizer.ggml.model": "none"}
    tensors = tuple(replace(tensor, shard=0) for tensor in model.tensors)
    if layers is not None:
        metadata, tensors = select_layers(model, metadata, layers)
    return _planned(model.name, metadata, tensors, model.name, source)


def cached_twin(
    model_id: str,
    hyper: Hyperparameters,
    quant: str,
    directory: Path,
    on_progress: Progress | None = None,
) -> Path:
    """Return the file of a catalog model's twin in this folder. Raises like `plan_twin` and `write_cached`."""
    planned = plan_twin(hyper, [quant], name=model_id, source=f"catalog:{model_id}")[quant.lower()]
    return write_cached(planned, f"{model_id}-{quant.lower()}", directory, on_progress)


def write_cached(planned: ModelFile, name: str, directory: Path, on_progress: Progress | None = None) -> Path:
    """Return the file of this twin in this folder, named after `name`; write it unless a complete one exists.

    Two processes may need the same twin at once: each writes its own, and the later replaces the earlier. Raises like
    `write_twin`, and UsageError rather than replace a model that is no twin.
    """
    path = directory / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name).lstrip('.')}.gguf"
    if not _is_same(path, planned):
        write_twin(planned, path, on_progress)
    return path


_SPECIAL = ("<unk>", "<s>", "</s>")
_UNKNOWN, _CONTROL, _NORMAL, _BYTE = 2, 3, 1, 6
"""Types of llama.cpp's tokens (`llama_token_type` in llama.h)."""


def with_vocabulary(twin: ModelFile, directory: Path) -> Path:
    """Return a copy of a twin in this folder with made words as its vocabulary, for programs that print tokens.

    Raises Unsupported for a vocabulary without room for every byte, and like `write_cached`.
    """
    words = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    # a server withholds a byte above 127 until its character is complete, and with it the token's time
    types = [_UNKNOWN, *[_CONTROL] * (len(_SPECIAL) - 1), *[_BYTE] * 128, *[_NORMAL] * 128]
    n_made = (twin.n_vocab or 0) - len(words)
    if n_made < 0:
        raise Unsupported(f"{twin.name}: a vocabulary needs at least {len(words)} tokens", "use a larger twin")
    kept = {key: value for key, value in twin.metadata.items() if not key.startswith(_LEFT_OUT)}
    vocabulary = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*words, *(f"\u2581{number}" for number in range(n_made))],
        "tokenizer.ggml.scores": [0.0] * len(words) + [float(-number) for number in range(n_made)],
        "tokenizer.ggml.token_type": [*types, *[_NORMAL] * n_made],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    names = (str(twin.metadata[key]) for key in ("general.name", "ggbench.twin.source"))
    planned = _planned(twin.name, kept | vocabulary, twin.tensors, *names)
    planned = replace(planned, metadata={**planned.metadata, **vocabulary})  # arrays, not their lengths
    stem = twin.paths[0].stem if twin.paths else twin.name
    return write_cached(planned, f"{stem}-{planned.metadata[_FINGERPRINT]}-vocabulary", directory)


def _planned(
    name: str, metadata: Mapping[str, object], tensors: Sequence[TensorInfo], model_name: str, source: str
) -> ModelFile:
    shape = hashlib.sha256(f"{_FORMAT} ".encode() + encode_header(metadata, tensors).data)
    return encode_model(
        {
            **metadata,
            "general.name": model_name,
            "ggbench.twin": True,
            "ggbench.twin.source": source,
            _FINGERPRINT: shape.hexdigest()[:16],
        },
        tensors,
        name,
    )


def _is_same(path: Path, planned: ModelFile) -> bool:
    try:
        found = read_model_file(path)
    except BadFile:
        return False
    if not found.is_twin:
        raise UsageError(
            f"{sanitize(str(path))} exists already and is no twin", "move it, or name another folder"
        )
    return (
        found.file_bytes == planned.file_bytes
        and found.metadata.get(_FINGERPRINT) == planned.metadata[_FINGERPRINT]
    )


_INDEX_MATTERS = "behaves in a layer according to its index"
_NOT_ALONE = {
    "gemma3n": "has a table with a part for each layer",
    "gemma4": "has a table with a part for each layer",
    "llama4": _INDEX_MATTERS,
    "smallthinker": _INDEX_MATTERS,
    "ernie4_5-moe": _INDEX_MATTERS,
    "kimi-k3": _INDEX_MATTERS,
    "deepseek4": _INDEX_MATTERS,
    "glm-dsa": _INDEX_MATTERS,
    "glm5-next": _INDEX_MATTERS,
    "qwen4exp": _INDEX_MATTERS,
}
"""Architectures whose layers change at another index or without the others, and why."""


def select_layers(
    model: ModelFile, metadata: Mapping[str, object], layers: Sequence[int]
) -> tuple[dict[str, object], tuple[TensorInfo, ...]]:
    """Return `metadata` and the tensors of `model` with only these layers, in this order and numbered from 0.

    A layer may be given several times. Layers without experts must come before those with them. Raises
    Unsupported if a header cannot express the selection.
    """
    by_layer = tensors_by_layer(model.tensors)
    routed = [any("_exps." in tensor.name for tensor in by_layer.get(layer, ())) for layer in layers]
    _check_selection(model, layers, routed)
    tensors = [tensor for tensor in model.tensors if layer_of(tensor.name) is None]
    for number, layer in enumerate(layers):
        tensors += [
            replace(tensor, name=f"blk.{number}.{tensor.name.split('.', 2)[2]}", shard=0)
            for tensor in by_layer.get(layer, ())
        ]
    return _selected_metadata(model, metadata, layers, routed.count(False)), tuple(tensors)


def _check_selection(model: ModelFile, layers: Sequence[int], routed: list[bool]) -> None:
    name, architecture = model.name, model.architecture
    if architecture in _NOT_ALONE:
        reason = f"{architecture} {_NOT_ALONE[architecture]}, so its layers cannot be timed separately"
        raise Unsupported(f"{name}: {reason}", "use ggbench decode on the whole model")
    if routed != sorted(routed):
        raise Unsupported(
            f"{name}: a layer without experts follows one with experts", "select the dense layers first"
        )
    if any(state.window for state in model.states):
        _check_windows(model, layers)


def _check_windows(model: ModelFile, layers: Sequence[int]) -> None:
    if not has_windows(model.architecture, len(layers)):
        reason = f"{model.architecture} of {len(layers)} layers has no windows in llama.cpp"
        raise Unsupported(f"{model.name}: {reason}", "use ggbench decode on the whole model")
    if not any(model.states[layer].window for layer in layers):
        reason = f"llama.cpp runs no {model.architecture} in which no layer has a window"
        raise Unsupported(f"{model.name}: {reason}", "select a layer with a window too")


def _values_by_layer(model: ModelFile, metadata: Mapping[str, object]) -> Iterator[tuple[str, list[object]]]:
    """Yield the keys of the architecture that have a value for each layer."""
    sections = f"{model.architecture}.rope.dimension_sections"
    for key, value in metadata.items():
        is_own = key.startswith(f"{model.architecture}.") and key != sections
        if is_own and isinstance(value, list) and len(value) == model.n_layer:
            yield key, value


def _selected_metadata(
    model: ModelFile, metadata: Mapping[str, object], layers: Sequence[int], n_dense: int
) -> dict[str, object]:
    prefix = f"{model.architecture}."
    selected = dict(metadata)
    for key, values in _values_by_layer(model, metadata):
        selected[key] = [values[layer] for layer in layers]
    selected[prefix + "block_count"] = len(layers)
    selected.pop(prefix + "nextn_predict_layers", None)
    chosen = [model.states[layer] for layer in layers]
    if any(state.window for state in chosen):
        selected[prefix + "attention.sliding_window_pattern"] = [state.window is not None for state in chosen]
    if prefix + "leading_dense_block_count" in selected:
        selected[prefix + "leading_dense_block_count"] = n_dense
    if is_between_attention(model.architecture):
        selected[prefix + RECURRENT_LAYERS] = [state.recurrent_elements > 0 for state in chosen]
    if (
        model.architecture == "deepseek2"
    ):  # llama.cpp derives it from the number of layers if the key is not needed
        selected.setdefault(prefix + "attention.q_lora_rank", 0)
    return selected


def require_twin_room(n_bytes: int) -> Path:
    """Return the folder for temporary twins, without those of killed processes.

    Raises DoesNotFit if its disk has less than `n_bytes` free.
    """
    folder = forecasts_dir()
    folder.mkdir(parents=True, exist_ok=True)
    remove_left(folder)
    require_room(folder, n_bytes, "the twins need", "set XDG_CACHE_HOME to a folder with room")
    return folder


def write_sparse(file: ModelFile, folder: Path) -> Path:
    """Write the model's header, followed by a hole, into `folder`, for each shard; return the path of the first.

    The header is the local file's if there is one, even without tensors; otherwise it is encoded from `file`, without a
    tokenizer if `file` lacks the tokenizer's arrays. Raises DoesNotFit if the file cannot be created, Unsupported for a
    header that cannot be encoded, and BadFile.
    """
    if not file.paths:
        is_split = SPLIT_COUNT in file.metadata
        is_partial = is_split or any(isinstance(value, ArrayLength) for value in file.metadata.values())
        whole = twin_of(file, file.name) if is_partial else file
        encoded = encode_header(whole.metadata, whole.tensors)
        return write_sparse_file(folder / "model.gguf", encoded.data, encoded.file_bytes)
    written = []
    for path in file.paths:
        header = read_local_header(path, allow_missing_data=True)
        stated = header.metadata.get(ALIGNMENT_KEY, ALIGNMENT)
        alignment = stated if isinstance(stated, int) and stated > 0 else ALIGNMENT
        end = header.data_offset + sum(
            -(-(tensor.n_bytes or 0) // alignment) * alignment for tensor in header.tensors
        )
        written.append(write_sparse_file(folder / path.name, header.raw, max(end, header.file_bytes)))
    return written[0]
