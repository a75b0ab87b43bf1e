"""What a GGUF header tells of a model, as frozen values that theory, catalog and reports count with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ggbench.errors import Unsupported
from ggbench.gguf_file.ggml_types import row_bytes


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the table in a GGUF header."""

    name: str
    shape: tuple[int, ...]
    """ggml's order: row length first."""
    type_name: str
    """ggml's name, `q4_K`; `type 97` when this ggbench does not know it."""
    n_bytes: int | None
    """None when the type is unknown."""
    shard: int = 0
    """Index into `ModelFile.paths`."""

    @property
    def n_elements(self) -> int:
        """Parameters in this tensor."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True)
class ModelFile:
    """One model as its header describes it, over all shards."""

    name: str
    """What to call it: the file's stem without a shard suffix, or the catalog's `id quant`."""
    paths: tuple[Path, ...]
    """The local shards in order; empty for a header that was read from somewhere else."""
    file_bytes: int
    """Over all shards."""
    version: int
    big_endian: bool
    architecture: str
    metadata: dict[str, object]
    """Every key but the tokenizer's long arrays, which are left as their length."""
    tensors: tuple[TensorInfo, ...]
    header_sha256: str
    """Of the header bytes of all shards in order: metadata and tensor table, not the weights."""

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
    missing_bytes: int = 0
    """What the files are shorter than their tensor tables say, as of a download that stopped."""

    @cached_property
    def n_params(self) -> int:
        """Parameters of all tensors."""
        return sum(tensor.n_elements for tensor in self.tensors)

    @cached_property
    def unknown_types(self) -> tuple[str, ...]:
        """Names of tensor types whose size is unknown to this ggbench."""
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
        tied = not any(tensor.name == "output.weight" for tensor in self.tensors)
        total = 0.0
        for tensor in self.tensors:
            if tensor.name in ("token_embd.weight", "per_layer_token_embd.weight") and not (
                tied and tensor.name == "token_embd.weight"
            ):
                continue
            share = self.n_expert_used / self.n_expert if "_exps." in tensor.name and self.n_expert else 1.0
            total += (tensor.n_bytes or 0) * share
        return round(total)

    def kv_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Bytes of KV cache for one position over all layers, a window left out of account.

        Raises Unsupported where the architecture's state is not a KV cache, and UnknownName for a type.
        """
        if self.no_kv_reason:
            raise Unsupported(
                f"{self.name}: {self.no_kv_reason}", "its memory can be measured, but not counted from the header"
            )
        return sum(
            row_bytes(type_k, heads * self.head_dim_k) + row_bytes(type_v, heads * self.head_dim_v)
            for heads in self.n_head_kv
            if heads
        )

    @property
    def is_twin(self) -> bool:
        """Whether ggbench made this file: the true shape, no trained weights."""
        return bool(self.metadata.get("ggbench.twin"))
