"""From metadata to a model's shape: layers, heads, and what one position costs in the KV cache.

What llama.cpp caches depends on the architecture and not on the shape alone. Where it is more than K and V for each
position, `no_kv_reason` says so: a figure that is wrong by a factor of ten is worse than none.
Source: llama.cpp's llama-hparams, llama-kv-cache and llama-arch; the tests hold this against what llama.cpp allocates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ggbench.errors import BadFile
from ggbench.gguf_file.model_file import TensorInfo
from ggbench.gguf_file.parser import ArrayLength

_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_HYBRID = frozenset({
    "qwen3next", "qwen35", "qwen35moe", "qwen4exp", "plamo2", "jamba", "falcon-h1", "deepseek4", "nemotron_h",
    "nemotron_h_moe", "granitehybrid", "bailingmoe3", "lfm2", "lfm2moe", "kimi-linear", "kimi-k3", "glm5-next",
    "minimax-01",
})  # fmt: skip
_DIFFUSION = frozenset({"dream", "llada", "llada-moe", "rnd1"})
_ENCODER = frozenset({
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
    "gemma-embedding", "llama-embed", "t5encoder",
})  # fmt: skip
_NOT_A_TEXT_MODEL = frozenset({"clip", "wavtokenizer-dec", "qwen3tts", "pockettts"})
_DRAFT_HEAD = frozenset({"eagle3", "dflash", "gemma4-assistant"})
_OTHER = {
    "t5": "keeps a second cache for its encoder",
    "hrm_text": "runs its layers in cycles, each with a cache of its own",
}

_GEMMA3N_KV_LAYERS = 20
"""llama.cpp keeps KV for the first 20 layers of gemma3n, and the rest reuse theirs; no key of the header says it."""
_MOST_LAYERS = 4096
_LARGEST = 1 << 31


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of a `ModelFile` that metadata decides; fields as there. Zero or empty where the header does not say."""

    n_layer: int
    n_embd: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    head_dim_k: int
    head_dim_v: int
    n_ff: tuple[int, ...]
    n_vocab: int | None
    n_ctx_train: int | None
    n_expert: int
    n_expert_used: int
    sliding_window: int | None
    no_kv_reason: str


class _Keys:
    """Typed access to the keys of one architecture."""

    def __init__(self, name: str, architecture: str, metadata: Mapping[str, object]) -> None:
        self._name, self._prefix, self._metadata = name, architecture + ".", metadata

    def count(self, key: str) -> int | None:
        value = self._metadata.get(self._prefix + key)
        return None if value is None else self._checked(key, value)

    def per_layer(self, key: str, n_layer: int) -> tuple[int, ...] | None:
        value = self._metadata.get(self._prefix + key)
        if value is None:
            return None
        if not isinstance(value, list):
            return (self._checked(key, value),) * n_layer
        if len(value) != n_layer:
            raise BadFile(
                f"{self._name}: {self._prefix + key!r} has {len(value)} values for {n_layer} layers",
                "convert the model again",
            )
        return tuple(self._checked(key, item) for item in value)

    def differs(self, key: str, usual: int) -> bool:
        return self.count(key) not in (None, usual)

    def any_below(self, group: str) -> bool:
        return any(key.startswith(self._prefix + group) for key in self._metadata)

    def _checked(self, key: str, value: object) -> int:
        if isinstance(value, bool | ArrayLength) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise BadFile(
                f"{self._name}: {self._prefix + key!r} is {str(value)[:40]!r}, not a count", "convert the model again"
            )
        return value


