"""From metadata to a model's shape: layers, heads, and what one position costs in the KV cache.

What llama.cpp caches depends on the architecture and not on the shape alone. Where it is more than K and V for each
position, `no_kv_reason` says so: a figure that is wrong by a factor of ten is worse than none.
Names of keys come from gguf. Source of the rest: llama.cpp's llama-hparams, llama-kv-cache and llama-arch; the tests
compare the results with what llama.cpp allocates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.gguf_file.layer_states import RECURRENT, SHARES_KV, Heads, TypedMetadata, layer_states
from ggbench.gguf_file.model_file import ModelShape, TensorInfo
from ggbench.gguf_file.parser import ArrayLength

_NO_KV_FAMILIES: Mapping[str, Collection[str]] = {
    "mixes caches of several kinds": ("qwen4exp", "deepseek4", "glm5-next", "graniteswitch"),
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

_STATE_GROUPS = ("{arch}.ssm.", "{arch}.wkv.", "{arch}.kda.", "{arch}.shortconv.")
_KEEP_KV_OF_DRAFTS = RECURRENT - {"qwen3next", "qwen35", "qwen35moe", "minimax-01"}
"""Architectures whose draft layers (NextN) llama.cpp does not keep out of the cache of the others."""
_INDEXER_GROUP = "{arch}.attention.indexer."
"""Beginnings of keys: any key of a group is a sign, also one that gguf does not know yet."""

_MOST_LAYERS = 4096


def read_shape(
    name: str, architecture: str, metadata: Mapping[str, object], tensors: Iterable[TensorInfo]
) -> ModelShape:
    """Return the shape that the metadata of this architecture gives. Raises BadFile for a value that cannot be one."""
    values = TypedMetadata(name, architecture, metadata)
    llm, attention = gguf_constants.Keys.LLM, gguf_constants.Keys.Attention
    n_layer, n_embd = values.count(llm.BLOCK_COUNT), values.count(llm.EMBEDDING_LENGTH)
    if n_layer > _MOST_LAYERS:
        raise values.wrong(f"claims {n_layer} layers")
    n_head = values.per_layer(attention.HEAD_COUNT, n_layer) or (0,) * n_layer
    n_head_kv = values.per_layer(attention.HEAD_COUNT_KV, n_layer) or n_head
    head_dim = n_embd // next(filter(None, n_head), n_embd or 1)
    head_dim_k = values.count(attention.KEY_LENGTH, head_dim)
    head_dim_v = values.count(attention.VALUE_LENGTH, head_dim)
    is_latent = bool(values.count(attention.KEY_LENGTH_MLA) and values.count(attention.VALUE_LENGTH_MLA))
    n_ff = values.per_layer(llm.FEED_FORWARD_LENGTH, n_layer) or (0,) * n_layer
    states = layer_states(architecture, values, Heads(n_head, n_head_kv, head_dim_k, head_dim_v, n_ff, n_embd))
    n_expert = values.count(llm.EXPERT_COUNT)
    experts_used = values.per_layer(llm.EXPERT_USED_COUNT, n_layer) or ()
    n_expert_used = max(experts_used, default=0)
    if n_expert_used > n_expert:
        raise values.wrong(f"uses {n_expert_used} experts of {n_expert}")
    return ModelShape(
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=tuple(heads if state.k_width else 0 for heads, state in zip(n_head_kv, states, strict=True)),
        head_dim_k=head_dim_k,
        # A latent cache (MLA) holds K alone; V is a view of it.
        head_dim_v=0 if is_latent else head_dim_v,
        n_ff=n_ff,
        n_vocab=_n_vocab(values.count(llm.VOCAB_SIZE), metadata.get(gguf_constants.Keys.Tokenizer.LIST), tensors),
        n_ctx_train=values.count(llm.CONTEXT_LENGTH) or None,
        n_expert=n_expert,
        n_expert_used=n_expert_used,
        experts_used=experts_used,
        n_layer_nextn=min(n_layer, values.count(llm.NEXTN_PREDICT_LAYERS)),
        sliding_window=next(
            (state.window for state in states if state.window), values.count(attention.SLIDING_WINDOW) or None
        ),
        states=states,
        no_kv_reason=_no_kv_reason(architecture, values, n_layer, n_head),
    )


def _no_kv_reason(architecture: str, values: TypedMetadata, n_layer: int, n_head: tuple[int, ...]) -> str:
    keys = gguf_constants.Keys
    families = ((architecture in names, reason) for reason, names in _NO_KV_FAMILIES.items())
    is_recurrent = architecture in RECURRENT
    drafts = bool(values.count(keys.LLM.NEXTN_PREDICT_LAYERS)) and architecture in _KEEP_KV_OF_DRAFTS
    signs: tuple[tuple[bool, str], ...] = (
        (not is_recurrent and values.has_any(*_STATE_GROUPS), "keeps a recurrent state in some layers"),
        (values.has_any(_INDEXER_GROUP), "keeps a second cache for its sparse-attention indexer"),
        (values.has_any(_COMPRESS_RATIOS), "compresses its KV cache by layer"),
        (values.has_any(_KEY_LENGTH_MLA_SWA), "has latent heads of another width in its windowed layers"),
        (
            architecture not in SHARES_KV and bool(values.count(keys.Attention.SHARED_KV_LAYERS)),
            "shares the KV cache between layers",
        ),
        (values.count(_NUM_LOOPS) > 1, "runs its layers more than once, each time with a cache of its own"),
        (drafts, "has draft layers beside those with a recurrent state"),
        (not n_layer or not (any(n_head) or is_recurrent), "has a header without layers or attention heads"),
    )
    return next((f"{architecture} {reason}" for present, reason in (*families, *signs) if present), "")


def _n_vocab(from_key: int, token_list: object, tensors: Iterable[TensorInfo]) -> int | None:
    if from_key:
        return from_key
    if isinstance(token_list, ArrayLength) and token_list:
        return token_list
    embedding = tensor_name("TOKEN_EMBD")
    return next((t.shape[1] for t in tensors if t.name == embedding and len(t.shape) == 2), None)
