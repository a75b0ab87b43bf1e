"""Whether a setup of a file fits a memory, and the longest context that does: for plan, pick, maxctx, tune and speed.

Each setup is placed and sized once, by llama.cpp's allocator run dry.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import Engine
from ggbench.engines.endings import EngineEnded, Failed, OutOfMemory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.model_file import ModelFile
from ggbench.record import Record
from ggbench.sizing.budget import free_budget
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget, Note, PlannedDevice
from ggbench.units import KV_CELLS, format_bytes

_TOO_MUCH = 1 << 62
"""Bytes of a context that llama.cpp refuses to size."""
_FAR = 4
"""Ratio of the lengths that a line goes through."""


class Fit(Record):
    """What a setup takes of a budget's memory. The bytes need the size of every tensor (`placement.weight_bytes`)."""

    setup: LlamaConfig
    """With its n_ctx."""
    budget: Budget
    placement: Placement
    context: DryContext

    @property
    def needed_bytes(self) -> int:
        """Weights, cache, compute buffers and draft in the planned memory."""
        return self.placement.needed_bytes(self.context)

    @property
    def left_bytes(self) -> int:
        """Bytes left of the memory with the least; negative if memory is missing."""
        return self.placement.left_bytes(self.context)

    @property
    def taken_bytes(self) -> int:
        """Bytes of the budget that are taken: more than all of it if any memory is short."""
        return self.budget.usable_bytes - self.left_bytes

    @property
    def is_enough(self) -> bool:
        return self.left_bytes >= 0

    @property
    def devices(self) -> tuple[PlannedDevice, ...]:
        """What lies in each memory, main memory last."""
        return self.placement.planned(self.context)