def read_shape(name: str, architecture: str, metadata: Mapping[str, object], tensors: Iterable[TensorInfo]) -> Shape:
    """The shape that the metadata of this architecture gives. Raises BadFile for a value that cannot be one."""
    keys = _Keys(name, architecture, metadata)
    n_layer, n_embd = keys.count("block_count") or 0, keys.count("embedding_length") or 0
    if n_layer > _MOST_LAYERS:
        raise BadFile(f"{name}: claims {n_layer} layers", "convert the model again")
    n_head = keys.per_layer("attention.head_count", n_layer) or (0,) * n_layer
    n_head_kv = keys.per_layer("attention.head_count_kv", n_layer) or n_head
    head_dim = n_embd // next(filter(None, n_head), n_embd or 1)
    head_dim_k = _default(keys.count("attention.key_length"), head_dim)
    head_dim_v = _default(keys.count("attention.value_length"), head_dim)
    is_latent = bool(keys.count("attention.key_length_mla") and keys.count("attention.value_length_mla"))
    n_cached = n_layer - (keys.count("nextn_predict_layers") or 0)
    if architecture == "gemma3n":
        n_cached = min(n_cached, _GEMMA3N_KV_LAYERS)
    n_expert = keys.count("expert_count") or 0
    n_expert_used = max(keys.per_layer("expert_used_count", n_layer) or (0,))
    if n_expert_used > n_expert:
        raise BadFile(f"{name}: uses {n_expert_used} experts of {n_expert}", "convert the model again")
    return Shape(
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=tuple(heads if layer < n_cached else 0 for layer, heads in enumerate(n_head_kv)),
        head_dim_k=head_dim_k,
        # A latent cache (MLA) holds K alone; V is a view of it.
        head_dim_v=0 if is_latent else head_dim_v,
        n_ff=keys.per_layer("feed_forward_length", n_layer) or (0,) * n_layer,
        n_vocab=_n_vocab(keys.count("vocab_size"), metadata.get("tokenizer.ggml.tokens"), tensors),
        n_ctx_train=keys.count("context_length"),
        n_expert=n_expert,
        n_expert_used=n_expert_used,
        sliding_window=keys.count("attention.sliding_window") or None,
        no_kv_reason=_no_kv_reason(architecture, keys, n_layer, n_head, (head_dim_k, head_dim_v)),
    )


def _no_kv_reason(
    architecture: str, keys: _Keys, n_layer: int, n_head: tuple[int, ...], head_dims: tuple[int, int]
) -> str:
    families = (
        (_RECURRENT, "keeps a recurrent state of fixed size, not a KV cache"),
        (_HYBRID, "mixes layers with a recurrent state into those with a KV cache"),
        (_DIFFUSION, "is a diffusion model and keeps no KV cache"),
        (_ENCODER, "is an encoder and does not decode token by token"),
        (_NOT_A_TEXT_MODEL, "is not a text model"),
        (_DRAFT_HEAD, "is a draft head that runs beside a larger model"),
    )
    for names, reason in families:
        if architecture in names:
            return f"{architecture} {reason}"
    if architecture in _OTHER:
        return f"{architecture} {_OTHER[architecture]}"
    signs: tuple[tuple[bool, str], ...] = (
        (any(map(keys.any_below, ("ssm.", "wkv.", "kda.", "shortconv."))), "keeps a recurrent state in some layers"),
        (keys.any_below("attention.indexer."), "keeps a second cache for its sparse-attention indexer"),
        (keys.any_below("attention.compress_ratios"), "compresses its KV cache by layer"),
        (keys.any_below("attention.key_length_mla_swa"), "has latent heads of another width in its windowed layers"),
        (keys.differs("attention.key_length_swa", head_dims[0]), "has heads of another width in its windowed layers"),
        (keys.differs("attention.value_length_swa", head_dims[1]), "has heads of another width in its windowed layers"),
        (bool(keys.count("attention.shared_kv_layers")), "shares the KV cache between layers"),
        ((keys.count("num_loops") or 1) > 1, "runs its layers more than once, each time with a cache of its own"),
        (not n_layer or not any(n_head), "has a header without layers or attention heads"),
    )
    return next((f"{architecture} {reason}" for present, reason in signs if present), "")


def _default(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _n_vocab(from_key: int | None, token_list: object, tensors: Iterable[TensorInfo]) -> int | None:
    if from_key:
        return from_key
    if isinstance(token_list, ArrayLength) and token_list:
        return token_list
    return next((t.shape[1] for t in tensors if t.name == "token_embd.weight" and len(t.shape) == 2), None)
