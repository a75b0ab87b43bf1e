"""Read a model's shape from its metadata: layers, heads, and the state that llama.cpp keeps per sequence in each layer:
K and V of all positions, or of those in a window, a recurrent state, or caches of sparse attention.

The header has some of it (KV heads by layer, the pattern of windows); the rest follows llama.cpp's own rules by
architecture, repeated in the tables here. If llama.cpp keeps further state, `no_kv_reason` names it: a number wrong by
a factor of ten is worse than none. Source: `load_arch_hparams` in src/models/, `create_memory` in llama-model.cpp,
llama-hparams.cpp and llama-kv-cache.cpp of llama.cpp; the tests compare the result with the caches that llama.cpp
creates from the same metadata.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ggbench.errors import BadFile
from ggbench.gguf_file.model_file import LayerState, ModelShape, Rows, TensorInfo
from ggbench.gguf_file.parser import ArrayLength

RECURRENT_LAYERS = "attention.recurrent_layers"
_NUM_LOOPS = "num_loops"
_INDEXER_GROUP = "attention.indexer."
_COMPRESS_RATIOS = "attention.compress_ratios"
_KEY_LENGTH_MLA_SWA = "attention.key_length_mla_swa"
"""Keys of llama.cpp's llama-arch.cpp (`LLM_KV_NAMES`) that gguf 0.19 does not have."""

_LARGEST = 1 << 31


class TypedMetadata:
    """The values of one architecture; keys are those after its name, `block_count`."""

    def __init__(self, name: str, architecture: str, values: Mapping[str, object]) -> None:
        self._name, self._architecture, self._values = name, architecture, values

    def count(self, key: str, default: int = 0) -> int:
        """Return a whole number, `default` if the key is missing. Raises BadFile for any other value."""
        value = self._values.get(self._full(key))
        return default if value is None else self._checked(key, value)

    def per_layer(self, key: str, n_layer: int) -> tuple[int, ...] | None:
        """Return a number for each layer, from an array or from one number for all; None if the key is missing.

        Raises BadFile for another number of values or a value that is not a whole number.
        """
        value = self._values.get(self._full(key))
        if value is None:
            return None
        if not isinstance(value, list):
            return (self._checked(key, value),) * n_layer
        return tuple(self._checked(key, item) for item in self._one_each(key, value, n_layer))

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return the whole numbers of an array; empty if it is missing. Raises BadFile."""
        value = self._values.get(self._full(key))
        return tuple(self._checked(key, item) for item in value) if isinstance(value, list) else ()

    def flags(self, key: str, n_layer: int) -> tuple[bool, ...] | None:
        """Return a flag for each layer if the value is an array; None if it is missing or one number."""
        value = self._values.get(self._full(key))
        return tuple(map(bool, self._one_each(key, value, n_layer))) if isinstance(value, list) else None

    def has_any(self, *beginnings: str) -> bool:
        full = tuple(map(self._full, beginnings))
        return any(key.startswith(full) for key in self._values)

    def wrong(self, what: str) -> BadFile:
        return BadFile(f"{self._name}: {what}", "convert the model again")

    def _one_each(self, key: str, value: list[object], n_layer: int) -> list[object]:
        if len(value) != n_layer:
            raise self.wrong(f"{self._full(key)!r} has {len(value)} values for {n_layer} layers")
        return value

    def _full(self, key: str) -> str:
        return f"{self._architecture}.{key}"

    def _checked(self, key: str, value: object) -> int:
        if isinstance(value, bool | ArrayLength) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise self.wrong(f"{self._full(key)!r} is {str(value)[:40]!r}, not a count")
        return value


class _Windows(NamedTuple):
    """Which layers of an architecture have the sliding window."""

    period: int | None
    """One layer in this many has no window (`set_swa_pattern`); None if only an array in the header determines it."""
    dense_first: bool = False
    """Whether that layer is the first of each period, not the last."""
    default: int = 0
    """Window if the header has none; 0: no windows."""
    fixed: int = 0
    """Window that replaces the header's, unless that is 0."""
    n_layer: int | None = None
    """The only number of layers with windows; None: any."""


