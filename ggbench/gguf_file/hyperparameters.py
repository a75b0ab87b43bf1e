"""The hyperparameters that define a model's shape, and the metadata and tensors of the model before quantization.

Matrices are f16, like the input of llama.cpp's quantizer; norms, biases and routers are f32, as it leaves them. Names
come from gguf's tables, which counting parameters does not need. Source of the layout: `load_arch_tensors` of
llama.cpp's models, and their converters from safetensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ggbench.errors import UsageError
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.ggml_types import tensor_bytes
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.gguf_file.model_file import ModelFile, TensorInfo

_COUNTS = ("n_layer", "n_embd", "n_head", "n_head_kv", "n_ff", "n_vocab", "n_ctx_train")
_ROUTED = ("n_expert", "n_expert_used", "n_ff_expert")
_SHARED = (*_ROUTED, "n_ff_shared_expert")
_LATENT = ("kv_lora_rank", "n_rot", "v_head_dim")


class _Family(NamedTuple):
    """Differences of an architecture from the plain transformer of `llama`."""

    needs: tuple[str, ...] = ()
    """Optional hyperparameters that it requires."""
    allows: tuple[str, ...] = ()
    """Optional hyperparameters that it allows."""
    qkv_bias: bool = False
    qk_norm: bool = False
    """Whether each head's Q and K have norms."""
    post_norms: bool = False
    """Whether there are norms after attention and after the feed-forward, besides those before."""
    fused: bool = False
    """Whether Q, K and V are in one matrix, and gate and up in another."""
    n_embd_of_heads: bool = False
    """Whether llama.cpp requires the heads' total width to equal the model's."""


_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(allows=("n_expert", "n_expert_used")),
    "qwen2": _Family(qkv_bias=True, n_embd_of_heads=True),
    "qwen2moe": _Family(needs=_SHARED, qkv_bias=True, n_embd_of_heads=True),
    "qwen3": _Family(qk_norm=True),
    "qwen3moe": _Family(needs=_ROUTED, qk_norm=True),
    "gemma3": _Family(needs=("sliding_window",), qk_norm=True, post_norms=True),
    "phi3": _Family(allows=("n_rot",), fused=True, n_embd_of_heads=True),
    "gpt-oss": _Family(needs=(*_ROUTED, "sliding_window"), qkv_bias=True),
    "deepseek2": _Family(needs=(*_SHARED, *_LATENT, "head_dim"), allows=("q_lora_rank", "n_layer_dense")),
}
ARCHITECTURES = tuple(_FAMILIES)
"""llama.cpp's names of architectures with twins that need no file."""
_OPTIONAL = (*_SHARED, *_LATENT, "sliding_window", "q_lora_rank", "n_layer_dense")
_LARGEST = 1 << 31


