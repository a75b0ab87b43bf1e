"""From metadata to a model's shape: layers, heads, and what one position costs in the KV cache.

What llama.cpp caches depends on the architecture and not on the shape alone. Where it is more than K and V for each
position, `no_kv_reason` says so: a figure that is wrong by a factor of ten is worse than none.
Names of keys come from gguf. Source of the rest: llama.cpp's llama-hparams, llama-kv-cache and llama-arch; the tests
compare the results with what llama.cpp allocates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ggbench.errors import BadFile
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.gguf_file.model_file import Shape, TensorInfo
from ggbench.gguf_file.parser import ArrayLength

_NO_KV_FAMILIES: Mapping[str, Collection[str]] = {
    "keeps a recurrent state of fixed size, not a KV cache": (
        "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7",
    ),
    "mixes layers with a recurrent state into those with a KV cache": (
        "qwen3next", "qwen35", "qwen35moe", "qwen4exp", "plamo2", "jamba", "falcon-h1", "deepseek4", "nemotron_h",
        "nemotron_h_moe", "granitehybrid", "bailingmoe3", "lfm2", "lfm2moe", "kimi-linear", "kimi-k3", "glm5-next",
        "minimax-01",
    ),
    "is a diffusion model and keeps no KV cache": ("dream", "llada", "llada-moe", "rnd1"),
    "is an encoder and does not decode token by token": (
        "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
        "gemma-embedding", "llama-embed", "t5encoder",
    ),
    "is not a text model": ("clip", "wavtokenizer-dec", "qwen3tts", "pockettts"),
    "is a draft head that runs beside a larger model": ("eagle3", "dflash", "gemma4-assistant"),
    "keeps a second cache for its encoder": ("t5",),
    "runs its layers in cycles, each with a cache of its own": ("hrm_text",),
}  # fmt: skip

_NUM_LOOPS = "{arch}.num_loops"
_COMPRESS_RATIOS = "{arch}.attention.compress_ratios"
_KEY_LENGTH_MLA_SWA = "{arch}.attention.key_length_mla_swa"
"""Keys of llama.cpp's llama-arch.cpp (`LLM_KV_NAMES`) that gguf 0.19 does not have."""

_RECURRENT_GROUPS = ("{arch}.ssm.", "{arch}.wkv.", "{arch}.kda.", "{arch}.shortconv.")
_INDEXER_GROUP = "{arch}.attention.indexer."
"""Beginnings of keys: any key of a group is a sign, also one that gguf does not know yet."""

_GEMMA3N_KV_LAYERS = 20
"""llama.cpp keeps KV for the first 20 layers of gemma3n, and the rest reuse it; no key of the header says so."""
_MOST_LAYERS = 4096
_LARGEST = 1 << 31


class _Metadata:
    """Typed access to the values of one architecture; keys are gguf's, `{arch}.block_count`."""

    def __init__(self, name: str, architecture: str, values: Mapping[str, object]) -> None:
        self._name, self._architecture, self._values = name, architecture, values

    def count(self, key: str, default: int = 0) -> int:
        value = self._values.get(self._full(key))
        return default if value is None else self._checked(key, value)

    def per_layer(self, key: str, n_layer: int) -> tuple[int, ...] | None:
        value = self._values.get(self._full(key))
        if value is None:
            return None
        if not isinstance(value, list):
            return (self._checked(key, value),) * n_layer
        if len(value) != n_layer:
            raise _wrong(self._name, f"{self._full(key)!r} has {len(value)} values for {n_layer} layers")
        return tuple(self._checked(key, item) for item in value)

    def has_any(self, *beginnings: str) -> bool:
        full = tuple(map(self._full, beginnings))
        return any(key.startswith(full) for key in self._values)

    def _full(self, key: str) -> str:
        return key.format(arch=self._architecture)

    def _checked(self, key: str, value: object) -> int:
        if isinstance(value, bool | ArrayLength) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise _wrong(self._name, f"{self._full(key)!r} is {str(value)[:40]!r}, not a count")
        return value


def _wrong(name: str, what: str) -> BadFile:
    return BadFile(f"{name}: {what}", "convert the model again")