_WINDOWS: Mapping[str, _Windows] = {
    "afmoe": _Windows(4), "cohere2": _Windows(4), "cohere2moe": _Windows(4, dense_first=True),
    "exaone-moe": _Windows(4), "exaone4": _Windows(4, default=4096, n_layer=64), "gemma2": _Windows(2, default=4096),
    "gemma3": _Windows(6), "gemma3n": _Windows(5), "gemma4": _Windows(None), "gpt-oss": _Windows(2),
    "granite_swa": _Windows(None), "laguna": _Windows(4, dense_first=True), "lfm2": _Windows(0),
    "llama4": _Windows(4, default=8192, fixed=8192), "maple": _Windows(None), "mellum": _Windows(4),
    "mimo2": _Windows(None), "muse-glimmer": _Windows(4), "olmo2": _Windows(4), "plamo3": _Windows(8),
    "smallthinker": _Windows(4, dense_first=True, fixed=4096), "spark2_5": _Windows(None), "step35": _Windows(None),
}  # fmt: skip

_RECURRENCES = {
    "all": "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7",
    "all, beside attention": "falcon-h1",
    "without KV heads": "jamba granitehybrid plamo2 lfm2 lfm2moe kimi-linear kimi-k3 bailingmoe3 glm5-next",
    "without KV heads and feed-forward": "nemotron_h nemotron_h_moe",
    "between attention": "qwen3next qwen35 qwen35moe qwen4exp minimax-01",
}
"""Architectures by which of their layers have a recurrent state."""
_RECURRENCE = {name: rule for rule, names in _RECURRENCES.items() for name in names.split()}
RECURRENT = frozenset(_RECURRENCE)
"""Architectures with a recurrent state of known size."""
_ATTENTION_INTERVAL = {"minimax-01": 8}
"""Length of the period in which the last layer has attention, if not 4."""
_WITHOUT_GROUPS = frozenset({"mamba", "jamba"})
"""Architectures in which llama.cpp ignores the number of state groups."""

_GEMMA3N_KV_LAYERS = 20
"""llama.cpp keeps KV for the first 20 layers of gemma3n, reused by the others; the header has no key for this."""
SHARES_KV = frozenset({"gemma3n", "gemma4"})
"""Architectures whose last layers attend to the KV of earlier ones."""


class Heads(NamedTuple):
    """The header's values for attention and feed-forward; sequences have an entry per layer."""

    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    head_dim_k: int
    head_dim_v: int
    n_ff: tuple[int, ...]
    n_embd: int
    is_latent: bool
    """Whether K and V are cached as one latent (MLA)."""


def layer_states(architecture: str, values: TypedMetadata, heads: Heads) -> tuple[LayerState, ...]:
    """Return each layer's state; draft layers (NextN) have none. Raises BadFile for a wrong array."""
    n_all = len(heads.n_head_kv)
    n_layer = max(0, n_all - values.count("nextn_predict_layers"))
    windows = _layer_windows(architecture, values, n_all, n_layer)
    recurrent = _is_recurrent(architecture, values, heads, n_layer)
    elements = _recurrent_elements(architecture, values, heads) if any(recurrent) else 0
    n_keeping = _GEMMA3N_KV_LAYERS if architecture == "gemma3n" else n_all
    if architecture == "gemma4":
        n_keeping -= values.count("attention.shared_kv_layers")
    states: list[LayerState] = []
    for layer in range(n_layer):
        state, window = LayerState(recurrent_elements=elements * recurrent[layer]), windows[layer]
        if not _has_attention(architecture, heads, layer, is_recurrent=recurrent[layer]):
            states.append(state)
        elif layer >= n_keeping:
            source = max(0, n_keeping - (1 if window is None else 2))
            states.append(replace(state, read=states[source].read))
        else:
            rows = _rows_of(values, heads, layer, window)
            states.append(replace(state, kept=(rows,), read=(rows,)))
    if architecture in SPARSE:
        states = _sparse_states(architecture, values, heads, states)
    return (*states, *[LayerState()] * (n_all - n_layer))


