"""Drafts of a server, measured by its answers with and without them."""

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from ggbench.commands.measure_options import run_by
from ggbench.engines.events import Continued
from ggbench.engines.http.program import Build
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.speculate.measure import EXPERIMENT
from ggbench.experiments.speculate.record import AnsweredText, SpeculateResult, SpeculateSettings
from ggbench.experiments.speculate.show import PRESENTER
from ggbench.experiments.speculate.texts import TEXTS, answered_texts
from ggbench.experiments.speculate.verdict import drafting_line, verdict
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import run_context
from ggbench.stats.intervals import Estimate
from tests.fakes.llama_server import install


def _answer(is_drafted: bool, number: int, ns: int, text: str = "a b c") -> AnsweredText:
    drafts = (6, 4) if is_drafted else ()
    return AnsweredText("prose", number, 3, is_drafted, Continued(text, 11, ns, *drafts))


def test_the_gain_is_that_of_the_rounds_and_its_interval_covers_their_spread() -> None:
    answers = [_answer(False, 0, 200), _answer(True, 0, 100), _answer(True, 1, 100), _answer(False, 1, 180)]
    (found,) = answered_texts(answers)
    assert found.gain.value == pytest.approx((2.0 * 1.8) ** 0.5)
    assert found.gain.low < 1.8 < 2.0 < found.gain.high
    assert (found.accepted_share, found.difference) == (4 / 6, "")
    assert found.mean_len == pytest.approx(10 / 6)  # 10 tokens after the first, of which 4 were drafted
    assert not [*answered_texts(answers[:3])], "one round has no interval"


def test_the_first_difference_of_two_answers_is_named() -> None:
    rounds = [(_answer(False, n, 9, "one two three"), _answer(True, n, 9, "one too three")) for n in range(2)]
    (found,) = answered_texts([each for pair in rounds for each in pair])
    assert found.difference == "from character 6 on"


@pytest.fixture
def trained(target: Target) -> Target:
    return replace(target, provenance="file")


def _run(
    folder: Path, target: Target, settings: SpeculateSettings, way: str = "", *, has_own_layers: bool = False
) -> Finished:
    setup = run_by(f"llama-server={install(folder, way)}", LlamaConfig(threads=1, mtp=has_own_layers))
    job = Job(EXPERIMENT, target, setup, settings, draft=None if has_own_layers else target)
    *_, end = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(end, Finished)
    return end


def test_a_server_answers_in_turns_and_twice_as_fast_with_drafts(trained: Target, tmp_path: Path) -> None:
    within_s = 1.85  # for 20 tokens of 5 ms, of three texts in three rounds of two
    run = _run(tmp_path, trained, SpeculateSettings((5,), within_s=within_s)).run
    assert isinstance(run.result, SpeculateResult), run.reason
    assert [(each.name, each.n_tokens) for each in run.result.texts] == [(name, 20) for name in TEXTS]
    assert {(round(each.gain.value, 6), each.difference, each.k) for each in run.result.texts} == {(2.0, "", 5)}
    assert run.result.pair.spec_type == "draft-simple" and run.result.pair.draft is not None
    assert PRESENTER.short_answer(run).startswith("2.")
    assert PRESENTER.answer(run).startswith("Drafts pay on prose (2")
    line = drafting_line(run, run.result)
    assert f"-md {trained.path} --spec-type draft-simple" in line and "--spec-draft-n-max 5" in line
    slower = [replace(each, gain=Estimate(0.5, 0.4, 0.6)) for each in run.result.texts]
    assert drafting_line(run, replace(run.result, texts=tuple(slower))) == ""


