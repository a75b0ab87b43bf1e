"""Results of cases by input length and batch size, and the line of each batch size, from the steps of each case."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.record import BatchLine, Case, CaseEnded, RequestRates, SpeedCase
from ggbench.stats.decode_timing import DecodeLimit, RequestTiming, TimedSeries, TokenTimes, in_order
from ggbench.stats.linefit import fit_line
from ggbench.stats.speed import summarize, summarize_tokens


class CaseSteps(msgspec.Struct, frozen=True):
    """The decode of one case."""

    position: Sequence[float] = ()
    """Tokens in the KV cache of a sequence, including the one being decoded."""
    step_ns: Sequence[float] = ()
    requests: Sequence[ServedRequest] = ()
    """Requests of a server; empty if an engine on this machine decoded all sequences together."""


def case_figures(
    ended: Sequence[CaseEnded], steps: Mapping[Case, CaseSteps], n_ctx_train: int | None
) -> tuple[SpeedCase, ...]:
    """Return the finished cases, by batch size and input length, with the results of completed ones."""
    found = []
    for each in ended:
        own, n_last = steps.get(each.case, CaseSteps()), each.case.n_input + each.case.n_gen
        case = SpeedCase(each, exceeds_training=bool(n_ctx_train) and n_last > (n_ctx_train or 0))
        if each.outcome is Outcome.COMPLETED:
            case = served_case(case, own.requests) if own.requests else _timed(case, own)
        found.append(case)
    return _with_gains(found)


def batch_lines(steps: Mapping[Case, CaseSteps], limits: Mapping[int, DecodeLimit]) -> tuple[BatchLine, ...]:
    """Return the line of each batch size through the steps of all its cases, with the limit for that many sequences."""
    lines = []
    for n_seqs in sorted({case.n_seqs for case in steps}):
        # in order of position, so that cases are one repetition with gaps, and few steps of each define a line together
        of_batch = [steps[case] for case in sorted(steps) if case.n_seqs == n_seqs]
        position = [n for each in of_batch for n in each.position]
        step_ns = [ns for each in of_batch for ns in each.step_ns]
        if step_ns:
            lines.append(BatchLine(n_seqs, fit_line(position, step_ns), limits.get(n_seqs)))
    return tuple(lines)


def _with_gains(found: Sequence[SpeedCase]) -> tuple[SpeedCase, ...]:
    alone = {each.case.n_input: each.decode_tok_s for each in found if each.case.n_seqs == 1 and each.decode_tok_s}
    return tuple(
        replace(each, gain=each.decode_tok_s / alone[each.case.n_input])
        if each.decode_tok_s and each.case.n_input in alone
        else each
        for each in sorted(found, key=lambda each: each.case)
    )


def _timed(found: SpeedCase, steps: CaseSteps) -> SpeedCase:
    """Return the case with the results derived from the times of its prompts and steps, if both are known."""
    case, prefill_ns, decode_ns, n_steps = found.case, found.ended.prefill_ns, sum(steps.step_ns), len(steps.step_ns)
    if prefill_ns is None or not n_steps:
        return found
    n_read, n_generated = case.n_seqs * case.n_input, case.n_seqs * n_steps
    whole_s = (prefill_ns + decode_ns) / 1e9
    return replace(
        found,
        prefill_ms=prefill_ns / 1e6,
        ttft_ms=(prefill_ns + (found.ended.sampler_ns or 0)) / 1e6,
        decode_ms=decode_ns / 1e6,
        latency=summarize(steps.position, steps.step_ns),
        token_ms=decode_ns / 1e6 / n_steps,
        prefill_tok_s=n_read * 1e9 / prefill_ns,
        decode_tok_s=n_generated * 1e9 / decode_ns,
        tok_s_qwen2_5=n_generated / whole_s,
        tok_s_qwen3=(n_read + n_generated) / whole_s,
    )


class ServedRequest(msgspec.Struct, frozen=True):
    """One request of a case with its times."""

    timing: RequestTiming
    steps: TimedSeries

    @property
    def arrivals(self) -> list[tuple[int, int, int]]:
        """Arrivals of tokens: ns after the first request was sent, number of tokens, and position."""
        first_ns = self.timing.first_token_ns or 0
        timed = in_order(self.steps)
        ends = accumulate(ns for _, _, ns in timed)
        return [(first_ns + end, n_tokens, first) for end, (first, n_tokens, _) in zip(ends, timed, strict=True)]


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
        kept = [(at, ns) for at, ns in zip(each.steps.position, each.steps.step_ns, strict=True) if at in shared]
        parts.append(TimedSeries([at for at, _ in kept], [ns for _, ns in kept]))
    return TokenTimes.of(parts)


def served_case(found: SpeedCase, requests: Sequence[ServedRequest]) -> SpeedCase:
    """Return the results of a case by the client's clock; latencies by the clock of its steps."""
    n_seqs = found.case.n_seqs
    timings = [each.timing for each in requests]
    firsts = [each.first_token_ns for each in timings if each.first_token_ns is not None]
    lasts = [each.last_token_ns for each in timings if each.last_token_ns is not None]
    if len(firsts) < n_seqs or len(lasts) < n_seqs:
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
    """From the latest first token to the earliest last token, in ns; None if they do not overlap."""
    begins = [each.timing.first_token_ns for each in requests if each.timing.first_token_ns is not None]
    ends = [each.timing.last_token_ns for each in requests if each.timing.last_token_ns is not None]
    if len(begins) < len(requests) or len(ends) < len(requests) or max(begins) >= min(ends):
        return None
    return max(begins), min(ends)


def _throughput(requests: Sequence[ServedRequest]) -> float | None:
    """Tokens/s over all requests, while all of them generate."""
    if (window := _window(requests)) is None:
        return None
    begin_ns, end_ns = window
    if len(requests) == 1:
        return (requests[0].timing.n_tokens - 1) * 1e9 / (end_ns - begin_ns)
    n_tokens = sum(n for each in requests for arrived, n, _ in each.arrivals if begin_ns < arrived <= end_ns)
    return n_tokens * 1e9 / (end_ns - begin_ns) if n_tokens else None
