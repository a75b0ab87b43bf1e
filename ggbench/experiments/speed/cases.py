"""Results of cases by input length and batch size, and the line of each batch size, from the steps of each case."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.record import BatchLine, Case, CaseEnded, SpeedCase
from ggbench.stats.decode_timing import DecodeLimit, TokenTimes
from ggbench.stats.linefit import fit_line
from ggbench.stats.requests import BatchSteps, request_rates, throughput
from ggbench.stats.speed import summarize, summarize_tokens


def case_figures(
    ended: Sequence[CaseEnded], steps: Mapping[Case, BatchSteps], n_ctx_train: int | None
) -> tuple[SpeedCase, ...]:
    """Return the finished cases, by batch size and input length, with the results of completed ones."""
    found = []
    for each in ended:
        own, n_last = steps.get(each.case, BatchSteps(TokenTimes())), each.case.n_input + each.case.n_gen
        case = SpeedCase(each, exceeds_training=bool(n_ctx_train) and n_last > (n_ctx_train or 0))
        if each.outcome is Outcome.COMPLETED:
            case = _served(case, own) if own.requests else _timed(case, own.times)
        found.append(case)
    return _with_gains(found)


def batch_lines(steps: Mapping[Case, BatchSteps], limits: Mapping[int, DecodeLimit]) -> tuple[BatchLine, ...]:
    """Return the line of each batch size through the steps of all its cases, with the limit for that many sequences."""
    lines = []
    for n_seqs in sorted({case.n_seqs for case in steps}):
        # in order of position, so that cases are one repetition with gaps, and few steps of each define a line together
        of_batch = [steps[case].times for case in sorted(steps) if case.n_seqs == n_seqs]
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


def _timed(found: SpeedCase, steps: TokenTimes) -> SpeedCase:
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


def _served(found: SpeedCase, steps: BatchSteps) -> SpeedCase:
    """Return the results of a case by the client's clock; latencies by the clock of its steps."""
    n_seqs, requests = found.case.n_seqs, steps.requests
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
    waits = [(first - each.sent_ns) / 1e6 for first, each in zip(firsts, timings, strict=True)]
    return replace(
        found,
        prefill_ms=prefill_ns / 1e6,
        ttft_ms=statistics.median(waits),
        decode_ms=(whole_ns - prefill_ns) / 1e6,
        latency=summarize_tokens(steps.times),
        token_ms=sum(ns for ns, _ in spans) / 1e6 / n_generated,
        prefill_tok_s=n_read * 1e9 / prefill_ns,
        decode_tok_s=throughput(requests),
        tok_s_qwen2_5=n_generated * 1e9 / whole_ns,
        tok_s_qwen3=(n_read + n_generated) * 1e9 / whole_ns,
        requests=request_rates(requests),
    )
