"""Closing in on the largest n_ctx that works, by as few expensive questions as possible.

Each question costs an allocation of gigabytes, so the next one is asked where the caller expects the edge; where that
turns out wrong the steps double away from it, and between two known ends a misleading expectation gives way to halving.
"""

from __future__ import annotations

from ggbench.records.setup import KV_CELLS

_TRUSTED_QUESTIONS = 6
"""This many questions may follow the caller's expectation before the bracket is halved instead."""


class Bracket:
    """What is known of the edge: the largest n_ctx that passed and the smallest that failed, multiples of 256."""

    def __init__(self, ceiling: int, failed: int | None = None) -> None:
        """`ceiling` is the largest that is asked for, rounded down; `failed` is known to fail before any question."""
        self.passed: int | None = None
        self.failed = failed
        self._ceiling = ceiling // KV_CELLS
        self._n_asked = 0
        self._stride = 1

    @property
    def is_closed(self) -> bool:
        """Whether the ends are neighbours, or the ceiling passed, or the smallest context failed."""
        return self._high < self._low

    @property
    def _low(self) -> int:
        return (self.passed or 0) // KV_CELLS + 1

    @property
    def _high(self) -> int:
        return min(self._ceiling, self._ceiling if self.failed is None else self.failed // KV_CELLS - 1)

    def next(self, expected: int) -> int:
        """The n_ctx to ask for, where the caller expects `expected` to be the largest that works.

        What it expects may have passed already: then the length above is asked for, to see it fail.
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

    def record(self, n_ctx: int, *, passed: bool) -> None:
        """Take in the answer for `n_ctx`."""
        if passed:
            self.passed = max(n_ctx, self.passed or 0)
        else:
            self.failed = min(n_ctx, self.failed or n_ctx)