class Hyperparameters(msgspec.Struct, frozen=True):
    """The shape of a dense or mixture-of-experts transformer; UsageError names an invalid field. 0 means none."""

    architecture: str
    """llama.cpp's name, one of `ARCHITECTURES`."""
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_ff: int
    """Width of a dense feed-forward, or of an expert if `n_ff_expert` is 0."""
    n_vocab: int
    n_ctx_train: int
    head_dim: int | None = None
    """None: `n_embd // n_head`. With a latent cache, the width of Q, with and without rotary positions."""
    rope_freq_base: float = 1e6
    norm_rms_eps: float = 1e-6
    tied_embeddings: bool = False
    """Whether the output reuses the input embedding table, which the file then contains once."""
    qkv_bias: bool | None = None
    """None: the architecture's default."""
    rope_freqs: bool = False
    """Whether the file has a factor for each rotary frequency, as Llama's have since 3.1."""
    n_rot: int = 0
    """Elements of a head with rotary positions, if not all."""
    sliding_window: int = 0
    """Positions kept by windowed layers; the architecture determines which layers those are."""
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_expert: int = 0
    n_ff_shared_expert: int = 0
    """Width of the feed-forward that every token passes in addition to its experts."""
    n_layer_dense: int = 0
    """Number of first layers with one feed-forward of `n_ff` and no experts."""
    kv_lora_rank: int = 0
    """Width of the latent from which K and V are computed (MLA); the cache keeps the latent."""
    q_lora_rank: int = 0
    v_head_dim: int = 0

    def __post_init__(self) -> None:
        if problem := next(self._problems(), ""):
            raise UsageError(problem, "check the model's entry in models.toml")

    def _problems(self) -> Iterator[str]:
        """Yield the errors of the fields; each check relies on the previous ones."""
        family = _FAMILIES.get(self.architecture)
        if family is None:
            yield f"architecture {self.architecture!r} is unknown, known are {', '.join(ARCHITECTURES)}"
            return
        optional = () if self.head_dim is None else ("head_dim",)
        positive = (*_COUNTS, *optional, *family.needs)
        for name in (*positive, *_OPTIONAL):
            value, least = getattr(self, name), 1 if name in positive else 0
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
                yield f"{name} must be a whole number{' above zero' if least else ''}, not {value!r}"
            if value and name in _OPTIONAL and name not in (*family.needs, *family.allows):
                yield f"{name} is given, but {self.architecture} has none"
        for name in ("rope_freq_base", "norm_rms_eps"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                yield f"{name} must be a number above zero, not {value!r}"
        if family.n_embd_of_heads and self.n_embd_head * self.n_head != self.n_embd:
            yield f"n_embd {self.n_embd} is not n_head {self.n_head} x head_dim {self.n_embd_head}"
        if self.n_head % self.n_head_kv:
            yield f"n_head {self.n_head} is not a multiple of n_head_kv {self.n_head_kv}"
        if self.n_embd_head % 2:
            yield f"head_dim {self.n_embd_head} is odd, and rotary positions need pairs"
        if self.n_expert_used > self.n_expert or (self.n_expert and not self.n_expert_used):
            yield f"n_expert_used {self.n_expert_used} is not 1 to n_expert {self.n_expert}"
        if self.n_layer_dense > self.n_layer:
            yield f"n_layer_dense {self.n_layer_dense} is above n_layer {self.n_layer}"
        if self.kv_lora_rank and self.n_rot >= self.n_embd_head:
            yield f"n_rot {self.n_rot} is not below head_dim {self.n_embd_head}"
        if self.n_ff_expert and self.n_ff_shared_expert % self.n_ff_expert and self.kv_lora_rank:
            yield f"n_ff_shared_expert {self.n_ff_shared_expert} is not a multiple of n_ff_expert {self.n_ff_expert}"

    @property
    def n_embd_head(self) -> int:
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
    optional = {
        keys.Rope.DIMENSION_COUNT: hyper.n_rot,
        keys.Attention.SLIDING_WINDOW: hyper.sliding_window,
        keys.LLM.EXPERT_COUNT: hyper.n_expert,
        keys.LLM.EXPERT_USED_COUNT: hyper.n_expert_used,
        keys.LLM.EXPERT_FEED_FORWARD_LENGTH: hyper.n_ff_expert,
        keys.LLM.EXPERT_SHARED_FEED_FORWARD_LENGTH: hyper.n_ff_shared_expert,
    }
    values |= {key: value for key, value in optional.items() if value}
    if hyper.kv_lora_rank:
        values |= {
            keys.Attention.HEAD_COUNT_KV: 1,
            keys.Attention.KEY_LENGTH: hyper.kv_lora_rank + hyper.n_rot,
            keys.Attention.VALUE_LENGTH: hyper.kv_lora_rank,
            keys.Attention.KEY_LENGTH_MLA: hyper.n_embd_head,
            keys.Attention.VALUE_LENGTH_MLA: hyper.v_head_dim,
            keys.Attention.KV_LORA_RANK: hyper.kv_lora_rank,
            keys.Attention.Q_LORA_RANK: hyper.q_lora_rank,
            keys.LLM.LEADING_DENSE_BLOCK_COUNT: hyper.n_layer_dense,
            keys.LLM.EXPERT_SHARED_COUNT: hyper.n_ff_shared_expert // hyper.n_ff_expert,
        }
    return {
        keys.General.ARCHITECTURE: hyper.architecture,
        **{key.format(arch=hyper.architecture): value for key, value in values.items()},
        keys.Tokenizer.MODEL: "none",
    }


def build_tensors(hyper: Hyperparameters) -> tuple[TensorInfo, ...]:
    """Return every tensor of the model, without the output if it is tied to the embedding."""
    layers = (tensor.info(layer) for layer in range(hyper.n_layer) for tensor in _layer(hyper, layer))
    return (*(tensor.info() for tensor in _outside_layers(hyper)), *layers)


def build_model(hyper: Hyperparameters, name: str) -> ModelFile:
    """Return the model of this shape with f16 matrices and no file, for counting; llama.cpp is not needed."""
    from ggbench.gguf_file.header import encode_model

    return encode_model(build_metadata(hyper), build_tensors(hyper), name)


def count_params(hyper: Hyperparameters) -> int:
    """Return the parameters of all tensors; for speed in long lists, each kind of layer is computed once."""
    first, last = (sum(math.prod(t.shape) for t in _layer(hyper, layer)) for layer in (0, hyper.n_layer - 1))
    outside = sum(math.prod(tensor.shape) for tensor in _outside_layers(hyper))
    return outside + hyper.n_layer_dense * first + (hyper.n_layer - hyper.n_layer_dense) * last


def _outside_layers(hyper: Hyperparameters) -> Iterator[_Tensor]:
    yield _matrix("TOKEN_EMBD", hyper.n_embd, hyper.n_vocab)
    yield _f32("OUTPUT_NORM", hyper.n_embd)
    if not hyper.tied_embeddings:
        yield _matrix("OUTPUT", hyper.n_embd, hyper.n_vocab)
    if hyper.rope_freqs:
        yield _f32("ROPE_FREQS", hyper.n_embd_head // 2)


def _layer(hyper: Hyperparameters, layer: int) -> Iterator[_Tensor]:
    family = _FAMILIES[hyper.architecture]
    yield _f32("ATTN_NORM", hyper.n_embd)
    yield from _latent_attention(hyper) if hyper.kv_lora_rank else _attention(hyper, family)
    if family.post_norms or hyper.architecture == "gpt-oss":
        yield _f32("ATTN_POST_NORM", hyper.n_embd)
    if hyper.architecture != "gpt-oss":
        yield _f32("FFN_NORM", hyper.n_embd)
    if hyper.n_expert and layer >= hyper.n_layer_dense:
        yield from _experts(hyper)
    elif family.fused:
        yield _matrix("FFN_UP", hyper.n_embd, 2 * hyper.n_ff)
        yield _matrix("FFN_DOWN", hyper.n_ff, hyper.n_embd)
    else:
        yield from _gated("", hyper.n_embd, hyper.n_ff)
    if family.post_norms:
        yield _f32("FFN_POST_NORM", hyper.n_embd)


def _attention(hyper: Hyperparameters, family: _Family) -> Iterator[_Tensor]:
    n_query, n_kv = hyper.n_embd_head * hyper.n_head, hyper.n_embd_head * hyper.n_head_kv
    has_bias = family.qkv_bias if hyper.qkv_bias is None else hyper.qkv_bias
    separate = (("ATTN_Q", n_query), ("ATTN_K", n_kv), ("ATTN_V", n_kv))
    for member, n_rows in (("ATTN_QKV", n_query + 2 * n_kv),) if family.fused else separate:
        yield _matrix(member, hyper.n_embd, n_rows)
        if has_bias:
            yield _bias(member, n_rows)
    yield _matrix("ATTN_OUT", n_query, hyper.n_embd)
    if family.qk_norm:
        yield _f32("ATTN_Q_NORM", hyper.n_embd_head)
        yield _f32("ATTN_K_NORM", hyper.n_embd_head)
    if hyper.architecture == "gpt-oss":
        yield _bias("ATTN_OUT", hyper.n_embd)
        yield _f32("ATTN_SINKS", hyper.n_head)


def _latent_attention(hyper: Hyperparameters) -> Iterator[_Tensor]:
    """Yield the tensors of MLA, with K and V of each head computed from the latent in the graph."""
    n_query, rank = hyper.n_embd_head * hyper.n_head, hyper.kv_lora_rank
    if hyper.q_lora_rank:
        yield _matrix("ATTN_Q_A", hyper.n_embd, hyper.q_lora_rank)
        yield _f32("ATTN_Q_A_NORM", hyper.q_lora_rank)
        yield _matrix("ATTN_Q_B", hyper.q_lora_rank, n_query)
    else:
        yield _matrix("ATTN_Q", hyper.n_embd, n_query)
    yield _matrix("ATTN_KV_A_MQA", hyper.n_embd, rank + hyper.n_rot)
    yield _f32("ATTN_KV_A_NORM", rank)
    yield _matrix("ATTN_K_B", hyper.n_embd_head - hyper.n_rot, rank, hyper.n_head)
    yield _matrix("ATTN_V_B", rank, hyper.v_head_dim, hyper.n_head)
    yield _matrix("ATTN_OUT", hyper.n_head * hyper.v_head_dim, hyper.n_embd)


def _experts(hyper: Hyperparameters) -> Iterator[_Tensor]:
    n_ff, n_expert = hyper.n_ff_expert or hyper.n_ff, hyper.n_expert
    yield _f32("FFN_GATE_INP", hyper.n_embd, n_expert)
    yield from _gated("_EXP", hyper.n_embd, n_ff, n_expert)
    if hyper.architecture == "gpt-oss":
        yield _bias("FFN_GATE_INP", n_expert)
        for member, n_rows in (("FFN_GATE_EXP", n_ff), ("FFN_UP_EXP", n_ff), ("FFN_DOWN_EXP", hyper.n_embd)):
            yield _bias(member, n_rows, n_expert)
    if hyper.architecture == "qwen2moe":
        yield _f32("FFN_GATE_INP_SHEXP", hyper.n_embd)
    if hyper.n_ff_shared_expert:
        yield from _gated("_SHEXP", hyper.n_embd, hyper.n_ff_shared_expert)


def _gated(kind: str, n_embd: int, n_ff: int, *n_expert: int) -> Iterator[_Tensor]:
    yield _matrix(f"FFN_GATE{kind}", n_embd, n_ff, *n_expert)
    yield _matrix(f"FFN_UP{kind}", n_embd, n_ff, *n_expert)
    yield _matrix(f"FFN_DOWN{kind}", n_ff, n_embd, *n_expert)


def _matrix(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f16")


def _f32(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f32")


def _bias(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f32", suffix="bias")