def _rows_of(values: TypedMetadata, heads: Heads, layer: int, window: int | None) -> Rows:
    """Return K and V of a layer with attention; with a window, its heads may have another width."""
    dim_k, dim_v = heads.head_dim_k, heads.head_dim_v
    if window is not None:
        dim_k = values.count("attention.key_length_swa", dim_k)
        dim_v = values.count("attention.value_length_swa", dim_v)
    n_kv, flop = heads.n_head_kv[layer], 2 * heads.n_head[layer] * (dim_k + dim_v)
    return Rows(n_kv * dim_k, 0 if heads.is_latent else n_kv * dim_v, window, flop=flop)


SPARSE = frozenset({"deepseek32", "deepseek4", "glm-dsa", "glm5-next", "minimax-m3", "qwen4exp"})
"""Architectures in which an indexer chooses what is attended to."""
_GLM_5_2_CTX = 1 << 20
"""Context from which on glm-dsa has an indexer only in every fourth layer, if the header does not say in which."""
_ATTENDS_TO_ALL = 128
"""Compression ratio of DeepSeek V4 without an indexer."""


def _sparse_states(
    architecture: str, values: TypedMetadata, heads: Heads, states: Sequence[LayerState]
) -> list[LayerState]:
    """Return the states of layers in which an indexer chooses the positions that are attended to.

    It reads a key of every position, or one of several; K and V are read up to its budget. So latency has two slopes.
    Sources, of llama.cpp: `create_memory` in llama-model.cpp for what is kept, and in src/models/ `build_qsa_top_k`
    (qwen4exp), `build_csa_lid_attention` and `build_hca_attention` (deepseek4), `build_inp_kpool` and
    `build_kpool_select` (glm5-next), the branch `msa_decode` (minimax-m3) and `build_attn` with `top_k` (glm-dsa,
    deepseek32) for what is read. With flash attention no backend reads the K and V of positions that are masked.
    """
    n_dense = unused_v_width = 0
    if architecture == "minimax-m3":
        n_dense, unused_v_width = values.count("leading_dense_block_count"), heads.head_dim_v
    ratios = _compress_ratios(values, len(states))
    has_keys = values.flags("attention.indexer.types", len(states))
    has_keys = has_keys or _unstated_indexers(architecture, values, len(states))
    found = []
    for layer, state in enumerate(states):
        if not state.kept:
            state = replace(state, recurrent_elements=state.recurrent_elements + _ngram_elements(values, layer))
        elif architecture == "deepseek4":
            state = _compressed(values, replace(state.kept[0], v_width=0), ratios[layer])
        elif layer >= n_dense:
            state = _indexed(values, state.kept[0], ratios[layer], unused_v_width)
            if not has_keys[layer]:
                state = LayerState(state.kept[:1], state.read[:1])
            if architecture == "qwen4exp" and not ratios[layer]:
                state = replace(state, read=states[layer].read)
        found.append(state)
    return found


def _compress_ratios(values: TypedMetadata, n_layer: int) -> tuple[int, ...]:
    """Return the positions that have one row together in each layer, or 0. Raises BadFile for fewer than layers."""
    found = values.numbers(_COMPRESS_RATIOS) or (0,) * n_layer
    if len(found) < n_layer:
        raise values.wrong(f"has {len(found)} compression ratios for {n_layer} layers")
    return found


def _indexer_keys(values: TypedMetadata) -> Rows:
    width = values.count("attention.indexer.key_length")
    return Rows(width, flop=2 * values.count("attention.indexer.head_count") * width)


def _unstated_indexers(architecture: str, values: TypedMetadata, n_layer: int) -> tuple[bool, ...]:
    """Return which layers have an indexer of their own if the header does not say; the others attend to what that of an
    earlier layer chose.
    """
    if architecture != "glm-dsa" or values.count("context_length") < _GLM_5_2_CTX:
        return (True,) * n_layer
    return tuple(layer < 2 or layer % 4 == 2 for layer in range(n_layer))


