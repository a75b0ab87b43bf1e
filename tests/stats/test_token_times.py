"""Times of tokens that came alone or together."""

import random

import pytest

from ggbench.stats.linefit import fit_line
from ggbench.stats.serving import TokenChunks
from ggbench.stats.token_times import TimedSeries, TokenTimes

B_NS, NS_PER_TOKEN = 10_000_000, 5_000
"""Of the line below: B 10 ms, W 200 tokens/ms."""


def _latency_ns(position: int) -> int:
    return B_NS + (position - 1) * NS_PER_TOKEN


def _chunked(sizes: list[int]) -> TimedSeries:
    """A decode on the line, whose tokens come in chunks of these sizes after a prompt of 25."""
    position, step_ns, chunks, at = [], [], [], 26
    for size in sizes:
        elapsed_ns = sum(map(_latency_ns, range(at, at + size)))
        if size == 1:
            position.append(at)
            step_ns.append(elapsed_ns)
        else:
            chunks.append(TokenChunks((at,), (size,), (elapsed_ns,)))
        at += size
    return TimedSeries(position, step_ns, chunks=tuple(chunks))


def test_single_steps_are_taken_as_they_are() -> None:
    times = TokenTimes.of([TimedSeries([1, 2], [5, 6], [1, 1]), TimedSeries([1, 2], [7, 8], [2, 2])])
    assert (times.position, times.step_ns, times.sample_ns) == ([1, 2, 1, 2], [5, 6, 7, 8], [1, 1, 2, 2])
    assert (times.n_tokens, times.n_together, times.elapsed_ns, times.is_single) == (4, 0, 26, True)


def test_rare_chunks_count_for_the_speed_alone() -> None:
    times = TokenTimes.of([_chunked([1] * 60 + [2] + [1] * 60)])
    assert times.is_single
    assert len(times.step_ns) == 120
    assert (times.n_tokens, times.n_together) == (122, 2)
    assert times.elapsed_ns == sum(map(_latency_ns, range(26, 26 + 122)))


@pytest.mark.parametrize("sizes", [[4] * 300, [8] * 150, random.Random(3).choices([1, 2, 3, 5], k=500)])
def test_common_chunks_keep_the_line(sizes: list[int]) -> None:
    times = TokenTimes.of([_chunked(sizes)])
    assert not times.is_single
    assert times.n_tokens == sum(sizes)
    fit = fit_line(times.position, times.step_ns)
    assert fit is not None and fit.b_ms is not None
    assert fit.w_tokens_per_ms == pytest.approx(200, rel=1e-6)
    assert fit.b_ms == pytest.approx(10, rel=1e-6)
