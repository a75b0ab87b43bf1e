"""Decodes of several sequences at once: one batch of an engine here, or requests that a server answers together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ggbench.record import Record
from ggbench.stats.decode_timing import RequestTiming, TimedSeries, TokenTimes, in_order


class ServedRequest(Record):
    """One request of a case with its times."""

    timing: RequestTiming
    steps: TimedSeries

    @property
    def arrivals(self) -> list[tuple[int, int, int]]:
        """Arrivals of tokens: ns after the first request was sent, number of tokens, and position."""
        first_ns = self.timing.first_token_ns or 0
        timed = in_order(self.steps)
        ends = accumulate(ns for _, _, ns in timed)
        return [
            (first_ns + end, n_tokens, first) for end, (first, n_tokens, _) in zip(ends, timed, strict=True)
        ]


def shared_steps(requests: Sequence[ServedRequest]) -> TokenTimes:
    """Return the steps while all requests generate; all steps for a single request, or if tokens arrived in blocks,
    which have no exact time.
    """
    every = TokenTimes.of([each.steps for each in requests])
    window = _window(requests)
    if len(requests) == 1 or not every.is_single or window is None:
        return every
    begin_ns, end_ns = window
    parts = []
    for each in requests:
        shared = {at for arrived, _, at in each.arrivals if begin_ns < arrived <= end_ns}
        kept = [
            (at, ns) for at, ns in zip(each.steps.position, each.steps.step_ns, strict=True) if at in shared
        ]
        parts.append(TimedSeries([at for at, _ in kept], [ns for _, ns in kept]))
    return TokenTimes.of(parts)


class BatchSteps(Record):
    """One decode of several sequences."""

    times: TokenTimes
    """Steps that give every sequence a token; of a server, the steps of each sequence while all generate."""
    requests: Sequence[ServedRequest] = ()
    """Requests of a server; empty if an engine on this machine decoded all sequences together."""

    def together_tok_s(self, n_seqs: int) -> float | None:
        """Tokens/s over all sequences; None if nothing was timed, or a server's requests never overlap."""
        if self.requests:
            return throughput(self.requests)
        elapsed_ns = self.times.elapsed_ns
        return n_seqs * self.times.n_tokens * 1e9 / elapsed_ns if elapsed_ns else None


def _window(requests: Sequence[ServedRequest]) -> tuple[int, int] | None:
    """Return from the latest first token to the earliest last one, in ns; None if they do not overlap."""
    begins = [each.timing.first_token_ns for each in requests if each.timing.first_token_ns is not None]
    ends = [each.timing.last_token_ns for each in requests if each.timing.last_token_ns is not None]
    if len(begins) < len(requests) or len(ends) < len(requests) or max(begins) >= min(ends):
        return None
    return max(begins), min(ends)


def throughput(requests: Sequence[ServedRequest]) -> float | None:
    """Tokens/s over all requests, while all of them generate."""
    if (window := _window(requests)) is None:
        return None
    begin_ns, end_ns = window
    if len(requests) == 1:
        return (requests[0].timing.n_tokens - 1) * 1e9 / (end_ns - begin_ns)
    n_tokens = sum(n for each in requests for arrived, n, _ in each.arrivals if begin_ns < arrived <= end_ns)
    return n_tokens * 1e9 / (end_ns - begin_ns) if n_tokens else None
