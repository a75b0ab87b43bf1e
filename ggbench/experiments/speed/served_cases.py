"""The figures of a case on a server, from its requests: each has its own times, and no step is shared.

A server that computes several requests at once begins each when it has read its prompt, and the others wait meanwhile
or go on more slowly. So the throughput of a decode and its latencies are those of the time in which all generate: from
the last first token to the first last one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.record import CaseEnded, RequestRates, SpeedCase
from ggbench.stats.serving import RequestTiming
from ggbench.stats.speed import summarize_tokens
from ggbench.stats.token_times import TimedSeries, TokenTimes, in_order


class ServedRequest(msgspec.Struct, frozen=True):
    """One request of a case with what was timed of it."""

    timing: RequestTiming
    steps: TimedSeries

    @property
    def arrivals(self) -> list[tuple[int, int, int]]:
        """When tokens came, in ns after the first request was sent, how many, and at which position."""
        first_ns = self.timing.first_token_ns or 0
        timed = in_order(self.steps)
        ends = accumulate(ns for _, _, ns in timed)
        return [(first_ns + end, n_tokens, first) for end, (first, n_tokens, _) in zip(ends, timed, strict=True)]


def shared_steps(requests: Sequence[ServedRequest]) -> TokenTimes:
    """Return the steps of the time in which all requests generate; all steps of a single one.

    Where tokens came several at once, those of the whole time: a block of them has no moment.
    """
    every = TokenTimes.of([each.steps for each in requests])
    window = _window(requests)
    if len(requests) == 1 or not every.is_single or window is None:
        return every
    begin_ns, end_ns = window
    parts = []
    for each in requests:
        shared = {at for arrived, _, at in each.arrivals if begin_ns < arrived <= end_ns}
        kept = [(at, ns) for at, ns in zip(each.steps.position, each.steps.step_ns, strict=True) if at in shared]
        parts.append(TimedSeries([at for at, _ in kept], [ns for _, ns in kept]))
    return TokenTimes.of(parts)


def served_case(ended: CaseEnded, requests: Sequence[ServedRequest], n_ctx_train: int | None) -> SpeedCase:
    """Return the figures of a case by the client's clock; its latencies by the clock of its steps."""
    case = ended.case
    found = SpeedCase(ended, exceeds_training=bool(n_ctx_train) and case.n_input + case.n_gen > (n_ctx_train or 0))
    timings = [each.timing for each in requests]
    firsts = [each.first_token_ns for each in timings if each.first_token_ns is not None]
    lasts = [each.last_token_ns for each in timings if each.last_token_ns is not None]
    if ended.outcome is not Outcome.COMPLETED or len(firsts) < case.n_seqs or len(lasts) < case.n_seqs:
        return found
    prefill_ns, whole_ns = max(firsts), max(lasts)
    n_read = sum(each.n_prompt_counted or each.n_prompt for each in timings)
    n_generated = sum(max(0, each.n_tokens - 1) for each in timings)
    if prefill_ns <= 0 or whole_ns <= prefill_ns or not n_generated:
        return found
    spans = [(last - first, each.n_tokens - 1) for first, last, each in zip(firsts, lasts, timings, strict=True)]
    rates = [n_tokens * 1e9 / ns for ns, n_tokens in spans if ns > 0 and n_tokens > 0]
    waits = [(first - each.sent_ns) / 1e6 for first, each in zip(firsts, timings, strict=True)]
    return replace(
        found,
        prefill_ms=prefill_ns / 1e6,
        ttft_ms=statistics.median(waits),
        decode_ms=(whole_ns - prefill_ns) / 1e6,
        latency=summarize_tokens(shared_steps(requests)),
        token_ms=sum(ns for ns, _ in spans) / 1e6 / n_generated,
        prefill_tok_s=n_read * 1e9 / prefill_ns,
        decode_tok_s=_throughput(requests),
        tok_s_qwen2_5=n_generated * 1e9 / whole_ns,
        tok_s_qwen3=(n_read + n_generated) * 1e9 / whole_ns,
        requests=RequestRates(
            len(timings), statistics.median(rates), min(rates), max(rates), statistics.median(waits), max(waits)
        )
        if rates
        else None,
    )


def _window(requests: Sequence[ServedRequest]) -> tuple[int, int] | None:
    """From the last first token to the first last one, in ns; None where these do not overlap."""
    begins = [each.timing.first_token_ns for each in requests if each.timing.first_token_ns is not None]
    ends = [each.timing.last_token_ns for each in requests if each.timing.last_token_ns is not None]
    if len(begins) < len(requests) or len(ends) < len(requests) or max(begins) >= min(ends):
        return None
    return max(begins), min(ends)


def _throughput(requests: Sequence[ServedRequest]) -> float | None:
    """Tokens of all requests per second while all of them generate."""
    if (window := _window(requests)) is None:
        return None
    begin_ns, end_ns = window
    if len(requests) == 1:
        return (requests[0].timing.n_tokens - 1) * 1e9 / (end_ns - begin_ns)
    n_tokens = sum(n for each in requests for arrived, n, _ in each.arrivals if begin_ns < arrived <= end_ns)
    return n_tokens * 1e9 / (end_ns - begin_ns) if n_tokens else None
