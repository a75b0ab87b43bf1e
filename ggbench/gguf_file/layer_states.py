"""What llama.cpp keeps of a sequence for each layer, and which layers are of one kind.

K and V of its positions, those of a window, a recurrent state. A header says some of it (KV heads by layer, the
pattern of windows); the rest is llama.cpp's own rules by architecture, which the tables here repeat. Source:
`load_arch_hparams` in src/models/, `create_memory` in llama-model.cpp and llama-hparams.cpp of llama.cpp; the tests
compare the result with the caches that llama.cpp makes of the same metadata.

Two layers are of one kind when a token does the same work in both: the same tensors in the same shapes and types
(dense or experts, and the mixture of types of a `_k_m` quant), and the same state. So one of each can be measured, and
all of them counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from ggbench.errors import BadFile
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.gguf_file.model_file import LayerState, ModelFile, TensorInfo, active_bytes, tensors_by_layer
from ggbench.gguf_file.parser import ArrayLength

RECURRENT_LAYERS = "{arch}.attention.recurrent_layers"
"""A key of llama.cpp's llama-arch.cpp that gguf 0.19 does not have."""

_LARGEST = 1 << 31


class TypedMetadata:
    """The values of one architecture; keys are gguf's, `{arch}.block_count`."""

    def __init__(self, name: str, architecture: str, values: Mapping[str, object]) -> None:
        self._name, self._architecture, self._values = name, architecture, values

    def count(self, key: str, default: int = 0) -> int:
        """Return a whole number, `default` if it is missing. Raises BadFile for any other value."""
        value = self._values.get(self._full(key))
        return default if value is None else self._checked(key, value)

    def per_layer(self, key: str, n_layer: int) -> tuple[int, ...] | None:
        """Return a number of each layer, from an array or from one number for all; None if the key is missing.

        Raises BadFile for another number of values or a value that is not a whole number.
        """
        value = self._values.get(self._full(key))
        if value is None:
            return None
        if not isinstance(value, list):
            return (self._checked(key, value),) * n_layer
        if len(value) != n_layer:
            raise self.wrong(f"{self._full(key)!r} has {len(value)} values for {n_layer} layers")
        return tuple(self._checked(key, item) for item in value)

    def flags(self, key: str, n_layer: int) -> tuple[bool, ...] | None:
        """Return a flag of each layer if the value is an array; None if it is missing or one number."""
        value = self._values.get(self._full(key))
        if not isinstance(value, list):
            return None
        if len(value) != n_layer:
            raise self.wrong(f"{self._full(key)!r} has {len(value)} values for {n_layer} layers")
        return tuple(map(bool, value))

    def has(self, key: str) -> bool:
        """Return whether the header has this key."""
        return self._full(key) in self._values

    def has_any(self, *beginnings: str) -> bool:
        """Return whether any key begins with one of these."""
        full = tuple(map(self._full, beginnings))
        return any(key.startswith(full) for key in self._values)

    def wrong(self, what: str) -> BadFile:
        """Return the error for a header with impossible values."""
        return BadFile(f"{self._name}: {what}", "convert the model again")

    def _full(self, key: str) -> str:
        return key.format(arch=self._architecture)

    def _checked(self, key: str, value: object) -> int:
        if isinstance(value, bool | ArrayLength) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise self.wrong(f"{self._full(key)!r} is {str(value)[:40]!r}, not a count")
        return value


class _Windows(NamedTuple):
    """Which layers of an architecture have the sliding window."""

    period: int | None
    """Layers of which one has no window (`set_swa_pattern`); None where only an array in the header says."""
    dense_first: bool = False
    """Whether that one is the first of each period, not the last."""
    default: int = 0
    """Window of a header without one; 0: no windows."""
    fixed: int = 0
    """Window whatever the header says, unless that is 0."""
    n_layer: int | None = None
    """The only depth that has windows; None: any."""


