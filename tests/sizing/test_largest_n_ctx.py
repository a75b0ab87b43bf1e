"""The search for the largest context, against looking at every length."""

from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggbench.sizing.fit import Bracket, largest_n_ctx
from ggbench.units import MIB

CEILING = 1 << 18


def count(need: Callable[[int], int]) -> tuple[Callable[[int], int], list[int]]:
    """The function, and the lengths that it is asked for."""
    asked: list[int] = []

    def counted(n_ctx: int) -> int:
        asked.append(n_ctx)
        return need(n_ctx)

    return counted, asked


@given(
    growth=st.integers(1, 1 << 20), mask=st.integers(0, 1 << 17), flat=st.integers(0, 1 << 30),
    budget=st.integers(0, 1 << 36), first=st.integers(1, CEILING),
)  # fmt: skip
def test_it_finds_what_looking_at_every_length_finds(
    growth: int, mask: int, flat: int, budget: int, first: int
) -> None:
    def need(n_ctx: int) -> int:
        return growth * n_ctx + max(flat, mask * n_ctx)

    counted, asked = count(need)
    within = [n_ctx for n_ctx in range(256, CEILING + 1, 256) if need(n_ctx) <= budget]
    assert largest_n_ctx(counted, budget, CEILING, first, growth) == max(within, default=0)
    assert len(asked) == len(set(asked)) <= 24


def test_two_questions_where_the_compute_buffer_is_flat() -> None:
    """With flash attention the cache alone grows, so that the answer and the length above it are all that is asked."""
    counted, asked = count(lambda n_ctx: 300 * MIB + n_ctx * 400 * 1024)
    found = largest_n_ctx(counted, 20_000 * MIB, CEILING, 8192, 400 * 1024)
    assert asked == [8192, found, found + 256]


STEP = 256


def close_in(edge: int, ceiling: int, expected: int, *, learns: bool = False) -> tuple[Bracket, list[int]]:
    """Ask until the bracket is closed, where `edge` is the largest that works."""
    bracket, asked = Bracket(ceiling), []
    while not bracket.is_closed:
        n_ctx = bracket.next(expected)
        asked.append(n_ctx)
        bracket.record(n_ctx, passed=n_ctx <= edge)
        if learns and n_ctx <= edge:
            expected = edge
    return bracket, asked


@hypothesis.given(st.integers(0, 4000), st.integers(1, 4000), st.integers(-10, 1 << 22))
def test_it_ends_with_neighbours_whatever_is_expected(edge: int, ceiling: int, expected: int) -> None:
    bracket, asked = close_in(edge * STEP, ceiling * STEP, expected)
    assert bracket.passed == (min(edge, ceiling) * STEP or None)
    assert bracket.failed == ((edge + 1) * STEP if edge < ceiling else None)
    assert len(asked) == len(set(asked))
    assert all(n_ctx % STEP == 0 and STEP <= n_ctx <= ceiling * STEP for n_ctx in asked)
    assert len(asked) <= 40


@pytest.mark.parametrize("growth", [0, 1])
def test_the_ceiling_ends_the_search_of_a_state_that_hardly_grows(growth: int) -> None:
    assert largest_n_ctx(lambda n_ctx: MIB + growth * n_ctx, 2 * MIB, CEILING + 100, 8192, 0.1) == CEILING


def test_a_length_that_is_refused_does_not_fit() -> None:
    assert largest_n_ctx(lambda n_ctx: n_ctx if n_ctx <= 5120 else 1 << 62, 1 << 40, CEILING, 8192, 1) == 5120


def test_few_questions_where_the_expectation_is_wrong() -> None:
    """One that learns from what works takes three; where nothing works, steps that double come down quickly."""
    assert len(close_in(22528, 1 << 20, 20480, learns=True)[1]) == 3
    bracket, asked = close_in(0, 1 << 20, 1 << 19)
    assert (bracket.passed, bracket.failed) == (None, STEP)
    assert len(asked) < 20
    known = Bracket(22528 - STEP, failed=22528)
    assert known.next(1 << 20) == 22528 - STEP
    known.record(22528 - STEP, passed=True)
    assert known.is_closed
