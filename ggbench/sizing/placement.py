"""Count a model's share of the planned memory, its speed limit, and the longest context that fits.

A plan and the search for the largest context count the same way, also if only some layers are on a GPU. No log reports
what llama.cpp's process uses outside its buffers: it was measured with llama.cpp 0.5.0 on a 64-bit machine under
address space limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ggbench.engines.endings import EngineEnded, Failed, OutOfMemory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.gguf_constants import Keys
from ggbench.gguf_file.model_file import ModelFile
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES
from ggbench.sizing.cluster import DeviceSplit
from ggbench.sizing.dry_allocator import DryContext
from ggbench.sizing.plan_record import Budget, DeviceMemory, PlannedSpeed
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.limits import DECODE_POSITIONS, decode_limit, decode_read_ms
from ggbench.sizing.theory.offload import offload
from ggbench.sizing.theory.weights import file_weights
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.units import KV_CELLS, MIB, format_bytes

_AGREE_BYTES = MIB // 16
_AGREE_SHARE = 0.001


class Placement:
    """One model under one configuration; `on_gpu` is true for a plan of GPU memory."""

    def __init__(
        self, file: ModelFile, setup: LlamaConfig, *, on_gpu: bool, devices: Sequence[DeviceMemory] = ()
    ) -> None:
        """`devices` are set if the planned memory is that of several machines."""
        self.on_gpu = on_gpu
        self.split = DeviceSplit(file, setup, devices) if devices else None
        """The split over devices; None for a single memory."""
        self._file = file
        self._setup = setup
        self.offload = offload(file, setup.n_gpu_layers if on_gpu else 0, setup.tensor_overrides)
        self.is_split = on_gpu and self.offload.is_partial
        """Whether some tensors that could be offloaded are in main memory."""
        self.has_two_speeds = self.is_split or bool(devices) or (on_gpu and not setup.kv_offload)
        """Whether a token reads from both GPU and main memory, or from several machines."""
        is_known = not file.unknown_types
        self.weight_bytes = (self.offload.device_weight_bytes if on_gpu else file.weight_bytes) if is_known else None
        """Weights in the planned memory; None if a tensor's type, hence its size, is unknown."""
        self.host_weight_bytes = (self.offload.host_weight_bytes if on_gpu else 0) if is_known else None
        self.theory: KvCache | None = None
        """The whole cache by the theory's formula; None if there is none, with the reason in `no_theory_reason`."""
        self.no_theory_reason = ""
        self._device_theory: KvCache | None = None
        try:
            self.theory = kv_cache(file, setup.type_k, setup.type_v)
            self._device_theory = (
                kv_cache(file, setup.type_k, setup.type_v, self.offload.first_gpu_layer)
                if self.is_split
                else self.theory
            )
        except Unsupported as error:
            self.no_theory_reason = error.message
        self._cache_on_device = not on_gpu or setup.kv_offload
        self._layers_share = 1.0
        if self.is_split:
            self._layers_share = 1 - self.offload.first_gpu_layer / file.n_layer if file.n_layer else 0.0

    def cache_bytes(self, context: DryContext) -> int:
        """Return the cache of the layers in the planned memory, weighted by the theory."""
        if not self._cache_on_device:
            return 0
        if not self.is_split:
            return context.cache_bytes
        share = self._layers_share
        if self.theory is not None and self._device_theory is not None:
            cached = float(self.theory.cached_bytes(context.n_ctx))
            share = float(self._device_theory.cached_bytes(context.n_ctx)) / cached if cached else share
        return round(context.cache_bytes * share)

    def compute_bytes(self, context: DryContext) -> int:
        """Return the compute buffers there; without a GPU here, the CPU's stand in for a GPU's."""
        if self.on_gpu and context.device_compute_bytes:
            return context.device_compute_bytes
        return context.device_compute_bytes + context.host_compute_bytes

    def context_bytes(self, context: DryContext) -> int:
        """Return the total memory of a context there; logits are in main memory."""
        output_bytes = 0 if self.on_gpu else context.output_bytes
        return self.cache_bytes(context) + self.compute_bytes(context) + output_bytes

    def needed_bytes(self, context: DryContext, usable_bytes: int) -> int:
        """Return the bytes of a budget that model and context need: more than all of it if any device lacks memory.

        `weight_bytes` must be known.
        """
        if self.split is not None:
            return usable_bytes - self.split.left_bytes(context)
        return (self.weight_bytes or 0) + self.context_bytes(context) + self.unreserved_bytes(context)

    def unreserved_bytes(self, context: DryContext) -> int:
        """Return the main memory that decoding to the end of a context takes outside buffers and beyond the reserve."""
        if self.on_gpu:
            return 0
        metadata = self._file.metadata
        entries = (metadata.get(key) for key in (Keys.Tokenizer.LIST, Keys.Tokenizer.MERGES))
        vocabulary = _VOCABULARY_ENTRY_BYTES * sum(n for n in entries if isinstance(n, int))
        n_cells = min(context.n_ctx, context.cache_bytes // _SMALLEST_CELL_BYTES)  # a recurrent state has no cells
        taken = vocabulary + context_overhead(self._file, n_cells) + decode_overhead(n_cells)
        return max(0, taken - BESIDE_BUFFERS_BYTES)

    def theory_bytes(self, context: DryContext) -> int | None:
        """Return the whole cache by the theory's formula, with llama.cpp's number of cells for windowed layers."""
        if self.theory is None:
            return None
        theory = replace(self.theory, window=context.swa_cells or self.theory.window)
        return round(float(theory.cached_bytes(context.n_ctx)))

    def theory_n_ctx(self, left_bytes: int) -> int | None:
        """Return how many tokens fit beside the weights by the theory; None if none fit, or without a formula."""
        if not self._cache_on_device or self._device_theory is None or left_bytes < 0:
            return None
        if not self._device_theory.bytes_per_token:
            return None
        in_cells = self._device_theory.in_cells(self._setup.n_ubatch, swa_full=self._setup.swa_full)
        return in_cells.n_that_fit(left_bytes) or None

    def disagreement(self, context: DryContext) -> list[str]:
        """Return a note if formula and allocator differ by more than the log's rounding."""
        counted, cached = self.theory_bytes(context), context.cache_bytes
        if counted is None or abs(counted - cached) <= max(_AGREE_BYTES, _AGREE_SHARE * cached):
            return []
        return [f"KV: the theory counts {format_bytes(counted)}, llama.cpp's allocator {format_bytes(cached)}"]


def speed_bounds(
    file: ModelFile, setup: LlamaConfig, budget: Budget, placement: Placement, longest: int | None, n_ctx: int
) -> tuple[DecodeLimit | None, tuple[PlannedSpeed, ...]]:
    """Return the bandwidth bound, and the speeds at the fixed positions and at `n_ctx`; nothing without a bandwidth.

    `longest` is the longest context that fits.
    """
    bandwidth = budget.bandwidth
    if bandwidth is None or placement.has_two_speeds:
        return None, ()
    try:
        limit = decode_limit(file, bandwidth, setup.type_k, setup.type_v)
        weights, cache = file_weights(file, file.name), kv_cache(file, setup.type_k, setup.type_v)
    except Unsupported:
        return None, ()
    positions = (*DECODE_POSITIONS, n_ctx)
    latencies = [decode_read_ms(weights, cache, bandwidth.bytes_per_s, n) for n in positions]
    return limit, tuple(
        PlannedSpeed(n, ms, 1e3 / ms, None if longest is None else longest >= n)
        for n, ms in zip(positions, latencies, strict=True)
    )


_CONTEXT_BYTES, _TENSOR_BYTES, _FEWEST_TENSORS = 2 * MIB, 160 << 10, 128
"""Mostly the scheduler: ggml reserves 60 copies of each node for split inputs, and llama.cpp 8 nodes per tensor, at
least 1024. Measured: 43 MiB with 272 tensors, 37 with 236."""
_VOCABULARY_ENTRY_BYTES = 170
"""Per token and merge: 42.4 MB with 262,144 tokens, 17.1 with 49,152 and as many merges."""
_MADE_CELL_BYTES = 50
"""Entry in the cell table before use: Gemma 3 270M under limits from 0.5 to 4 GiB."""
_DECODE_BYTES, _USED_CELL_BYTES = 5 * MIB, 100
"""Extra bytes for the first decodes, and per cell in use besides K and V: measured 4.6 MiB and 90 bytes."""

_SMALLEST_CELL_BYTES = 64
"""K and V of one layer."""


def context_overhead(file: ModelFile | None, n_cells: int) -> int:
    """Return the bytes that creating a context takes outside its buffers."""
    n_tensors = 0 if file is None else len(file.tensors)
    return _CONTEXT_BYTES + _TENSOR_BYTES * max(_FEWEST_TENSORS, n_tensors) + _MADE_CELL_BYTES * n_cells


def decode_overhead(n_cells: int) -> int:
    """Return the extra bytes that decoding takes with this many cells in use."""
    return _DECODE_BYTES + _USED_CELL_BYTES * n_cells


_TRUSTED_QUESTIONS = 6
"""Follow the caller's expectation this many times before halving the bracket instead."""


class Bracket:
    """A search with few real contexts: the largest n_ctx that passed and the smallest that failed, multiples of 256.

    A real context allocates gigabytes, so the next trial is at the limit that the caller expects. If that is wrong,
    steps away from it double; between two known ends, bisection replaces a misleading expectation.
    """

    def __init__(self, ceiling: int, failed: int | None = None) -> None:
        """`ceiling` is the largest n_ctx to try, rounded down; `failed` is one known to fail."""
        self.passed: int | None = None
        self.failed = failed
        self._ceiling = ceiling // KV_CELLS
        self._n_asked = 0
        self._stride = 1

    @property
    def is_closed(self) -> bool:
        """Whether the ends are adjacent, the ceiling passed, or the smallest context failed."""
        return self._high < self._low

    @property
    def _low(self) -> int:
        return (self.passed or 0) // KV_CELLS + 1

    @property
    def _high(self) -> int:
        return min(self._ceiling, self._ceiling if self.failed is None else self.failed // KV_CELLS - 1)

    def next(self, expected: int) -> int:
        """Return the n_ctx to try if the caller expects `expected` to be the largest that works.

        If that has passed, return the next one, which should fail.
        """
        low, high = self._low, self._high
        guess = expected // KV_CELLS
        self._n_asked += 1
        if low <= guess <= high:
            wanted = guess
        else:
            wanted = low + self._stride - 1 if guess < low else high - self._stride + 1
            self._stride *= 2
        both_ends = self.passed is not None and self.failed is not None
        if both_ends and (self._n_asked > _TRUSTED_QUESTIONS or not low <= wanted <= high):
            wanted = (low + high) // 2
        return min(max(wanted, low), high) * KV_CELLS

    @property
    def middle(self) -> int:
        """The middle of the open range; a quarter away if only one end is known."""
        if self.passed is not None and self.failed is not None:
            return (self.passed + self.failed) // 2
        return (self.failed or 0) * 3 // 4 if self.passed is None else self.passed * 5 // 4

    def record(self, n_ctx: int, *, passed: bool) -> None:
        if passed:
            self.passed = max(n_ctx, self.passed or 0)
        else:
            self.failed = min(n_ctx, self.failed or n_ctx)


def largest_n_ctx(
    need: Callable[[int], int], budget_bytes: int, ceiling: int, first_guess: int, bytes_per_token: float
) -> int:
    """Return the largest multiple of 256 up to `ceiling` whose bytes are within the budget; 0 for none.

    `need` returns the bytes of a length and increases with it; it is called for the result and, below the ceiling, for
    the next length, so both sides are verified. The search starts at `first_guess`, extrapolates by `bytes_per_token`,
    then follows the line through the closest known lengths; every fourth step bisects instead.
    """
    known: dict[int, int] = {}
    inside, outside = 0, ceiling // KV_CELLS + 1
    growth = max(1, round(bytes_per_token * KV_CELLS))
    guess = first_guess // KV_CELLS
    while outside - inside > 1:
        guess = min(max(guess, inside + 1), outside - 1)
        known[guess] = need(guess * KV_CELLS)
        if known[guess] <= budget_bytes:
            inside = guess
        else:
            outside = guess
        if len(known) % 4 == 0:
            guess = (inside + outside) // 2
        elif inside in known and outside in known:
            rise = known[outside] - known[inside]
            guess = inside + (budget_bytes - known[inside]) * (outside - inside) // rise
        else:
            guess += (budget_bytes - known[guess]) // growth
    return inside * KV_CELLS


CEILING = 1 << 20
"""The longest context that is planned, unless the model was trained for a longer one."""
LONGEST = 1 << 24
"""The longest context of all: beyond it even a dry run takes a gigabyte for the table of cells."""

_TOO_MUCH = 1 << 62
"""Stands for the bytes of a context that llama.cpp refuses to size."""


def planning_ceiling(file: ModelFile, n_ctx: int = 0) -> int:
    """Return the longest context to search for, at least `n_ctx`; a multiple of 256."""
    return max(CEILING, n_ctx, min(file.n_ctx_train or 0, LONGEST)) // KV_CELLS * KV_CELLS


def longest_n_ctx(
    placement: Placement, usable_bytes: int, size: Callable[[int], DryContext], first: DryContext, ceiling: int
) -> int:
    """Return the longest context that fits with weights and process, searched from `first`; 0 for none.

    `size` creates a dry context; `placement.weight_bytes` must be known. Raises EngineEnded if the worker
    ends, but not if llama.cpp refuses a context.
    """
    assert placement.weight_bytes is not None
    if placement.weight_bytes > usable_bytes:
        return 0

    def need(n_ctx: int) -> int:
        try:
            context = first if n_ctx == first.n_ctx else size(n_ctx)
        except EngineEnded as end:
            if not isinstance(end.ending, Failed | OutOfMemory):
                raise
            return _TOO_MUCH
        return placement.needed_bytes(context, usable_bytes)

    bytes_per_token = placement.cache_bytes(first) / first.n_ctx
    return largest_n_ctx(need, usable_bytes, ceiling, first.n_ctx, bytes_per_token)
