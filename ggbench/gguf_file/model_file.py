"""What a GGUF header says about a model, as frozen values that theory, catalog and reports count with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ggbench.errors import Unsupported
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.units import format_bytes


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the table in a GGUF header."""

    name: str
    shape: tuple[int, ...]
    """ggml's order: row length first."""
    type_name: str
    """ggml's name, `q4_K`; `type 97` for a type that neither gguf nor ggbench knows."""
    n_bytes: int | None
    """None when the type is unknown."""
    shard: int = 0
    """Index into `ModelFile.paths`."""

    @property
    def n_elements(self) -> int:
        """Parameters in this tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The part of a `ModelFile` that metadata decides; zero or empty where the header does not say."""

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
    sliding_window: int | None = None
    """Positions that a windowed layer keeps; None when every layer keeps all."""
    no_kv_reason: str = ""
    """Why KV is more than fixed bytes for each position (a recurrent state, a second cache); empty when it is not."""


@dataclass(frozen=True, kw_only=True)
class ModelFile(Shape):
    """One model as its header describes it, over all shards."""

    name: str
    """The file's stem without a shard suffix, or the catalog's `id quant`."""
    paths: tuple[Path, ...]
    """The local shards in order; empty for a header that was not read from this disk."""
    file_bytes: int
    """Over all shards."""
    version: int
    big_endian: bool
    architecture: str
    metadata: dict[str, object]
    """Every key; the tokenizer's long arrays are replaced by their length."""
    tensors: tuple[TensorInfo, ...]
    header_sha256: str
    """Of the header bytes of all shards in order: metadata and tensor table, not the weights."""
    missing_bytes: int = 0
    """Bytes that the tensor tables require and the files lack, as after an interrupted download."""

    @property
    def truncation(self) -> str:
        """What an incomplete file lacks, as `46.1 MiB of its 93.8 MiB are missing`; empty for a whole one."""
        whole = format_bytes(self.file_bytes + self.missing_bytes)
        return f"{format_bytes(self.missing_bytes)} of its {whole} are missing" if self.missing_bytes else ""

    @cached_property
    def n_params(self) -> int:
        """Parameters of all tensors."""
        return sum(tensor.n_elements for tensor in self.tensors)

    @cached_property
    def unknown_types(self) -> tuple[str, ...]:
        """Names of tensor types whose size is unknown."""
        return tuple(sorted({tensor.type_name for tensor in self.tensors if tensor.n_bytes is None}))

    @cached_property
    def weight_bytes(self) -> int | None:
        """Bytes of all tensors; None when a tensor type is unknown."""
        return None if self.unknown_types else sum(tensor.n_bytes or 0 for tensor in self.tensors)

    @property
    def bpw(self) -> float | None:
        """Bits per weight over all tensors, as llama.cpp's `print_info: file size` counts them."""
        return None if self.weight_bytes is None or not self.n_params else self.weight_bytes * 8 / self.n_params

    @cached_property
    def active_weight_bytes(self) -> int | None:
        """Bytes that one token reads: all tensors but the input embedding's table and the experts not chosen.

        Where the embedding is tied to the output, its table is read as the output. None when a type is unknown.
        """
        if self.weight_bytes is None:
            return None
        output, embedding = tensor_name("OUTPUT"), tensor_name("TOKEN_EMBD")
        skipped = {tensor_name("PER_LAYER_TOKEN_EMBD")}
        if any(tensor.name == output for tensor in self.tensors):
            skipped.add(embedding)
        total = 0.0
        for tensor in self.tensors:
            if tensor.name in skipped:
                continue
            share = self.n_expert_used / self.n_expert if "_exps." in tensor.name and self.n_expert else 1.0
            total += (tensor.n_bytes or 0) * share
        return round(total)

    def require_kv(self) -> None:
        """Raise Unsupported where the architecture's state is not a KV cache."""
        if self.no_kv_reason:
            raise Unsupported(
                f"{self.name}: {self.no_kv_reason}", "its memory can be measured, but not counted from the header"
            )

    def kv_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Return the bytes of KV cache for one position over all layers, ignoring any sliding window.

        Raises Unsupported where the architecture's state is not a KV cache, and UnknownName for a type.
        """
        self.require_kv()
        return sum(
            row_bytes(type_k, heads * self.head_dim_k) + row_bytes(type_v, heads * self.head_dim_v)
            for heads in self.n_head_kv
            if heads
        )

    @property
    def is_twin(self) -> bool:
        """Whether ggbench wrote this file, with the true shape and no trained weights."""
        return bool(self.metadata.get("ggbench.twin"))
