"""The figures of cases by input length and batch size, and the line of each batch size, from the steps of each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.record import BatchLine, Case, CaseEnded, SpeedCase
from ggbench.experiments.speed.served_cases import ServedRequest, served_case
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.stats.linefit import fit_line
from ggbench.stats.speed import summarize


class CaseSteps(msgspec.Struct, frozen=True):
    """The decode of one case."""

    position: Sequence[float] = ()
    """Tokens in the KV cache of a sequence, the one being decoded included."""
    step_ns: Sequence[float] = ()
    requests: Sequence[ServedRequest] = ()
    """Of a server; empty where an engine on this machine decoded all sequences together."""


def case_figures(
    ended: Sequence[CaseEnded], steps: Mapping[Case, CaseSteps], n_ctx_train: int | None
) -> tuple[SpeedCase, ...]:
    """Return the cases that ended, by batch size and input length, with the figures of those that completed."""
    found = []
    for each in ended:
        own = steps.get(each.case, CaseSteps())
        served = served_case(each, own.requests, n_ctx_train) if own.requests else None
        found.append(served or _figures(each, own, n_ctx_train))
    return _with_gains(found)


def timed_cases(ended: Sequence[CaseEnded], decode_ns: Mapping[Case, int]) -> tuple[SpeedCase, ...]:
    """Return cases as above, of which only the whole time of each decode is known: another tool's."""
    return _with_gains(
        [_timed(SpeedCase(each), each.prefill_ns or 0, decode_ns[each.case], each.case.n_gen) for each in ended]
    )


def batch_lines(steps: Mapping[Case, CaseSteps], limits: Mapping[int, DecodeLimit]) -> tuple[BatchLine, ...]:
    """Return the line of each batch size through the steps of all its cases, beside the limit of as many sequences."""
    lines = []
    for n_seqs in sorted({case.n_seqs for case in steps}):
        # By rising position, so that cases are one repetition with gaps and few steps of each define a line together.
        of_batch = [steps[case] for case in sorted(steps) if case.n_seqs == n_seqs]
        position = [n for each in of_batch for n in each.position]
        step_ns = [ns for each in of_batch for ns in each.step_ns]
        if step_ns:
            lines.append(BatchLine(n_seqs, fit_line(position, step_ns), limits.get(n_seqs)))
    return tuple(lines)


def _with_gains(found: Sequence[SpeedCase]) -> tuple[SpeedCase, ...]:
    """The cases in their order, with the throughput over that of batch 1."""
    alone = {each.case.n_input: each.decode_tok_s for each in found if each.case.n_seqs == 1 and each.decode_tok_s}
    return tuple(
        replace(each, gain=each.decode_tok_s / alone[each.case.n_input])
        if each.decode_tok_s and each.case.n_input in alone
        else each
        for each in sorted(found, key=lambda each: each.case)
    )


def _figures(ended: CaseEnded, steps: CaseSteps, n_ctx_train: int | None) -> SpeedCase:
    case = ended.case
    found = SpeedCase(ended, exceeds_training=bool(n_ctx_train) and case.n_input + case.n_gen > (n_ctx_train or 0))
    if ended.outcome is not Outcome.COMPLETED or ended.prefill_ns is None or not steps.step_ns:
        return found
    timed = _timed(found, ended.prefill_ns, sum(steps.step_ns), len(steps.step_ns))
    ttft_ms = (ended.prefill_ns + (ended.sample_ns or 0)) / 1e6
    return replace(timed, ttft_ms=ttft_ms, latency=summarize(steps.position, steps.step_ns))


def _timed(found: SpeedCase, prefill_ns: int, decode_ns: float, n_steps: int) -> SpeedCase:
    """The case with what follows from the time of its prompts and of its decode."""
    n_read, n_generated = found.case.n_seqs * found.case.n_input, found.case.n_seqs * n_steps
    whole_s = (prefill_ns + decode_ns) / 1e9
    return replace(
        found,
        prefill_ms=prefill_ns / 1e6,
        decode_ms=decode_ns / 1e6,
        token_ms=decode_ns / 1e6 / n_steps,
        prefill_tok_s=n_read * 1e9 / prefill_ns,
        decode_tok_s=n_generated * 1e9 / decode_ns,
        tok_s_qwen2_5=n_generated / whole_s,
        tok_s_qwen3=(n_read + n_generated) / whole_s,
    )
