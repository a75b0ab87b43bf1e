"""The figures of a case by the definitions of the published tables, and the line of each batch size."""

import pytest

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.cases import CaseSteps, batch_lines, case_figures
from ggbench.experiments.speed.record import Case, CaseEnded, CaseMemory
from ggbench.stats.decode_timing import DecodeLimit

MEMORY = CaseMemory(400, 100, 20)


def _steps(case: Case, step_ns: int) -> CaseSteps:
    return CaseSteps(range(case.n_input + 1, case.n_input + case.n_gen + 1), [step_ns] * case.n_gen)


def test_the_figures_are_those_of_the_protocols() -> None:
    case = Case(4, 100, 50)
    ended = CaseEnded(case, prefill_ns=2_000_000_000, sample_ns=1_000_000, memory=MEMORY)
    (found,) = case_figures([ended], {case: _steps(case, 40_000_000)}, 4096)
    assert found.seconds == 4.0
    assert found.tok_s_qwen2_5 == 4 * 50 / 4.0
    assert found.tok_s_qwen3 == 4 * 150 / 4.0
    assert (found.prefill_tok_s, found.decode_tok_s) == (4 * 100 / 2.0, 4 * 50 / 2.0)
    assert (found.prefill_ms, found.ttft_ms, found.decode_ms, found.token_ms) == (2000, 2001, 2000, 40)
    assert found.latency is not None
    assert found.latency.p50_ms == pytest.approx(40)
    assert found.latency.p99_ms == pytest.approx(40)
    assert found.gain is None
    assert not found.exceeds_training


def test_what_did_not_run_has_no_figures() -> None:
    case = Case(1, 4096, 64)
    ended = CaseEnded(case, Outcome.OUT_OF_MEMORY, "needs 3 GiB", memory=MEMORY)
    (found,) = case_figures([ended], {}, 4096)
    assert (found.tok_s_qwen2_5, found.ttft_ms, found.latency, found.seconds) == (None,) * 4
    assert found.ended.memory == MEMORY
    assert found.exceeds_training
    killed = CaseEnded(case, Outcome.CRASHED, "llama.cpp was ended by SIGSEGV", prefill_ns=5)
    assert case_figures([killed], {case: _steps(case, 5)}, None)[0].decode_tok_s is None


def test_short_decodes_at_several_inputs_define_a_line_together() -> None:
    limit = DecodeLimit(300.0, 9.0, 1e9, "given")
    steps = {
        Case(n_seqs, n_input, 64): CaseSteps(
            positions := range(n_input + 1, n_input + 65),
            [round(10e6 + n_seqs * (n - 1) * 5e3 + n * 7919 % 1000) for n in positions],
        )
        for n_seqs in (4, 1)
        for n_input in (2048, 1, 512)
    }
    one, four = batch_lines(steps, {4: limit})
    assert (one.n_seqs, four.n_seqs, one.limit, four.limit) == (1, 4, None, limit)
    assert one.fit is not None
    assert four.fit is not None
    assert one.fit.n_samples == 192
    assert one.fit.w_tokens_per_ms == pytest.approx(200, rel=0.02)
    assert four.fit.w_tokens_per_ms == pytest.approx(50, rel=0.02)
    assert four.fit.b_ms == pytest.approx(10, rel=0.02)
