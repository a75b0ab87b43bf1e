"""Drafts of a server, measured by its answers with and without them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.commands.measure_options import run_by
from ggbench.engines.events import Continued
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.speculate.answers import TEXTS, answered_texts
from ggbench.experiments.speculate.measure import EXPERIMENT
from ggbench.experiments.speculate.record import AnsweredText, SpeculateResult, SpeculateSettings
from ggbench.experiments.speculate.show import PRESENTER, drafting_line
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import run_context
from ggbench.stats.intervals import Estimate
from tests.fakes.llama_server import install


def _answer(is_drafted: bool, number: int, ns: int) -> AnsweredText:
    drafts = (6, 4) if is_drafted else ()
    return AnsweredText("prose", number, 3, is_drafted, Continued(11, ns, *drafts))


def test_the_gain_is_that_of_the_rounds_and_its_interval_covers_their_spread() -> None:
    answers = [_answer(False, 0, 200), _answer(True, 0, 100), _answer(True, 1, 100), _answer(False, 1, 180)]
    (found,) = answered_texts(answers)
    assert found.gain.value == pytest.approx((2.0 * 1.8) ** 0.5)
    assert found.gain.low < 1.8 < 2.0 < found.gain.high
    assert found.accepted_share == 4 / 6
    assert found.mean_len == pytest.approx(10 / 6)  # 10 tokens after the first, of which 4 were drafted
    assert not [*answered_texts(answers[:3])], "one round has no interval"


@pytest.fixture
def trained(target: Target) -> Target:
    return replace(target, provenance="file")


def _run(folder: Path, target: Target, settings: SpeculateSettings, *, has_draft: bool = True) -> Finished:
    setup = run_by(f"llama-server={install(folder)}", LlamaConfig(threads=1))
    job = Job(EXPERIMENT, target, setup, settings, draft=target if has_draft else None)
    *_, end = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(end, Finished)
    return end


def test_a_server_answers_in_turns_and_twice_as_fast_with_drafts(trained: Target, tmp_path: Path) -> None:
    within_s = 2.45  # for 20 tokens of 5 ms, of four texts in three rounds of two
    run = _run(tmp_path, trained, SpeculateSettings((5,), within_s=within_s)).run
    assert isinstance(run.result, SpeculateResult), run.reason
    assert [(each.name, each.n_tokens) for each in run.result.texts] == [(name, 20) for name in TEXTS]
    assert {(round(each.gain.value, 6), each.k) for each in run.result.texts} == {(2.0, 5)}
    assert run.result.pair.spec_type == "draft-simple" and run.result.pair.draft is not None
    assert PRESENTER.short_answer(run).startswith("2.")
    assert PRESENTER.answer(run).startswith("Drafts pay on prose (2")
    line = drafting_line(run, run.result)
    assert f"-md {trained.path} --spec-type draft-simple" in line and "--spec-draft-n-max 5" in line
    slower = [replace(each, gain=Estimate(0.5, 0.4, 0.6)) for each in run.result.texts]
    assert drafting_line(run, replace(run.result, texts=tuple(slower))) == ""


@pytest.mark.parametrize("settings", [SpeculateSettings((3,)), SpeculateSettings(spec_type="ngram-simple")])
def test_a_twin_is_refused_before_any_server_starts(
    target: Target, tmp_path: Path, settings: SpeculateSettings
) -> None:
    end = _run(tmp_path, target, settings, has_draft=not settings.spec_type)
    assert isinstance(end.error, Unsupported)
    assert "random text" in end.error.message and "omit --engine" in end.error.hint and end.run.run_id is None


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
