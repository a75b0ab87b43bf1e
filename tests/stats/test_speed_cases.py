"""The figures of a case by the definitions of the published tables, and the line of each batch size."""

import numpy as np
import pytest

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.case_runner import CaseForecast
from ggbench.experiments.speed.cases import batch_lines, case_figures
from ggbench.experiments.speed.record import Case, CaseEnded, CaseMemory
from ggbench.stats.decode_timing import DecodeLimit, TokenTimes
from ggbench.stats.requests import BatchSteps

MEMORY = CaseMemory(400, 100, 20)


def _steps(case: Case, step_ns: int) -> BatchSteps:
    return BatchSteps(TokenTimes([*range(case.n_input + 1, case.n_input + case.n_gen + 1)], [step_ns] * case.n_gen))


def test_the_figures_are_those_of_the_protocols() -> None:
    case = Case(4, 100, 50)
    ended = CaseEnded(case, prefill_ns=2_000_000_000, sampler_ns=1_000_000, memory=MEMORY)
    (found,) = case_figures([ended], {case: _steps(case, 40_000_000)}, 4096)
    assert found.seconds == 4.0
    assert found.tok_s_qwen2_5 == 4 * 50 / 4.0
    assert found.tok_s_qwen3 == 4 * 150 / 4.0
    assert (found.prefill_tok_s, found.decode_tok_s) == (4 * 100 / 2.0, 4 * 50 / 2.0)
    assert (found.prefill_ms, found.ttft_ms, found.decode_ms, found.token_ms) == (2000, 2001, 2000, 40)
    assert found.tok_s_each == pytest.approx(25)
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
    killed = CaseEnded(case, Outcome.CRASHED, "llama.cpp was killed by SIGSEGV", prefill_ns=5)
    assert case_figures([killed], {case: _steps(case, 5)}, None)[0].decode_tok_s is None


def test_short_decodes_at_several_inputs_define_a_line_together() -> None:
    limit = DecodeLimit(300.0, 9.0, 1e9, "given")
    steps = {
        Case(n_seqs, n_input, 64): BatchSteps(
            TokenTimes(
                positions := [*range(n_input + 1, n_input + 65)],
                [round(10e6 + n_seqs * (n - 1) * 5e3 + n * 7919 % 1000) for n in positions],
            )
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


def _prefill_s(n_input: int, n_seqs: int) -> float:
    """20 ms, 2 ms a token, and attention that takes as long as all else at 8,000 tokens."""
    return 0.020 + 2e-3 * n_seqs * n_input + 2.5e-7 * n_seqs * n_input**2


def _step_ns(n_seqs: int, position: int) -> int:
    """B is 25 ms and 5 ms for each sequence; W is 40 tokens/ms for one."""
    return round(20e6 + 5e6 * n_seqs + n_seqs * position / 40 * 1e6)


def _forecast(*lengths: int, batches: tuple[int, ...] = (1,)) -> CaseForecast:
    forecast = CaseForecast()
    for n_seqs, n_input in [*((n_seqs, 16) for n_seqs in batches), *((1, length) for length in lengths)]:
        forecast.add_prompts(n_input, n_seqs, _prefill_s(n_input, n_seqs))
        positions = range(n_input + 1, n_input + 9)
        forecast.add_steps(n_seqs, positions, [_step_ns(n_seqs, n) for n in positions])
    return forecast


def _true_s(case: Case) -> float:
    positions = range(case.n_input + 1, case.n_input + case.n_gen + 1)
    return _prefill_s(case.n_input, case.n_seqs) + sum(_step_ns(case.n_seqs, n) for n in positions) / 1e9


@pytest.mark.parametrize("case", [Case(1, 6144, 2048), Case(1, 129024, 2048), Case(8, 1, 64), Case(8, 30720, 512)])
def test_a_case_far_beyond_what_ran_is_foreseen(case: Case) -> None:
    forecast = _forecast(512, 1024, 2048, 4096, batches=(1, 8))
    assert forecast.expected_s(case) == pytest.approx(_true_s(case), rel=0.02)


def test_a_batch_that_was_seen_far_enough_has_its_own_w() -> None:
    forecast = _forecast(512, 4096, batches=(1, 8))
    positions = range(4097, 4161)
    forecast.add_steps(8, positions, [_step_ns(4, n) for n in positions])
    case = Case(8, 8192, 256)
    assert forecast.expected_s(case) == pytest.approx(
        _prefill_s(8192, 8) + 256 * _step_ns(4, 8192 + 128) / 1e9, rel=0.15
    )


def test_interrupted_steps_do_not_change_a_forecast() -> None:
    forecast = CaseForecast()
    forecast.add_prompts(16, 1, _prefill_s(16, 1))
    positions = list(range(2, 2050))
    steps = np.array([_step_ns(1, n) for n in positions])
    steps[::10] *= 100
    forecast.add_steps(1, positions, steps.tolist())
    assert forecast.expected_s(Case(1, 6144, 2048)) == pytest.approx(
        _true_s(Case(1, 6144, 2048)) - _prefill_s(6144, 1) + (forecast.prefill_s(6144) or 0), rel=0.02
    )


def test_a_batch_size_that_was_not_seen_takes_no_more_than_its_sequences_alone() -> None:
    forecast, case = _forecast(512, batches=(1, 4)), Case(256, 1, 64)
    decode_s = forecast.expected_s(Case(4, 1, 64))
    assert decode_s is not None
    expected_s = forecast.expected_s(case)
    assert expected_s is not None
    assert _true_s(case) <= expected_s <= 64 * decode_s


def test_the_gain_is_over_one_sequence_of_the_same_input_and_cases_are_in_order() -> None:
    cases = {Case(8, 512, 20): 30_000_000, Case(8, 10, 20): 20_000_000, Case(1, 10, 20): 10_000_000}
    ended = [CaseEnded(case, prefill_ns=1_000_000) for case in cases]
    found = case_figures(ended, {case: _steps(case, ns) for case, ns in cases.items()}, None)
    assert [(each.case.n_seqs, each.case.n_input) for each in found] == [(1, 10), (8, 10), (8, 512)]
    assert [each.gain for each in found] == [1.0, pytest.approx(4.0), None]


def test_nothing_is_foreseen_before_anything_similar_ran() -> None:
    assert (CaseForecast().expected_s(Case(1, 1, 1)), CaseForecast().prefill_s(1)) == (None, None)
    assert _forecast(batches=(8,)).expected_s(Case(4, 1, 1)) is None


def test_a_longer_prompt_never_takes_less() -> None:
    """Noise that makes short prompts slower does not give the square a negative coefficient."""
    forecast = CaseForecast()
    for n_input, seconds in ((16, 0.3), (512, 1.2), (1024, 2.2), (2048, 4.0)):
        forecast.add_prompts(n_input, 1, seconds)
    found = [forecast.prefill_s(length) or 0.0 for length in (4096, 8192, 65536)]
    assert found == sorted(found)
    assert found[0] > 4.0


def test_a_decode_too_short_for_w_has_that_of_the_bandwidth() -> None:
    forecast = CaseForecast(least_slope_s=1 / 40e3)
    forecast.add_prompts(16, 1, _prefill_s(16, 1))
    forecast.add_steps(1, range(17, 25), [_step_ns(1, n) for n in range(17, 25)])
    case = Case(1, 6144, 64)
    decode_s = (forecast.expected_s(case) or 0) - (forecast.prefill_s(6144) or 0)
    assert decode_s == pytest.approx(_true_s(case) - _prefill_s(6144, 1), rel=0.01)