_WINDOWS: Mapping[str, _Windows] = {
    "afmoe": _Windows(4), "cohere2": _Windows(4), "cohere2moe": _Windows(4, dense_first=True),
    "exaone-moe": _Windows(4), "exaone4": _Windows(4, default=4096, n_layer=64), "gemma2": _Windows(2, default=4096),
    "gemma3": _Windows(6), "gemma3n": _Windows(5), "gemma4": _Windows(None), "gpt-oss": _Windows(2),
    "granite_swa": _Windows(None), "laguna": _Windows(4, dense_first=True), "lfm2": _Windows(0),
    "llama4": _Windows(4, default=8192, fixed=8192), "maple": _Windows(None), "mellum": _Windows(4),
    "mimo2": _Windows(None), "muse-glimmer": _Windows(4), "olmo2": _Windows(4), "plamo3": _Windows(8),
    "smallthinker": _Windows(4, dense_first=True, fixed=4096), "spark2_5": _Windows(None), "step35": _Windows(None),
}  # fmt: skip

_ALL_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_BOTH_IN_EACH = frozenset({"falcon-h1"})
_RECURRENT_WITHOUT_KV_HEADS = frozenset(
    {"jamba", "granitehybrid", "plamo2", "lfm2", "lfm2moe", "kimi-linear", "kimi-k3", "bailingmoe3"}
)
_ONE_PART_IN_EACH = frozenset({"nemotron_h", "nemotron_h_moe"})
"""A layer is attention, a recurrent state, or a feed-forward, and never two of them."""
FULL_ATTENTION_INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "minimax-01": 8}
"""Layers of which the last has attention and the others a recurrent state."""
_WITHOUT_GROUPS = frozenset({"mamba", "jamba"})
"""Architectures in which llama.cpp ignores the number of state groups."""

RECURRENT = (
    _ALL_RECURRENT
    | _BOTH_IN_EACH
    | _RECURRENT_WITHOUT_KV_HEADS
    | _ONE_PART_IN_EACH
    | frozenset(FULL_ATTENTION_INTERVAL)
)
"""Architectures with a recurrent state whose size is known here."""

_GEMMA3N_KV_LAYERS = 20
"""llama.cpp keeps KV for the first 20 layers of gemma3n, and the rest reuse it; no key of the header says so."""
SHARES_KV = frozenset({"gemma3n", "gemma4"})
"""Architectures whose last layers attend to the KV of earlier ones."""


class Heads(NamedTuple):
    """Of attention, as the header gives them."""

    n_head: Sequence[int]
    n_head_kv: Sequence[int]
    head_dim_k: int
    head_dim_v: int
    n_ff: Sequence[int]
    n_embd: int


def layer_states(architecture: str, values: TypedMetadata, heads: Heads) -> tuple[LayerState, ...]:
    """Return what each layer keeps; layers that only draft (NextN) keep nothing. Raises BadFile for a wrong array."""
    keys = gguf_constants.Keys
    n_all = len(heads.n_head_kv)
    n_layer = max(0, n_all - values.count(keys.LLM.NEXTN_PREDICT_LAYERS))
    windows = _layer_windows(architecture, values, n_all, n_layer)
    recurrent = _is_recurrent(architecture, values, heads, n_layer)
    elements = _recurrent_elements(architecture, values, heads) if any(recurrent) else 0
    is_latent = bool(values.count(keys.Attention.KEY_LENGTH_MLA) and values.count(keys.Attention.VALUE_LENGTH_MLA))
    n_keeping = _GEMMA3N_KV_LAYERS if architecture == "gemma3n" else n_all
    if architecture == "gemma4":
        n_keeping -= values.count(keys.Attention.SHARED_KV_LAYERS)
    states = []
    for layer in range(n_layer):
        window, is_recurrent = windows[layer], recurrent[layer]
        dim_k, dim_v = heads.head_dim_k, heads.head_dim_v
        if window is not None:
            dim_k = values.count(keys.Attention.KEY_LENGTH_SWA, dim_k)
            dim_v = values.count(keys.Attention.VALUE_LENGTH_SWA, dim_v)
        n_kv = 0 if is_recurrent and architecture not in _BOTH_IN_EACH else heads.n_head_kv[layer]
        if architecture in _ONE_PART_IN_EACH and heads.n_ff[layer]:
            n_kv = 0
        reads = None
        if layer >= n_keeping and n_kv:
            n_kv, reads = 0, max(0, n_keeping - (1 if window is None else 2))
        has_attention = bool(n_kv) or reads is not None
        states.append(
            LayerState(
                k_width=n_kv * dim_k,
                v_width=0 if is_latent else n_kv * dim_v,
                head_dim_k=dim_k if has_attention else 0,
                head_dim_v=dim_v if has_attention else 0,
                window=window if has_attention else None,
                reads_layer=reads,
                recurrent_elements=elements if is_recurrent else 0,
            )
        )
    return (*states, *(LayerState() for _ in range(n_all - n_layer)))