@pytest.mark.parametrize(("has_own_layers", "kind"), [(False, "draft-simple"), (True, "draft-mtp")])
def test_a_step_with_a_twin_takes_what_rejected_drafts_take(
    target: Target, tmp_path: Path, has_own_layers: bool, kind: str
) -> None:
    """The fake server takes 10 ms for a token without drafts; made to reject all, 30 for 80 / 19 drafted tokens."""
    header = target.header()
    layer = replace(header.tensors[-1], name="blk.1.nextn.eh_proj.weight")
    target = replace(target, file=replace(header, tensors=(*header.tensors, layer)))
    run = _run(tmp_path, target, SpeculateSettings((5,), within_s=0), has_own_layers=has_own_layers).run
    assert isinstance(run.result, SpeculateResult), run.reason
    (case,) = run.result.cases
    assert (case.n_depth, case.k, run.result.texts, run.result.pair.spec_type) == (0, 5, (), kind)
    assert (case.step.times.t1_ms, case.step.times.step_ms) == pytest.approx((10, 10 + 20 * 5 * 19 / 80))
    assert case.step.break_even.value == pytest.approx(3.375) and case.step.times.parts is None
    assert PRESENTER.answer(run).startswith("Drafts pay above 3.3")
    line = drafting_line(run, run.result)
    assert f"--spec-type {kind} --spec-draft-n-max 5" in line and "synth" not in line
    page = Console(width=80, file=io.StringIO())
    page.print(PRESENTER.details(run))
    assert isinstance(page.file, io.StringIO)
    assert "break-even" in page.file.getvalue()
    slow = replace(case, step=replace(case.step, break_even=Estimate(7.0, 6.9, 7.1)))
    never = replace(run.result, cases=(slow,))
    assert verdict(never).startswith("Drafts do not pay") and drafting_line(run, never) == ""
    routed = replace(never, pair=replace(never.pair, has_random_router=True))
    assert verdict(routed) == (
        "Drafts probably pay above 7.00 ±0.10 tokens a step, with 5 drafted: the twin's router is random."
    )
    assert PRESENTER.short_answer(replace(run, result=routed)) == "break-even 7.00 ±0.10 tokens"
    assert drafting_line(run, routed) == line


def test_n_grams_of_a_twin_are_refused_before_any_server_starts(target: Target, tmp_path: Path) -> None:
    setup = run_by(f"llama-server={install(tmp_path)}", LlamaConfig())
    job = Job(EXPERIMENT, target, setup, SpeculateSettings(spec_type="ngram-simple"))
    *_, end = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(end, Finished) and isinstance(end.error, Unsupported)
    assert "random text" in end.error.message and end.run.run_id is None


def test_a_server_that_cannot_reject_drafts_is_refused_with_a_twin_alone(target: Target, tmp_path: Path) -> None:
    end = _run(tmp_path, target, SpeculateSettings((3,), within_s=0), "accepts")
    assert isinstance(end.error, UsageError) and "cannot be made to reject drafts" in end.error.message
    Build(spec_types=("draft-simple",)).check_drafts("draft-simple", rejects_all=False)


@pytest.mark.parametrize(
    ("settings", "command", "words"),
    [
        (SpeculateSettings((3, 5)), "", "one number of drafted tokens"),
        (SpeculateSettings(), " --spec-type ngram-mod", "with and without --spec-type"),
        (SpeculateSettings(depths=(4096,)), "", "not at a depth"),
        (SpeculateSettings((5,), spec_type="ngram-mod"), "", "-k does not limit"),
    ],
)
def test_contradicting_options_are_refused_before_any_start(
    target: Target, tmp_path: Path, settings: SpeculateSettings, command: str, words: str
) -> None:
    setup = run_by(f"llama-server={install(tmp_path)}{command}", LlamaConfig())
    with pytest.raises(UsageError, match=words):
        Job(EXPERIMENT, target, setup, settings)


def test_ggbenchs_own_engine_refuses_a_type_of_drafts_and_names_the_engine_that_has_it(target: Target) -> None:
    with pytest.raises(UsageError) as refused:
        Job(EXPERIMENT, target, LlamaConfig(), replace(SpeculateSettings(), spec_type="ngram-simple"))
    assert "--engine llama-server" in (refused.value.hint or "")