def _indexed(values: TypedMetadata, rows: Rows, ratio: int, unused_v_width: int) -> LayerState:
    """Return the state of a layer whose K and V are `rows`, with the keys of its indexer."""
    keys, pool = _indexer_keys(values), max(1, values.count("attention.indexer.kpool"))
    n_kept = 1 if pool == 1 else 3  # key, gate and pooled key of each position
    kept = replace(keys, k_width=n_kept * keys.k_width, v_width=unused_v_width)
    read = replace(keys, every=pool, flop=keys.flop // max(1, ratio))
    budget = values.count("attention.indexer.top_k") * max(1, values.count("attention.indexer.block_size"))
    # the last ones are attended to as well, though not all that go together are there
    return LayerState((rows, kept), (replace(rows, limit=budget + max(pool, ratio) - 1), read))


def _compressed(values: TypedMetadata, rows: Rows, ratio: int) -> LayerState:
    """Return the state of a layer with a window, and one row for each `ratio` positions; by an indexer for 4 of them,
    all for 128. llama.cpp copies all these rows to follow those of the window, then attends to them.
    """
    rows = replace(rows, limit=values.count("attention.sliding_window"))
    if not ratio:
        return LayerState((rows,), (rows,))
    copied = Rows(rows.k_width, every=ratio)
    attended = replace(copied, flop=rows.flop)
    n_kept = 2 * ratio * rows.k_width  # the positions of the row that is not complete, with their scores
    if ratio == _ATTENDS_TO_ALL:
        return LayerState((rows, copied), (rows, copied, attended), n_kept)
    attended = replace(attended, limit=ratio * values.count("attention.indexer.top_k"))
    keys = replace(_indexer_keys(values), every=ratio)
    return LayerState(
        (rows, copied, keys), (rows, copied, attended, keys), 8 * ratio * (rows.k_width + keys.k_width)
    )


def _ngram_elements(values: TypedMetadata, layer: int) -> int:
    """Return the history of the convolution in a layer that adds n-grams (`ple_conv_state`); 0 in others."""
    if layer not in values.numbers("ple.layers"):
        return 0
    keys = ("ple.ngram_size", "hyper_connection.count", "embedding_length")
    return (values.count("ple.conv_kernel") - 1) * math.prod(map(values.count, keys))


def _has_attention(architecture: str, heads: Heads, layer: int, *, is_recurrent: bool) -> bool:
    rule = _RECURRENCE.get(architecture, "")
    if not heads.n_head_kv[layer]:
        return False
    if is_recurrent:
        return rule == "all, beside attention"
    return not (rule == "without KV heads and feed-forward" and heads.n_ff[layer])


def has_windows(architecture: str, n_layer: int) -> bool:
    """Return whether llama.cpp gives windows to some layers of this architecture with this number of layers."""
    rule = _WINDOWS.get(architecture)
    return rule is not None and rule.n_layer in (None, n_layer)


def _layer_windows(architecture: str, values: TypedMetadata, n_all: int, n_layer: int) -> list[int | None]:
    """Return the window of each layer but those that draft, None for a layer that attends to all positions."""
    rule, window = _WINDOWS.get(architecture), 0
    if rule is not None and has_windows(architecture, n_layer):
        window = values.count("attention.sliding_window", rule.default)
    if rule is None or not window:
        return [None] * n_layer
    window = rule.fixed or window
    return [window if has_window else None for has_window in _has_window(rule, values, n_all)[:n_layer]]


def _has_window(rule: _Windows, values: TypedMetadata, n_all: int) -> tuple[bool, ...]:
    """Return which layers have a window: by the header's array, else by the architecture's period."""
    key = "attention.sliding_window_pattern"
    stated = values.flags(key, n_all)
    if stated is not None:
        return stated
    if rule.period is None:
        return (False,) * n_all
    period = values.count(key, rule.period)
    if not period:
        return (True,) * n_all
    global_at = 0 if rule.dense_first else period - 1
    return tuple(layer % period != global_at for layer in range(n_all))


def _is_recurrent(architecture: str, values: TypedMetadata, heads: Heads, n_layer: int) -> list[bool]:
    match _RECURRENCE.get(architecture):
        case "all" | "all, beside attention":
            return [True] * n_layer
        case "without KV heads":
            return [not n_kv for n_kv in heads.n_head_kv[:n_layer]]
        case "without KV heads and feed-forward":
            pairs = zip(heads.n_head_kv[:n_layer], heads.n_ff, strict=False)
            return [not n_kv and not n_ff for n_kv, n_ff in pairs]
        case "between attention":
            stated = values.flags(RECURRENT_LAYERS, len(heads.n_head_kv))
            if stated is not None:
                return list(stated[:n_layer])
            interval = values.count("full_attention_interval", _ATTENTION_INTERVAL.get(architecture, 4))
            return [interval > 0 and (layer + 1) % interval > 0 for layer in range(n_layer)]
    return [False] * n_layer


def is_between_attention(architecture: str) -> bool:
    """Return whether the layers with attention are the last of each period, or those in the header's array."""
    return _RECURRENCE.get(architecture) == "between attention"


def _recurrent_elements(architecture: str, values: TypedMetadata, heads: Heads) -> int:
    """Return the elements of one layer's state: the convolution's and the recurrence's (`n_embd_r` and `n_embd_s`)."""
    n_conv = values.count("ssm.conv_kernel")
    n_inner, n_state = values.count("ssm.inner_size"), values.count("ssm.state_size")
    if head_size := values.count("wkv.head_size"):
        return heads.n_embd * (values.count("token_shift_count", 2) + head_size)
    if cached := values.count("shortconv.l_cache"):
        return heads.n_embd * (cached - 1) + n_state * n_inner
    if head_dim := values.count("kda.head_dim"):
        inner = heads.n_head[0] * head_dim
        return 3 * (n_conv - 1 if n_conv else 3) * inner + inner * head_dim
    n_group = 0 if architecture in _WITHOUT_GROUPS else values.count("ssm.group_count")
    convolution = max(0, n_conv - 1) * (n_inner + 2 * n_group * n_state)
    if architecture == "minimax-01":
        return convolution + heads.head_dim_k**2 * heads.n_head[0]
    return convolution + n_state * n_inner


_NO_KV_FAMILIES = {
    "keeps caches that ggbench does not count": "graniteswitch",
    "is a diffusion model and keeps no KV cache": "dream llada llada-moe rnd1",
    "is an encoder and does not decode token by token": "bert modern-bert nomic-bert nomic-bert-moe neo-bert "
    "jina-bert-v2 jina-bert-v3 eurobert gemma-embedding llama-embed t5encoder",
    "is not a text model": "clip wavtokenizer-dec qwen3tts pockettts",
    "is a draft head that runs with a larger model": "eagle3 dflash gemma4-assistant",
    "keeps a second cache for its encoder": "t5",
    "runs its layers in cycles, each with its own cache": "hrm_text",
}

_STATE_GROUPS = ("ssm.", "wkv.", "kda.", "shortconv.")
"""Prefixes of keys: any key of a group counts, even one unknown to gguf."""
_DRAFTS_IN_CACHE = RECURRENT - {"qwen3next", "qwen35", "qwen35moe", "qwen4exp", "minimax-01", "glm5-next"}
"""Architectures whose draft layers (NextN) share the cache of the others in llama.cpp."""

_MOST_LAYERS = 4096


def read_shape(
    name: str, architecture: str, metadata: Mapping[str, object], tensors: Iterable[TensorInfo]
) -> ModelShape:
    """Return the shape given by the metadata. Raises BadFile for an impossible value."""
    values = TypedMetadata(name, architecture, metadata)
    n_layer, n_embd = values.count("block_count"), values.count("embedding_length")
    if n_layer > _MOST_LAYERS:
        raise values.wrong(f"claims {n_layer} layers")
    heads = _read_heads(values, n_layer, n_embd)
    states = layer_states(architecture, values, heads)
    n_expert = values.count("expert_count")
    experts_used = values.per_layer("expert_used_count", n_layer) or ()
    n_expert_used = max(experts_used, default=0)
    if n_expert_used > n_expert:
        raise values.wrong(f"uses {n_expert_used} experts of {n_expert}")
    windows = (state.window for state in states if state.window)
    return ModelShape(
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=heads.n_head,
        n_head_kv=tuple(n_kv if state.kept else 0 for n_kv, state in zip(heads.n_head_kv, states, strict=True)),
        head_dim_k=heads.head_dim_k,
        # a latent cache (MLA) has only K; V is a view of it
        head_dim_v=0 if heads.is_latent else heads.head_dim_v,
        n_ff=heads.n_ff,
        n_vocab=values.count("vocab_size") or _counted_vocabulary(metadata, tensors),
        n_ctx_train=values.count("context_length") or None,
        n_expert=n_expert,
        n_expert_used=n_expert_used,
        experts_used=experts_used,
        n_layer_nextn=min(n_layer, values.count("nextn_predict_layers")),
        sliding_window=next(windows, values.count("attention.sliding_window") or None),
        states=states,
        no_kv_reason=_no_kv_reason(architecture, values, n_layer, heads.n_head),
    )


def _read_heads(values: TypedMetadata, n_layer: int, n_embd: int) -> Heads:
    none = (0,) * n_layer
    n_head = values.per_layer("attention.head_count", n_layer) or none
    head_dim = n_embd // next(filter(None, n_head), n_embd or 1)
    return Heads(
        n_head=n_head,
        n_head_kv=values.per_layer("attention.head_count_kv", n_layer) or n_head,
        head_dim_k=values.count("attention.key_length", head_dim),
        head_dim_v=values.count("attention.value_length", head_dim),
        n_ff=values.per_layer("feed_forward_length", n_layer) or none,
        n_embd=n_embd,
        is_latent=bool(values.count("attention.key_length_mla") and values.count("attention.value_length_mla")),
    )


def _counted_vocabulary(metadata: Mapping[str, object], tensors: Iterable[TensorInfo]) -> int | None:
    """Return the length of the token list, else of the embedding; None without either."""
    token_list = metadata.get("tokenizer.ggml.tokens")
    if token_list and isinstance(token_list, ArrayLength):
        return token_list
    embedding = (each for each in tensors if each.name == "token_embd.weight" and len(each.shape) == 2)
    return next((each.shape[1] for each in embedding), None)


def _no_kv_reason(architecture: str, values: TypedMetadata, n_layer: int, n_head: tuple[int, ...]) -> str:
    families = ((architecture in names.split(), reason) for reason, names in _NO_KV_FAMILIES.items())
    is_recurrent, is_sparse = architecture in RECURRENT, architecture in SPARSE
    drafts = bool(values.count("nextn_predict_layers")) and architecture in _DRAFTS_IN_CACHE
    signs: tuple[tuple[bool, str], ...] = (
        (not is_recurrent and values.has_any(*_STATE_GROUPS), "keeps a recurrent state in some layers"),
        (
            not is_sparse and values.has_any(_INDEXER_GROUP),
            "keeps a second cache for its sparse-attention indexer",
        ),
        (not is_sparse and values.has_any(_COMPRESS_RATIOS), "compresses its KV cache by layer"),
        (
            is_sparse and not values.count(f"{_INDEXER_GROUP}top_k"),
            "has a header without the budget of its sparse attention",
        ),
        (values.has_any(_KEY_LENGTH_MLA_SWA), "has latent heads of another width in its windowed layers"),
        (
            architecture not in SHARES_KV and bool(values.count("attention.shared_kv_layers")),
            "shares the KV cache between layers",
        ),
        (values.count(_NUM_LOOPS) > 1, "runs its layers more than once, each time with its own cache"),
        (drafts, "has draft layers besides those with a recurrent state"),
        (not n_layer or not (any(n_head) or is_recurrent), "has a header without layers or attention heads"),
    )
    return next((f"{architecture} {reason}" for present, reason in (*families, *signs) if present), "")
