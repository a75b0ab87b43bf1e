"""Closing in on an edge."""

import hypothesis
from hypothesis import strategies as st

from ggbench.sizing.longest_context import Bracket

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


def test_a_good_expectation_takes_two_questions() -> None:
    assert close_in(22528, 1 << 20, 22528)[1] == [22528, 22784]