class Fitter:
    """Fits setups of one file into one budget."""

    def __init__(self, file: ModelFile, path: Path, budget: Budget, allocator: DryAllocator) -> None:
        """Raises EngineEnded if llama.cpp does not load the header at `path`, and like the allocator's `load`."""
        self.file, self.path, self.budget, self.allocator = file, path, budget, allocator
        self._loaded = allocator.load(file, path)
        self._placements: dict[LlamaConfig, Placement] = {}
        self._fits: dict[LlamaConfig, Fit] = {}

    def within(self, budget: Budget) -> Fitter:
        """Return what fits setups of the same file into another budget."""
        return Fitter(self.file, self.path, budget, self.allocator)

    def placement(self, setup: LlamaConfig) -> Placement:
        """Return where a setup places the file, whatever its n_ctx."""
        alike = replace(setup, n_ctx=None, type_k="f16", type_v="f16")
        if alike not in self._placements:
            self._placements[alike] = Placement.of(self.file, alike, self.budget.used_by(setup))
        return self._placements[alike].with_cache(setup.type_k, setup.type_v)

    def fit(self, setup: LlamaConfig) -> Fit:
        """Return what a setup with an n_ctx takes. Raises EngineEnded."""
        if setup not in self._fits:
            assert setup.n_ctx is not None
            self.allocator.resume(self._loaded)
            context = self.allocator.context(setup.n_ctx, setup)
            self._fits[setup] = Fit(setup, self.budget.used_by(setup), self.placement(setup), context)
        return self._fits[setup]

    def sized(self, setup: LlamaConfig) -> Fit | None:
        """Return like `fit`; None if llama.cpp refuses the setup."""
        try:
            return self.fit(setup)
        except EngineEnded as end:
            if not isinstance(end.ending, Failed | OutOfMemory):
                raise
            return None

    def longest(self, first: Fit) -> int:
        """Return the longest context that fits with weights and process, searched from a fit; 0 for none."""
        placement, usable = first.placement, first.budget.usable_bytes
        if (placement.weight_bytes or 0) > usable:
            return 0

        def taken(n_ctx: int) -> int:
            found = first if n_ctx == first.context.n_ctx else self.sized(replace(first.setup, n_ctx=n_ctx))
            return _TOO_MUCH if found is None else found.taken_bytes

        n_ctx, ceiling, line = first.context.n_ctx, self.ceiling(first), self._line(first)
        growth = placement.cache_bytes(first.context) / n_ctx
        return largest_n_ctx(taken, usable, ceiling, line or n_ctx, growth, placement.n_ctx_step)

    def longest_by_line(self, first: Fit) -> int:
        """Return the longest context that fits by a line for each memory through a fit and a longer context.

        It agrees with `longest` to about 2 % and makes one context, which all quants of a shape share.
        """
        if (first.placement.weight_bytes or 0) > first.budget.usable_bytes:
            return 0
        line = self._line(first)
        return self.longest(first) if line is None else line

    def _line(self, first: Fit) -> int | None:
        """Return the end of the line; None if llama.cpp refuses the longer context."""
        n_ctx, ceiling = first.context.n_ctx, self.ceiling(first)
        far = min(ceiling, _FAR * n_ctx)
        second = self.sized(replace(first.setup, n_ctx=far)) if far > n_ctx else first
        if second is None:
            return None
        here, there = (first.placement.left_by_memory(each.context) for each in (first, second))
        line = _line_end(here, there, n_ctx, second.context.n_ctx)
        bounded = max(line, n_ctx) if first.is_enough else min(line, n_ctx - KV_CELLS)
        return min(ceiling, max(0, int(min(bounded, ceiling)) // KV_CELLS * KV_CELLS))

    def ceiling(self, first: Fit) -> int:
        """Return the longest context to look for from a fit."""
        return planning_ceiling(self.file, first.context.n_ctx)


def _line_end(here: Sequence[int], there: Sequence[int], n_ctx: int, far: int) -> float:
    """Return the n_ctx at which the first memory is full by a line through what two contexts leave of each."""
    found = math.inf
    for left, later in zip(here, there, strict=True):
        if later < left:
            found = min(found, n_ctx + left * (far - n_ctx) / (left - later))
        elif left < 0:
            return 0.0
    return found


@contextlib.contextmanager
def free_fitter(launch: Callable[[], Engine], file: ModelFile, setup: LlamaConfig) -> Iterator[Fitter | None]:
    """Yield what fits setups like this one, which has threads, into the memory that is free.

    None if llama.cpp does not load the model dry, as the real load will report why. Linux overcommits, so a real
    context would not fail even if it does not fit. Raises DoesNotFit if no memory is free at all.
    """
    budget = free_budget(setup, None)
    if budget.on_gpu:
        budget = budget.unreserved()
    with DryAllocator(launch(), setup, budget.devices) as dry:
        try:
            fitter = Fitter(file, file.paths[0], budget, dry)
        except EngineEnded:
            yield None
            return
        yield fitter


def obstacle(fitter: Fitter | None, setup: LlamaConfig) -> Note | None:
    """Return why a setup cannot be tried; None if it fits, as far as is known."""
    if fitter is None:
        return None
    try:
        fit = fitter.fit(setup)
    except EngineEnded as end:
        is_refused = isinstance(end.ending, Failed | OutOfMemory)
        return Note("plan.refused", {"why": end.ending.reason}) if is_refused else None
    if fit.placement.weight_bytes is None or fit.is_enough:
        return None
    needed, free = format_bytes(fit.taken_bytes), format_bytes(fit.budget.usable_bytes)
    return Note("plan.too_large", {"needed": needed, "place": fit.budget.place, "free": free})


_TRUSTED_QUESTIONS = 6
"""This many questions may follow the caller's expectation before the bracket is halved instead."""


class Bracket:
    """The largest n_ctx that passed and the smallest that failed, multiples of a step: a search with few real contexts.

    A real context allocates gigabytes, so the next one is tried where the caller expects the edge. If that is wrong,
    steps away from it double; between two known ends a misleading expectation gives way to halving.
    """

    def __init__(self, ceiling: int, failed: int | None = None, step: int = KV_CELLS) -> None:
        """`ceiling` is the largest to try, rounded down; `failed` is known to fail beforehand."""
        self.step = step
        self.passed: int | None = None
        self.failed = failed
        self._ceiling = ceiling // step
        self._n_asked = 0
        self._stride = 1

    @property
    def is_closed(self) -> bool:
        """Whether the ends are neighbours, or the ceiling passed, or the smallest context failed."""
        return self._high < self._low

    @property
    def _low(self) -> int:
        return (self.passed or 0) // self.step + 1

    @property
    def _high(self) -> int:
        return min(self._ceiling, self._ceiling if self.failed is None else self.failed // self.step - 1)

    def next(self, expected: int) -> int:
        """Return the n_ctx to try if the caller expects `expected` to be the largest that works.

        If that has passed already, the next length is tried, to see it fail.
        """
        low, high = self._low, self._high
        guess = expected // self.step
        self._n_asked += 1
        if low <= guess <= high:
            wanted = guess
        else:
            wanted = low + self._stride - 1 if guess < low else high - self._stride + 1
            self._stride *= 2
        both_ends = self.passed is not None and self.failed is not None
        if both_ends and (self._n_asked > _TRUSTED_QUESTIONS or not low <= wanted <= high):
            wanted = (low + high) // 2
        return min(max(wanted, low), high) * self.step

    def record(self, n_ctx: int, *, passed: bool) -> None:
        if passed:
            self.passed = max(n_ctx, self.passed or 0)
        else:
            self.failed = min(n_ctx, self.failed or n_ctx)


def largest_n_ctx(
    need: Callable[[int], int],
    budget_bytes: int,
    ceiling: int,
    first_guess: int,
    bytes_per_token: float,
    step: int = KV_CELLS,
) -> int:
    """Return the largest multiple of `step` up to `ceiling` whose bytes are within the budget; 0 for none.

    `need` returns the bytes of a length and grows with it; it is called for the result and, below the ceiling, for the
    next length, so both sides are verified. The search starts at `first_guess`, goes as far as `bytes_per_token` leads,
    then follows the line through the two known lengths that are closest to the budget.
    """
    bracket, known, expected = Bracket(ceiling, step=step), dict[int, int](), first_guess
    while not bracket.is_closed:
        n_ctx = bracket.next(expected)
        known[n_ctx] = need(n_ctx)
        bracket.record(n_ctx, passed=known[n_ctx] <= budget_bytes)
        if len(known) > 1:
            one, other = sorted(known, key=lambda each: abs(known[each] - budget_bytes))[:2]
            bytes_per_token = (known[one] - known[other]) / (one - other)
        expected = n_ctx + math.floor((budget_bytes - known[n_ctx]) / max(bytes_per_token, 1 / step))
    return bracket.passed or 0


CEILING = 1 << 20
"""The longest context that is planned, unless the model was trained for a longer one."""
LONGEST = 1 << 24
"""The longest context of all: beyond it even a dry run takes a gigabyte, for a table of the cache's cells."""


def planning_ceiling(file: ModelFile, n_ctx: int = 0) -> int:
    """Return the longest context to look for, at least `n_ctx`; a multiple of 256."""
    return max(CEILING, n_ctx, min(file.n_ctx_train or 0, LONGEST)) // KV_CELLS * KV_CELLS
