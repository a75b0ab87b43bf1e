"""Cost of the KV cache by length: bytes stored, bytes read, operations of attention.

Layers with a sliding window stop growing at the window, if the header says which layers have one. An architecture whose
state is not K and V of each position raises Unsupported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggbench.errors import Unsupported
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.gguf_file.model_file import ModelFile

Floats = npt.NDArray[np.float64]

_PERIODS = {
    "afmoe": 4, "cohere2": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "olmo2": 4, "plamo3": 8
}  # fmt: skip
"""Layers of which the last has no window, in architectures whose headers may not say so. Source: the defaults that
llama.cpp gives to `load_swa_pattern` in src/models/."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Cost of one position, summed over a set of layers."""

    params: int = 0
    """Elements of K and V."""
    n_bytes: int = 0
    flop: int = 0
    """Operations of one token's attention to this position: a multiplication and an addition for each query head and
    element of its K and V."""


@dataclass(frozen=True, slots=True)
class KvCache:
    """The cache of one sequence."""

    type_k: str
    type_v: str
    full: Growth
    """Layers that keep every position."""
    windowed: Growth = Growth()
    """Layers that keep the last `window` positions."""
    window: int | None = None
    remark: str = ""
    """Assumption made because the header is incomplete; empty if there is none."""

    @property
    def params_per_token(self) -> int:
        """Elements that one position within the window adds (sections 3.2 and 5.2.2)."""
        return self.full.params + self.windowed.params

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position within the window adds."""
        return self.full.n_bytes + self.windowed.n_bytes

    def cached_bytes(self, n: npt.ArrayLike) -> Floats:
        """Return the bytes stored for n positions, which is also what decoding the n-th token reads."""
        return self._over(n, self.full.n_bytes, self.windowed.n_bytes)

    def attention_flop(self, n: npt.ArrayLike) -> Floats:
        """Return the operations of the n-th token's attention."""
        return self._over(n, self.full.flop, self.windowed.flop)

    def prompt_bytes(self, n: npt.ArrayLike) -> Floats:
        """Return the bytes of K and V of a prompt of n tokens, each position once, those outside the window included.

        Every position is attended to by the tokens after it, so prefill reads at least this much.
        """
        return np.asarray(self.bytes_per_token * np.asarray(n, np.float64))

    def prefill_bytes(self, n: npt.ArrayLike) -> Floats:
        """Return the bytes read in a prefill of n tokens if each reads all positions up to its own (section 4.3)."""
        return self._summed_over(n, self.full.n_bytes, self.windowed.n_bytes)

    def prefill_flop(self, n: npt.ArrayLike) -> Floats:
        """Return the operations of attention in a prefill of n tokens."""
        return self._summed_over(n, self.full.flop, self.windowed.flop)

    def n_that_fit(self, n_bytes: float) -> int:
        """Return the maximum number of positions that fit in `n_bytes`, at most llama.cpp's 2^32 - 1."""
        if n_bytes < self.bytes_per_token:
            return 0
        most = (1 << 32) - 1
        if not self.window or n_bytes <= self.bytes_per_token * self.window:
            return min(most, int(n_bytes / self.bytes_per_token)) if self.bytes_per_token else most
        beyond = n_bytes - self.windowed.n_bytes * self.window
        return min(most, int(beyond / self.full.n_bytes)) if self.full.n_bytes else most

    def _over(self, n: npt.ArrayLike, full: int, windowed: int) -> Floats:
        """Return `full` times n plus `windowed` times the part of n within the window."""
        lengths = np.asarray(n, np.float64)
        return np.asarray(full * lengths + windowed * np.minimum(lengths, self.window or np.inf))

    def _summed_over(self, n: npt.ArrayLike, full: int, windowed: int) -> Floats:
        """Return the sum of `_over` for 1, 2, ... n."""
        lengths = np.asarray(n, np.float64)
        within = np.minimum(lengths, self.window or np.inf)
        return np.asarray(0.5 * (full * lengths * (lengths + 1) + windowed * within * (2 * lengths - within + 1)))


def kv_cache(file: ModelFile, type_k: str = "f16", type_v: str = "f16") -> KvCache:
    """Return the KV cache of one sequence in the given types.

    Source: the article, sections 3.2 and 5.2.2. Raises Unsupported if the architecture's state is not a KV cache or a
    hyperparameter is missing, and UnknownName for an unknown type.
    """
    _require(file)
    windowed, remark = _windowed_layers(file)
    value_dim = file.head_dim_v or _value_length(file)
    parts = {False: [0, 0, 0], True: [0, 0, 0]}
    for layer, (n_query, n_kv) in enumerate(zip(file.n_head, file.n_head_kv, strict=True)):
        if not n_kv:
            continue
        part = parts[windowed[layer]]
        part[0] += n_kv * (file.head_dim_k + file.head_dim_v)
        part[1] += row_bytes(type_k, n_kv * file.head_dim_k) + row_bytes(type_v, n_kv * file.head_dim_v)
        part[2] += 2 * n_query * (file.head_dim_k + value_dim)
    return KvCache(
        type_k=type_k,
        type_v=type_v,
        full=Growth(*parts[False]),
        windowed=Growth(*parts[True]),
        window=file.sliding_window if any(windowed) else None,
        remark=remark,
    )


def _require(file: ModelFile) -> None:
    """Raise Unsupported if the state is not a KV cache or the header lacks a key needed to compute its size."""
    for key, present in (
        ("block_count", file.n_layer),
        ("embedding_length", file.n_embd),
        ("attention.head_count", any(file.n_head)),
        ("attention.key_length", file.head_dim_k),
    ):
        if not present:
            raise Unsupported(
                f"{file.name}: the header lacks {file.architecture}.{key}, which the size of the KV cache depends on",
                "convert the model again with a converter that writes it",
            )
    file.require_kv()


def _windowed_layers(file: ModelFile) -> tuple[list[bool], str]:
    """Return which layers have the window, and a remark if the header does not say.

    Source: llama.cpp's key `attention.sliding_window_pattern`: a flag for each layer, or a period of layers whose last
    one has no window (`set_swa_pattern`); without it the architecture's own period.
    """
    none = [False] * file.n_layer
    if file.sliding_window is None:
        return none, ""
    key = f"{file.architecture}.attention.sliding_window_pattern"
    pattern = file.metadata.get(key, _PERIODS.get(file.architecture))
    if isinstance(pattern, list) and len(pattern) == file.n_layer:
        return [bool(flag) for flag in pattern], ""
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern >= 0:
        return [pattern == 0 or layer % pattern < pattern - 1 for layer in range(file.n_layer)], ""
    return none, (
        f"the header has a sliding window of {file.sliding_window} positions but does not say in which layers, "
        "so every layer is assumed to keep every position"
    )


def _value_length(file: ModelFile) -> int:
    """Return the head dimension of V if the cache stores no V because it is a view of K (MLA)."""
    stated = file.metadata.get(f"{file.architecture}.attention.value_length")
    return stated if isinstance(stated, int) else file.head_dim_k
