"""A model as described by its GGUF header: frozen values used by theory, catalog and reports.

Two layers are of one kind if a token does the same work in both: the same tensors with the same shapes and types (dense
or experts, and the mixture of types of a `_k_m` quant), and the same state. So one of each kind can be measured and
scaled to all.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path

from msgspec.structs import replace

from ggbench.errors import Unsupported
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.record import Record
from ggbench.units import format_bytes

_OF_LAYER = re.compile(r"blk\.(\d+)\.")


SCALED_KEY = "ggbench.scaled"
"""Bytes of the published file, in the metadata of a model whose matrices are scaled to it; `~` before an estimate."""


class TensorInfo(Record):
    """A tensor in the table of a GGUF header."""

    name: str
    shape: tuple[int, ...]
    """ggml's order: row length first."""
    type_name: str
    """ggml's name, `q4_K`; `type 97` for a type that neither gguf nor ggbench knows."""
    n_bytes: int | None
    """None if the type is unknown."""
    shard: int = 0
    """Index into `ModelFile.paths`."""

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


class Rows(Record):
    """Rows of a cache: K and V of one position or of several, or the keys by which an indexer chooses positions."""

    k_width: int = 0
    """Elements of K in a row, over all KV heads."""
    v_width: int = 0
    """Elements of V; 0 also in a latent cache (MLA), where V is a view of K."""
    limit: int | None = None
    """Positions that have rows, or whose rows are read, at most: a sliding window, or the budget of sparse attention;
    None for all."""
    every: int = 1
    """Positions that have one row together."""
    flop: int = 0
    """Operations of a token's attention to a row: a multiplication and an addition for each query head and element of
    its K and V."""

    def n_bytes(self, type_k: str = "f16", type_v: str = "f16") -> float:
        """Return the bytes of one position within the limit. Raises UnknownName, Unsupported."""
        return (row_bytes(type_k, self.k_width) + row_bytes(type_v, self.v_width)) / self.every


class LayerState(Record):
    """What a layer keeps of a sequence, and what each token reads of that."""

    kept: tuple[Rows, ...] = ()
    """Empty if the layer has no attention, or attends to the KV of an earlier one."""
    read: tuple[Rows, ...] = ()
    recurrent_elements: int = 0
    """Elements of the state of one sequence that does not grow, f32."""

    @property
    def window(self) -> int | None:
        """Positions that a layer with a sliding window attends to; None if it has no window."""
        return next((rows.limit for rows in self.kept or self.read if rows.limit), None)

    @property
    def state_bytes(self) -> int:
        """Bytes of the recurrent state of one sequence; llama.cpp keeps it in f32, whatever the cache types."""
        return self.recurrent_elements * 4

    def within(self, window: int | None) -> LayerState:
        """Return the layer with this sliding window, None for none."""
        kept, read = (
            tuple(replace(rows, limit=window) for rows in caches) for caches in (self.kept, self.read)
        )
        return replace(self, kept=kept, read=read)


class ModelShape(Record, kw_only=True):
    """The part of a `ModelFile` determined by metadata; zero or empty if unknown."""

    n_layer: int
    n_embd: int
    n_head: tuple[int, ...]
    """Query heads of each layer."""
    n_head_kv: tuple[int, ...]
    """KV heads of each layer; 0 for a layer without attention."""
    head_dim_k: int
    head_dim_v: int
    n_ff: tuple[int, ...]
    n_vocab: int | None
    n_ctx_train: int | None
    n_expert: int = 0
    n_expert_used: int = 0
    """Experts of one token; the maximum if layers differ."""
    experts_used: tuple[int, ...] = ()
    """Experts of one token in each layer; empty in a model without experts."""
    n_layer_nextn: int = 0
    """Number of last layers that only draft (NextN, MTP): llama.cpp does not run them to decode a token."""
    sliding_window: int | None = None
    """Positions of the header's window, even if llama.cpp uses it in no layer; `states` says which have it."""
    states: tuple[LayerState, ...] = ()
    """State of each layer; meaningless if `no_kv_reason` is set."""
    no_kv_reason: str = ""
    """Why llama.cpp keeps more than `states` (a second cache, an unknown state); empty if it does not."""


