"""The hyperparameters that define a model's shape, and the metadata and tensors that it has before any quantization.

Matrices are f16, as in the files that llama.cpp's quantizer is given; norms, biases and routers are f32, as it leaves
them. Names come from gguf's tables, and counting parameters needs none of them.
Source of the layout: `create_tensor` of llama.cpp's qwen2 and qwen2moe models, and their converter from safetensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ggbench.errors import UsageError
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.encoded_header import encode_model
from ggbench.gguf_file.ggml_types import tensor_bytes
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.gguf_file.model_file import ModelFile, TensorInfo

ARCHITECTURES = ("qwen2", "qwen2moe")

_COUNTS = ("n_layer", "n_embd", "n_head", "n_head_kv", "n_ff", "n_vocab", "n_ctx_train")
_EXPERT_COUNTS = ("n_expert", "n_expert_used", "n_ff_expert", "n_ff_shared_expert")
_LARGEST = 1 << 31


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The shape of a dense or mixture-of-experts transformer; UsageError names an invalid field."""

    architecture: str
    """llama.cpp's name, one of `ARCHITECTURES`."""
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_ff: int
    """Width of a dense feed-forward; in a mixture of experts only metadata."""
    n_vocab: int
    n_ctx_train: int
    head_dim: int | None = None
    """None: `n_embd // n_head`."""
    rope_freq_base: float = 1e6
    norm_rms_eps: float = 1e-6
    tied_embeddings: bool = False
    """Whether the output reuses the table of input embeddings, so that the file holds it once."""
    qkv_bias: bool = True
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_expert: int = 0
    """Width of one expert's feed-forward."""
    n_ff_shared_expert: int = 0
    """Width of the feed-forward that every token passes in addition to its experts."""

    def __post_init__(self) -> None:
        if problem := next(self._problems(), ""):
            raise UsageError(problem, "look at the model's entry in models.toml")

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong with the fields; only the first is certain, since each check relies on those before."""
        if self.architecture not in ARCHITECTURES:
            yield f"architecture {self.architecture!r} has no blueprint, known are {', '.join(ARCHITECTURES)}"
        has_experts = self.architecture == "qwen2moe"
        optional = () if self.head_dim is None else ("head_dim",)
        for name in (*_COUNTS, *optional, *(_EXPERT_COUNTS if has_experts else ())):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _LARGEST:
                yield f"{name} has to be a whole number above zero, not {value!r}"
        for name in ("rope_freq_base", "norm_rms_eps"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                yield f"{name} has to be a number above zero, not {value!r}"
        for name in _EXPERT_COUNTS:
            if getattr(self, name) and not has_experts:
                yield f"{name} is given, and {self.architecture} has no experts"
        if self.n_embd_head * self.n_head != self.n_embd:  # llama.cpp's qwen2 loads no other shape
            yield f"n_embd {self.n_embd} is not n_head {self.n_head} x head_dim {self.n_embd_head}"
        if self.n_head % self.n_head_kv:
            yield f"n_head {self.n_head} is not a multiple of n_head_kv {self.n_head_kv}"
        if self.n_embd_head % 2:
            yield f"head_dim {self.n_embd_head} is odd, and rotary positions need pairs"
        if self.n_expert_used > self.n_expert:
            yield f"n_expert_used {self.n_expert_used} is above n_expert {self.n_expert}"

    @property
    def n_embd_head(self) -> int:
        """Width of one attention head."""
        return self.n_embd // self.n_head if self.head_dim is None else self.head_dim


class _Tensor(NamedTuple):
    """A tensor to lay out, named by its member of `gguf.MODEL_TENSOR`."""

    member: str
    shape: tuple[int, ...]
    type_name: str
    suffix: str = "weight"

    def info(self, layer: int | None = None) -> TensorInfo:
        name = tensor_name(self.member, self.suffix, layer)
        return TensorInfo(name, self.shape, self.type_name, tensor_bytes(self.type_name, self.shape))


def build_metadata(hyper: Hyperparameters) -> dict[str, object]:
    """Return the keys that llama.cpp needs to load the model and decode ids; it has no tokenizer."""
    keys = gguf_constants.Keys
    values: dict[str, object] = {
        keys.LLM.BLOCK_COUNT: hyper.n_layer,
        keys.LLM.CONTEXT_LENGTH: hyper.n_ctx_train,
        keys.LLM.EMBEDDING_LENGTH: hyper.n_embd,
        keys.LLM.FEED_FORWARD_LENGTH: hyper.n_ff,
        keys.Attention.HEAD_COUNT: hyper.n_head,
        keys.Attention.HEAD_COUNT_KV: hyper.n_head_kv,
        keys.Attention.LAYERNORM_RMS_EPS: float(hyper.norm_rms_eps),
        keys.Rope.FREQ_BASE: float(hyper.rope_freq_base),
        keys.LLM.VOCAB_SIZE: hyper.n_vocab,
    }
    if hyper.head_dim is not None:
        values |= {
            keys.Attention.KEY_LENGTH: hyper.head_dim,
            keys.Attention.VALUE_LENGTH: hyper.head_dim,
            keys.Rope.DIMENSION_COUNT: hyper.head_dim,
        }
    if hyper.n_expert:
        values |= {
            keys.LLM.EXPERT_COUNT: hyper.n_expert,
            keys.LLM.EXPERT_USED_COUNT: hyper.n_expert_used,
            keys.LLM.EXPERT_FEED_FORWARD_LENGTH: hyper.n_ff_expert,
            keys.LLM.EXPERT_SHARED_FEED_FORWARD_LENGTH: hyper.n_ff_shared_expert,
        }
    return {
        keys.General.ARCHITECTURE: hyper.architecture,
        **{key.format(arch=hyper.architecture): value for key, value in values.items()},
        keys.Tokenizer.MODEL: "none",
    }


def build_tensors(hyper: Hyperparameters) -> tuple[TensorInfo, ...]:
    """Return every tensor of the model, without the output where it is tied to the embedding."""
    layers = (tensor.info(layer) for layer in range(hyper.n_layer) for tensor in _layer(hyper))
    return (*(tensor.info() for tensor in _outside_layers(hyper)), *layers)


def build_model(hyper: Hyperparameters, name: str) -> ModelFile:
    """Return the model of this shape with f16 matrices and no file, enough to count with; llama.cpp is not needed."""
    return encode_model(build_metadata(hyper), build_tensors(hyper), name)


def count_params(hyper: Hyperparameters) -> int:
    """Return the parameters of all tensors: one layer counted once, because a list of models counts hundreds."""
    outside = sum(math.prod(tensor.shape) for tensor in _outside_layers(hyper))
    return outside + hyper.n_layer * sum(math.prod(tensor.shape) for tensor in _layer(hyper))


def _outside_layers(hyper: Hyperparameters) -> Iterator[_Tensor]:
    yield _matrix("TOKEN_EMBD", hyper.n_embd, hyper.n_vocab)
    yield _f32("OUTPUT_NORM", hyper.n_embd)
    if not hyper.tied_embeddings:
        yield _matrix("OUTPUT", hyper.n_embd, hyper.n_vocab)


def _layer(hyper: Hyperparameters) -> Iterator[_Tensor]:
    n_query, n_kv = hyper.n_embd_head * hyper.n_head, hyper.n_embd_head * hyper.n_head_kv
    yield _f32("ATTN_NORM", hyper.n_embd)
    for member, n_rows in (("ATTN_Q", n_query), ("ATTN_K", n_kv), ("ATTN_V", n_kv)):
        yield _matrix(member, hyper.n_embd, n_rows)
        if hyper.qkv_bias:
            yield _Tensor(member, (n_rows,), "f32", suffix="bias")
    yield _matrix("ATTN_OUT", n_query, hyper.n_embd)
    yield _f32("FFN_NORM", hyper.n_embd)
    if not hyper.n_expert:
        yield from _gated("", hyper.n_embd, hyper.n_ff)
    else:
        yield _f32("FFN_GATE_INP", hyper.n_embd, hyper.n_expert)
        yield from _gated("_EXP", hyper.n_embd, hyper.n_ff_expert, hyper.n_expert)
        yield _f32("FFN_GATE_INP_SHEXP", hyper.n_embd)
        yield from _gated("_SHEXP", hyper.n_embd, hyper.n_ff_shared_expert)


def _gated(kind: str, n_embd: int, n_ff: int, *n_expert: int) -> Iterator[_Tensor]:
    yield _matrix(f"FFN_GATE{kind}", n_embd, n_ff, *n_expert)
    yield _matrix(f"FFN_UP{kind}", n_embd, n_ff, *n_expert)
    yield _matrix(f"FFN_DOWN{kind}", n_ff, n_embd, *n_expert)


def _matrix(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f16")


def _f32(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f32")