def has_windows(architecture: str, n_layer: int) -> bool:
    """Return whether llama.cpp gives windows to some layers of this architecture at this depth."""
    rule = _WINDOWS.get(architecture)
    return rule is not None and rule.n_layer in (None, n_layer)


def _layer_windows(architecture: str, values: TypedMetadata, n_all: int, n_layer: int) -> list[int | None]:
    """Return the window of each layer, None for a layer that attends to every position."""
    attention = gguf_constants.Keys.Attention
    rule = _WINDOWS.get(architecture)
    none: list[int | None] = [None] * n_all
    if rule is None or not has_windows(architecture, n_layer):
        return none
    window = rule.default
    if values.has(attention.SLIDING_WINDOW):
        window = values.count(attention.SLIDING_WINDOW) and (rule.fixed or values.count(attention.SLIDING_WINDOW))
    if not window:
        return none
    has_window = values.flags(attention.SLIDING_WINDOW_PATTERN, n_all)
    if has_window is None:
        period = rule.period
        if period is None:
            return none
        period = values.count(attention.SLIDING_WINDOW_PATTERN, period)
        global_at = 0 if rule.dense_first else period - 1
        has_window = tuple(period == 0 or layer % period != global_at for layer in range(n_all))
    return [window if has_window[layer] and layer < n_layer else None for layer in range(n_all)]


def _is_recurrent(architecture: str, values: TypedMetadata, heads: Heads, n_layer: int) -> list[bool]:
    """Return which layers have a recurrent state."""
    if architecture in _ALL_RECURRENT or architecture in _BOTH_IN_EACH:
        return [True] * n_layer
    if architecture in _RECURRENT_WITHOUT_KV_HEADS:
        return [not n_kv for n_kv in heads.n_head_kv[:n_layer]]
    if architecture in _ONE_PART_IN_EACH:
        return [not n_kv and not n_ff for n_kv, n_ff in zip(heads.n_head_kv, heads.n_ff, strict=True)][:n_layer]
    if architecture in FULL_ATTENTION_INTERVAL:
        stated = values.flags(RECURRENT_LAYERS, len(heads.n_head_kv))
        if stated is not None:
            return list(stated[:n_layer])
        interval = values.count(gguf_constants.Keys.LLM.FULL_ATTENTION_INTERVAL, FULL_ATTENTION_INTERVAL[architecture])
        return [bool((layer + 1) % interval) if interval else False for layer in range(n_layer)]
    return [False] * n_layer


