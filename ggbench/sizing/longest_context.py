"""Search for the longest context, with as few real or dry contexts as the search needs."""

from __future__ import annotations

import math
from collections.abc import Callable

from ggbench.gguf_file.model_file import ModelFile
from ggbench.units import KV_CELLS

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
