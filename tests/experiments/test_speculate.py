"""Speculative decoding over fake workers whose steps take the same times in each round."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Speculate
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Continued, Speculated
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, Unsupported, UsageError
from ggbench.experiments.speculate.answers import TEXTS, answered_texts
from ggbench.experiments.speculate.measure import EXPERIMENT
from ggbench.experiments.speculate.record import (
    N_DRAFTED,
    AnsweredText,
    SpeculateResult,
    SpeculateSettings,
    SpeculationRound,
)
from ggbench.experiments.speculate.show import PRESENTER, drafting_line, verdict
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished, PointMeasured
from ggbench.runs.run import Run
from ggbench.stats.intervals import Estimate
from tests.fakes.engine import Answer, fake_rig, obey

SINGLE_NS, TOKEN_NS, DRAFT_NS, HOST_NS = 2_000_000, 100_000, 300_000, 100_000


def _worker(draft_ns: int = DRAFT_NS) -> Answer:
    """Return workers with steps of these times."""

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, Speculate):
            steps = [k * draft_ns + SINGLE_NS + k * TOKEN_NS + draft_ns + HOST_NS for k in request.n_drafted]
            yield from (Speculated([SINGLE_NS] * request.n_single, 0, steps) for _ in range(request.n_passes))
            yield Completed()
        else:
            yield from obey(request)

    return answer


SETTINGS = SpeculateSettings((1, 3), (0, 64))


def _run(target: Target, draft: Target, draft_ns: int = DRAFT_NS, settings: SpeculateSettings = SETTINGS) -> Run:
    rig, _ = fake_rig(None, {number: _worker(draft_ns) for number in range(9)})
    *_, end = run_job(rig, Job(EXPERIMENT, target, LlamaConfig(), settings, draft=draft))
    assert isinstance(end, Finished)
    return end.run


def _result(run: Run) -> SpeculateResult:
    assert isinstance(run.result, SpeculateResult), run.reason
    return run.result


def test_whole_steps_of_both_files_are_timed(target: Target, tiny_twin: Path) -> None:
    run = _run(target, target)
    found = _result(run)
    assert run.is_complete
    assert [(each.n_depth, each.k) for each in found.cases] == [(0, 1), (0, 3), (64, 1), (64, 3)]
    times = found.cases[1].step.times
    assert (times.t1_ms, times.step_ms) == pytest.approx((2.0, 2.0 + 0.3 + 4 * 0.3 + 0.1))
    even = found.cases[1].step.break_even
    assert even.value == pytest.approx(1.8, rel=1e-5)
    assert (even.high / even.value, even.value / even.low) == pytest.approx((1.1, 1.1), rel=1e-2), "the server's error"
    assert found.cases[1].step.speedup(3).value == pytest.approx(3 / 1.8, rel=1e-5)
    assert "--spec-draft-n-max 3" in drafting_line(run, found) and f"-md {tiny_twin}" in drafting_line(run, found)


def test_where_it_hurts_is_said_first(target: Target) -> None:
    """A draft as slow as its model can never pay."""
    run = _run(target, target, SINGLE_NS)
    found = _result(run)
    assert verdict(found).startswith("Drafts do not pay: 0.7")
    assert PRESENTER.short_answer(run).startswith("break-even ")
    assert drafting_line(run, found) == ""
    even = Estimate(5.0, 3.0, 8.0)
    wide = [replace(each, step=replace(each.step, break_even=even)) for each in found.cases]
    assert verdict(replace(found, cases=tuple(wide))).startswith("Undecided: ")
    assert verdict(_result(_run(target, target))).startswith("Drafts pay above 1.")


def test_steps_that_may_be_anything_decide_nothing(target: Target) -> None:
    found = _result(_run(target, target))
    cases = [replace(each, step=replace(each.step, break_even=Estimate(1.5, 1e-5, 26907.5))) for each in found.cases]
    of_noise = replace(found, cases=tuple(cases))
    assert verdict(of_noise).startswith("Undecided: ")


def test_the_page_is_readable_at_80_columns(target: Target) -> None:
    run = _run(target, target, settings=SpeculateSettings())
    answers = [each for name in TEXTS for n in range(3) for each in _answers(name, n)]
    run = replace(run, result=replace(_result(run), texts=tuple(answered_texts(answers))))
    answer, pages = PRESENTER.details(run), []
    for why in (False, True):
        console = Console(width=80, file=io.StringIO())
        console.print(answer.rich(why=why))
        assert isinstance(console.file, io.StringIO)
        pages.append(console.file.getvalue().splitlines())
    front, lines = pages
    assert len(front) <= 20 and front[2].startswith("llama-server -m ")
    assert max(map(len, lines[3:])) <= 80 and not any("…" in line for line in lines)
    rows = [line.split()[:2] for line in lines if line[:5].strip() == "0"]
    assert rows == [["0", str(k)] for k in N_DRAFTED]


def test_a_short_time_limit_keeps_three_rounds(target: Target) -> None:
    settings = replace(SETTINGS, within_s=0.0)
    rig, _ = fake_rig(None, {number: _worker() for number in range(9)})
    job = Job(EXPERIMENT, target, LlamaConfig(), settings, draft=target)
    rounds = [each.observation for each in run_job(rig, job) if isinstance(each, PointMeasured)]
    assert {each.round for each in rounds if isinstance(each, SpeculationRound)} == {0, 1, 2}


def test_unsuitable_pairs_are_refused_before_anything_is_loaded(target: Target) -> None:
    header = target.header()
    small = replace(header, tensors=header.tensors[:2])
    cases: list[tuple[ModelFile, ModelFile, type[GgbenchError], str]] = [
        (header, replace(header, n_vocab=(header.n_vocab or 0) + 200), Unsupported, "vocabularies"),
        (small, header, UsageError, "is larger than"),
        (replace(header, n_ctx_train=3), header, UsageError, "training context of 3 tokens"),
    ]
    recurrent = replace(header, states=(replace(header.states[0], recurrent_elements=64), *header.states[1:]))
    cases += [(recurrent, header, Unsupported, "recurrent layers"), (header, recurrent, Unsupported, "recurrent")]
    for model, draft, kind, words in cases:
        rig, workers = fake_rig()
        pair = replace(target, file=model), replace(target, file=draft)
        *_, end = run_job(rig, Job(EXPERIMENT, pair[0], LlamaConfig(), SETTINGS, draft=pair[1]))
        assert isinstance(end, Finished) and isinstance(end.error, kind) and words in end.error.message
        assert end.error.hint and not workers


def test_depths_beyond_the_training_context_are_left_out(target: Target) -> None:
    trained = replace(target, file=replace(target.header(), n_ctx_train=513))
    run = _run(trained, target, settings=SpeculateSettings((1, 3), (0, 512)))
    assert {each.n_depth for each in _result(run).cases} == {0}


def _answers(name: str, number: int) -> tuple[AnsweredText, AnsweredText]:
    """Return a text without drafts and with, of which half of 12 are accepted in 4 steps."""
    plain, drafted = Continued(9, 80_000_000), Continued(11, 100_000_000, n_drafted=12, n_accepted=6)
    return AnsweredText(name, number, 3, False, plain), AnsweredText(name, number, 3, True, drafted)


def test_a_text_says_what_was_accepted_and_what_that_gained(target: Target) -> None:
    """Steps of 3, 0, 2 and 1 accepted tokens: 10 tokens in 4 steps; 100 ms against 80 ms for 8 without a draft."""
    places = [*(("prose", number) for number in range(3)), ("code", 0)]
    (found,) = answered_texts([each for place in places for each in _answers(*place)])
    assert (found.name, found.n_tokens, found.mean_len, found.accepted_share) == ("prose", 9, 2.5, 0.5)
    assert (found.plain_tok_s, found.drafted_tok_s, found.gain.value) == pytest.approx((100, 100, 1))
    run = _run(target, target)
    result = replace(_result(run), texts=(replace(found, gain=Estimate(0.5, 0.4, 0.6)),))
    assert verdict(result).startswith("Drafts slow down prose (0.50 ±0.10 times).")
    assert drafting_line(run, _result(run)) and drafting_line(run, result) == "", "measured to be slower"