def _recurrent_elements(architecture: str, values: TypedMetadata, heads: Heads) -> int:
    """Return the elements of one layer's state: the convolution's and the recurrence's (`n_embd_r` and `n_embd_s`)."""
    keys = gguf_constants.Keys
    n_conv = values.count(keys.SSM.CONV_KERNEL)
    n_inner, n_state = values.count(keys.SSM.INNER_SIZE), values.count(keys.SSM.STATE_SIZE)
    if head_size := values.count(keys.WKV.HEAD_SIZE):
        return heads.n_embd * (values.count(keys.LLM.TOKEN_SHIFT_COUNT, 2) + head_size)
    if cached := values.count(keys.ShortConv.L_CACHE):
        return heads.n_embd * (cached - 1) + n_state * n_inner
    if head_dim := values.count(keys.KDA.HEAD_DIM):
        inner = heads.n_head[0] * head_dim
        return 3 * (n_conv - 1 if n_conv else 3) * inner + inner * head_dim
    n_group = 0 if architecture in _WITHOUT_GROUPS else values.count(keys.SSM.GROUP_COUNT)
    convolution = max(0, n_conv - 1) * (n_inner + 2 * n_group * n_state)
    if architecture == "minimax-01":
        return convolution + heads.head_dim_k**2 * heads.n_head[0]
    return convolution + n_state * n_inner


class LayerKind(msgspec.Struct, frozen=True):
    """Layers that cost the same; sizes are of one layer."""

    layers: tuple[int, ...]
    """Their indices in ascending order, of which the first may stand for all."""
    tensors: tuple[tuple[str, tuple[int, ...], str], ...]
    """Name after `blk.N.`, shape and type of each tensor, by name."""
    weight_bytes: int | None
    """Bytes of all tensors; None where a tensor type is unknown."""
    active_bytes: int | None
    """Bytes that one token reads: without the experts that it is not routed to. None where a type is unknown."""
    state: LayerState
    """What it keeps of a sequence; meaningless where the model's `no_kv_reason` is set."""
    kv_source: LayerState
    """What it attends to: its own state, or that of the layer whose cache it shares."""

    @property
    def window(self) -> int | None:
        """Positions that it attends to; None for every position."""
        return self.state.window

    @property
    def is_recurrent(self) -> bool:
        """Whether it keeps a recurrent state."""
        return self.state.recurrent_elements > 0

    def kv_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Return the bytes that one position within the window adds to the cache. Raises UnknownName, Unsupported."""
        return _bytes_per_position(self.state, type_k, type_v)

    def read_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Return the bytes that one position within the window adds to a step's reading. Raises as above."""
        return _bytes_per_position(self.kv_source, type_k, type_v)


def layer_kinds(model: ModelFile) -> tuple[LayerKind, ...]:
    """Return the kinds of layer that decode a token, by their first layer; draft layers (NextN) are of no kind."""
    by_layer = tensors_by_layer(model.tensors)
    found: dict[object, list[int]] = {}
    for layer in range(model.n_layer - model.n_layer_nextn):
        state, source = _state_of(model, layer)
        n_head, n_used = model.n_head[layer], model.experts_used[layer : layer + 1]
        key = (_signature(by_layer.get(layer, ())), n_head, n_used, source, state.k_width, state.recurrent_elements)
        found.setdefault(key, []).append(layer)
    return tuple(_kind(model, tuple(layers), by_layer.get(layers[0], ())) for layers in found.values())


def _kind(model: ModelFile, layers: tuple[int, ...], tensors: Sequence[TensorInfo]) -> LayerKind:
    state, source = _state_of(model, layers[0])
    is_known = all(tensor.n_bytes is not None for tensor in tensors)
    return LayerKind(
        layers=layers,
        tensors=_signature(tensors),
        weight_bytes=sum(tensor.n_bytes or 0 for tensor in tensors) if is_known else None,
        active_bytes=round(sum(active_bytes(tensor, model) for tensor in tensors)) if is_known else None,
        state=state,
        kv_source=source,
    )


def _state_of(model: ModelFile, layer: int) -> tuple[LayerState, LayerState]:
    """Return what the layer keeps, and what it attends to."""
    state = model.states[layer]
    return state, state if state.reads_layer is None else model.states[state.reads_layer]


def _signature(tensors: Sequence[TensorInfo]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    return tuple(sorted((tensor.name.split(".", 2)[2], tensor.shape, tensor.type_name) for tensor in tensors))


def _bytes_per_position(state: LayerState, type_k: str, type_v: str) -> int:
    return row_bytes(type_k, state.k_width) + row_bytes(type_v, state.v_width)