def read_shape(name: str, architecture: str, metadata: Mapping[str, object], tensors: Iterable[TensorInfo]) -> Shape:
    """Return the shape that the metadata of this architecture gives. Raises BadFile for a value that cannot be one."""
    values = _Metadata(name, architecture, metadata)
    llm, attention = gguf_constants.Keys.LLM, gguf_constants.Keys.Attention
    n_layer, n_embd = values.count(llm.BLOCK_COUNT), values.count(llm.EMBEDDING_LENGTH)
    if n_layer > _MOST_LAYERS:
        raise _wrong(name, f"claims {n_layer} layers")
    n_head = values.per_layer(attention.HEAD_COUNT, n_layer) or (0,) * n_layer
    n_head_kv = values.per_layer(attention.HEAD_COUNT_KV, n_layer) or n_head
    head_dim = n_embd // next(filter(None, n_head), n_embd or 1)
    head_dim_k = values.count(attention.KEY_LENGTH, head_dim)
    head_dim_v = values.count(attention.VALUE_LENGTH, head_dim)
    is_latent = bool(values.count(attention.KEY_LENGTH_MLA) and values.count(attention.VALUE_LENGTH_MLA))
    n_cached = n_layer - values.count(llm.NEXTN_PREDICT_LAYERS)
    if architecture == "gemma3n":
        n_cached = min(n_cached, _GEMMA3N_KV_LAYERS)
    n_expert = values.count(llm.EXPERT_COUNT)
    n_expert_used = max(values.per_layer(llm.EXPERT_USED_COUNT, n_layer) or (0,))
    if n_expert_used > n_expert:
        raise _wrong(name, f"uses {n_expert_used} experts of {n_expert}")
    return Shape(
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=tuple(heads if layer < n_cached else 0 for layer, heads in enumerate(n_head_kv)),
        head_dim_k=head_dim_k,
        # A latent cache (MLA) holds K alone; V is a view of it.
        head_dim_v=0 if is_latent else head_dim_v,
        n_ff=values.per_layer(llm.FEED_FORWARD_LENGTH, n_layer) or (0,) * n_layer,
        n_vocab=_n_vocab(values.count(llm.VOCAB_SIZE), metadata.get(gguf_constants.Keys.Tokenizer.LIST), tensors),
        n_ctx_train=values.count(llm.CONTEXT_LENGTH) or None,
        n_expert=n_expert,
        n_expert_used=n_expert_used,
        sliding_window=values.count(attention.SLIDING_WINDOW) or None,
        no_kv_reason=_no_kv_reason(architecture, values, n_layer, n_head, (head_dim_k, head_dim_v)),
    )


def _no_kv_reason(
    architecture: str, values: _Metadata, n_layer: int, n_head: tuple[int, ...], head_dims: tuple[int, int]
) -> str:
    attention = gguf_constants.Keys.Attention
    families = ((architecture in names, reason) for reason, names in _NO_KV_FAMILIES.items())
    other_width = "has heads of another width in its windowed layers"
    signs: tuple[tuple[bool, str], ...] = (
        (values.has_any(*_RECURRENT_GROUPS), "keeps a recurrent state in some layers"),
        (values.has_any(_INDEXER_GROUP), "keeps a second cache for its sparse-attention indexer"),
        (values.has_any(_COMPRESS_RATIOS), "compresses its KV cache by layer"),
        (values.has_any(_KEY_LENGTH_MLA_SWA), "has latent heads of another width in its windowed layers"),
        (values.count(attention.KEY_LENGTH_SWA, head_dims[0]) != head_dims[0], other_width),
        (values.count(attention.VALUE_LENGTH_SWA, head_dims[1]) != head_dims[1], other_width),
        (bool(values.count(attention.SHARED_KV_LAYERS)), "shares the KV cache between layers"),
        (values.count(_NUM_LOOPS) > 1, "runs its layers more than once, each time with a cache of its own"),
        (not n_layer or not any(n_head), "has a header without layers or attention heads"),
    )
    return next((f"{architecture} {reason}" for present, reason in (*families, *signs) if present), "")


def _n_vocab(from_key: int, token_list: object, tensors: Iterable[TensorInfo]) -> int | None:
    if from_key:
        return from_key
    if isinstance(token_list, ArrayLength) and token_list:
        return token_list
    embedding = tensor_name("TOKEN_EMBD")
    return next((t.shape[1] for t in tensors if t.name == embedding and len(t.shape) == 2), None)