class ModelFile(ModelShape, dict=True, kw_only=True):
    """A model as described by its header, over all shards."""

    name: str
    """The file's stem without a shard suffix, or the catalog's `id quant`."""
    paths: tuple[Path, ...]
    """The local shards in order; empty for a header not read from this disk."""
    file_bytes: int
    version: int | None = None
    """Version of the GGUF format; None for a safetensors checkpoint."""
    architecture: str
    metadata: dict[str, object]
    """All keys; the tokenizer's long arrays are replaced by their length."""
    tensors: tuple[TensorInfo, ...]
    header_sha256: str
    """Hash of the header bytes of all shards in order: metadata and tensor table, not the weights."""
    missing_bytes: int = 0
    """Bytes required by the tensor tables but missing in the files, e.g. after an interrupted download."""

    @property
    def truncation(self) -> str:
        """Size of the missing part, e.g. `46.1 MiB of its 93.8 MiB are missing`; empty for a complete file."""
        whole = format_bytes(self.file_bytes + self.missing_bytes)
        return f"{format_bytes(self.missing_bytes)} of its {whole} are missing" if self.missing_bytes else ""

    @cached_property
    def n_params(self) -> int:
        return sum(tensor.n_elements for tensor in self.tensors)

    @cached_property
    def unknown_types(self) -> tuple[str, ...]:
        return tuple(sorted({tensor.type_name for tensor in self.tensors if tensor.n_bytes is None}))

    @cached_property
    def weight_bytes(self) -> int | None:
        """Bytes of all tensors; None if a tensor type is unknown."""
        return None if self.unknown_types else sum(tensor.n_bytes or 0 for tensor in self.tensors)

    @cached_property
    def has_output(self) -> bool:
        """Whether the output has a matrix other than the input embedding."""
        return any(tensor.name == "output.weight" for tensor in self.tensors)

    @property
    def bpw(self) -> float | None:
        """Bits per weight over all tensors, computed like llama.cpp's `print_info: file size`."""
        return None if self.weight_bytes is None or not self.n_params else self.weight_bytes * 8 / self.n_params

    @cached_property
    def active_weight_bytes(self) -> int | None:
        """Bytes read by one token: all tensors except embedding tables, draft layers and unused experts.

        If the embedding is tied to the output, its table is read as the output. None if a type is unknown.
        """
        if self.weight_bytes is None:
            return None
        return round(sum(active_bytes(tensor, self) for tensor in self.tensors))

    def require_kv(self) -> None:
        """Raise Unsupported if a sequence needs more memory than `states` describes."""
        if self.no_kv_reason:
            raise Unsupported(
                f"{self.name}: {self.no_kv_reason}",
                "its memory can be measured, but not computed from the header",
            )

    @property
    def breaks(self) -> tuple[int, ...]:
        """Positions beyond which some layer reads no more: its window, or the budget of sparse attention."""
        limits = {rows.limit for state in self.states for rows in state.read if rows.limit}
        return () if self.no_kv_reason else tuple(sorted(limits))

    def kv_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Return the bytes of KV cache for one position over all layers, ignoring any sliding window.

        Raises Unsupported if a sequence has further state, and UnknownName for a type.
        """
        self.require_kv()
        return round(sum(rows.n_bytes(type_k, type_v) for state in self.states for rows in state.kept))

    @cached_property
    def shape_key(self) -> str:
        """A hash that is equal for models of the same architecture, tensors, shapes and types, hence of equal speed."""
        tensors = sorted((tensor.name, tensor.shape, tensor.type_name) for tensor in self.tensors)
        scaled = (self.metadata[SCALED_KEY],) if SCALED_KEY in self.metadata else ()
        parts = self.architecture, self.n_expert_used, tensors, *scaled
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @property
    def is_twin(self) -> bool:
        """Whether ggbench wrote this file, with the true shape and no trained weights."""
        return bool(self.metadata.get("ggbench.twin"))


def active_bytes(tensor: TensorInfo, model: ModelFile) -> float:
    """Return the bytes of a tensor that one token reads on average; 0 for a tensor of unknown type."""
    if tensor.name == "per_layer_token_embd.weight":
        return 0.0
    if tensor.name == "token_embd.weight" and model.has_output:
        return 0.0
    layer = layer_of(tensor.name)
    if layer is not None and layer >= model.n_layer - model.n_layer_nextn:
        return 0.0
    share = 1.0
    if "_exps." in tensor.name and model.n_expert:
        n_used = model.experts_used[layer] if layer is not None and model.experts_used else model.n_expert_used
        share = n_used / model.n_expert
    return (tensor.n_bytes or 0) * share


def tensors_by_layer(tensors: Iterable[TensorInfo]) -> dict[int, list[TensorInfo]]:
    """Return the tensors of each layer in order, without those outside the layers."""
    found: dict[int, list[TensorInfo]] = {}
    for tensor in tensors:
        layer = layer_of(tensor.name)
        if layer is not None:
            found.setdefault(layer, []).append(tensor)
    return found


@lru_cache(maxsize=1 << 14)
def layer_of(name: str) -> int | None:
    """Return the layer of a tensor by its name, `blk.7.attn_q.weight`; None outside the layers."""
    match = _OF_LAYER.match(name)
    return int(match[1]) if match else None


class LayerKind(Record):
    """Layers that cost the same; sizes are of one layer."""

    layers: tuple[int, ...]
    """Indices in ascending order; the first may stand for all."""
    tensors: tuple[tuple[str, tuple[int, ...], str], ...]
    """Name after `blk.N.`, shape and type of each tensor, by name."""
    active_bytes: int | None
    """Bytes read by one token, without unused experts. None if a type is unknown."""
    state: LayerState
    """State kept for a sequence; meaningless if the model's `no_kv_reason` is set."""


def layer_kinds(model: ModelFile) -> tuple[LayerKind, ...]:
    """Return the kinds of layers used to decode a token, by their first layer, without draft layers (NextN)."""
    by_layer = tensors_by_layer(model.tensors)
    found: dict[object, LayerKind] = {}
    for layer in range(model.n_layer - model.n_layer_nextn):
        state, tensors = model.states[layer], by_layer.get(layer, [])
        signature = tuple(sorted((each.name.split(".", 2)[2], each.shape, each.type_name) for each in tensors))
        n_used = model.experts_used[layer : layer + 1]
        key = signature, model.n_head[layer], n_used, state
        kind = found.get(key)
        if kind is None:
            is_known = all(each.n_bytes is not None for each in tensors)
            read = round(sum(active_bytes(each, model) for each in tensors)) if is_known else None
            kind = LayerKind((), signature, read, state)
        found[key] = replace(kind, layers=(*kind.layers, layer))
    return tuple(found.values())
