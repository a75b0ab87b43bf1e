"""Speculative decoding over fake workers whose steps take what the layers of each model cost."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Speculate
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Speculated, SpeculativeStep, TextDrafted
from ggbench.engines.llama.config import LlamaConfig, LoadModel
from ggbench.errors import GgbenchError, Unsupported, UsageError
from ggbench.experiments.speculate.measure import EXPERIMENT
from ggbench.experiments.speculate.record import N_DRAFTED, SpeculateResult, SpeculateSettings, SpeculationRound
from ggbench.experiments.speculate.show import PRESENTER
from ggbench.experiments.speculate.steps import measured_steps
from ggbench.experiments.speculate.texts import TEXTS, answered_texts, answers_of
from ggbench.experiments.speculate.verdict import drafting_line, is_undecided, verdict
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import twin_of
from ggbench.machine.host import Cpu
from ggbench.models.targets import Target
from ggbench.paths import forecasts_dir
from ggbench.runs import layer_twins
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished, PointMeasured
from ggbench.runs.run import Run
from ggbench.sizing import layer_sample
from ggbench.sizing.layer_sample import StepCost, step_cost
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import StepParts, StepTimes
from tests.fakes.engine import Answer, FakeWorker, fake_rig, obey

BASE_NS, NS_PER_BYTE, TOKEN_NS, DRAFT_NS, HOST_NS = 2e6, 0.05, 1e5, 3e5, 1e5


class _Costly:
    """Workers whose steps take a part that is the same for all, and one in proportion to the layers they loaded."""

    def __init__(self, draft_ns: float = DRAFT_NS) -> None:
        self._draft_ns = draft_ns

    def worker(self) -> Answer:
        layer_bytes, has_draft = 0.0, False

        def answer(request: Request) -> Iterator[protocol.Message | Ending]:
            nonlocal layer_bytes, has_draft
            if isinstance(request, LoadModel) and not request.dry:
                has_draft = bool(request.draft)
                file = read_model_file(Path(request.path))
                layer_bytes = step_cost(file, range(file.n_layer)).layer_bytes
            if isinstance(request, Speculate):
                single = round(BASE_NS + NS_PER_BYTE * layer_bytes)
                drafted = round(self._draft_ns) if has_draft else 0
                parts = [(k, k * drafted, round(single + k * TOKEN_NS), drafted) for k in request.n_drafted]
                steps = [SpeculativeStep(*part, round(sum(part[1:]) + HOST_NS)) for part in parts]
                yield from (Speculated([single] * request.n_single, 0, steps) for _ in range(request.n_passes))
                yield Completed()
            else:
                yield from obey(request)

        return answer


SETTINGS = SpeculateSettings((1, 3), (0, 64))


def _run(
    target: Target, draft: Target, costs: _Costly, settings: SpeculateSettings = SETTINGS
) -> tuple[Run, list[FakeWorker], list[str]]:
    rig, workers = fake_rig(None, {number: costs.worker() for number in range(9)})
    *said, end = run_job(rig, Job(EXPERIMENT, target, LlamaConfig(), settings, draft=draft))
    assert isinstance(end, Finished)
    return end.run, workers, [each.text for each in said if isinstance(each, PointMeasured)]


def _result(run: Run) -> SpeculateResult:
    assert isinstance(run.result, SpeculateResult), run.reason
    return run.result


def _layers_ns(file: Path) -> float:
    model = read_model_file(file)
    return NS_PER_BYTE * step_cost(model, range(model.n_layer)).layer_bytes


def test_files_that_are_here_are_measured_themselves(target: Target, tiny_twin: Path) -> None:
    run, _, said = _run(target, target, _Costly())
    found, single_ms = _result(run), (BASE_NS + _layers_ns(tiny_twin)) / 1e6
    assert run.is_complete and said[0].startswith("takes about ")
    assert [(each.n_depth, each.k) for each in found.cases] == [(0, 1), (0, 3), (64, 1), (64, 3)]
    times = found.cases[1].step.times
    parts = times.parts
    assert parts is not None
    assert (times.t1_ms, parts.verify_ms) == pytest.approx((single_ms, single_ms + 0.3), abs=1e-5)
    assert (parts.draft_ms, parts.reread_ms, parts.host_ms) == pytest.approx((0.3, 0.3, 0.1))
    length = (single_ms + 0.3 + 4 * 0.3 + 0.1) / single_ms
    assert found.cases[1].step.break_even.value == pytest.approx(length, rel=1e-5)
    assert found.cases[1].step.speedup(3).value == pytest.approx(3 / length, rel=1e-5)
    assert found.memory is not None and found.memory.draft_weight_bytes == read_model_file(tiny_twin).weight_bytes
    assert "--spec-draft-n-max 3" in drafting_line(run, found) and f"-md {tiny_twin}" in drafting_line(run, found)


@pytest.fixture
def absent(target: Target, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A model of 16 layers of which only the header is here."""
    monkeypatch.setattr(layer_sample, "WHOLE_BYTES", 0)
    monkeypatch.setattr(layer_sample, "LARGER_BYTES", 0)
    monkeypatch.setattr(layer_twins, "describe_cpu", lambda: Cpu("test", 1, 1, None))
    file = twin_of(read_model_file(target.path or Path()), "large", [0, 1] * 8)
    return replace(target, model="large", provenance="twin", path=None, file=file)


def test_a_large_model_that_is_not_here_follows_from_twins_of_some_layers(absent: Target, target: Target) -> None:
    run, workers, said = _run(absent, target, _Costly())
    found, header = _result(run), absent.header()
    single_ms = (BASE_NS + NS_PER_BYTE * step_cost(header, range(16)).layer_bytes) / 1e6
    assert found.pair.basis == "twins of 2 and 6 of 16 layers" and "of disk" in said[0]
    (_, case, *_) = found.cases
    assert case.step.times.t1_ms == pytest.approx(single_ms, rel=1e-4)
    parts = case.step.times.parts
    assert parts is not None
    assert (parts.verify_ms, parts.draft_ms) == pytest.approx((single_ms + 0.3, 0.3), rel=1e-4)
    even = case.step.break_even
    assert (even.high / even.value, even.value / even.low) == pytest.approx((1.128, 1.128), rel=1e-3), (
        "no spread, but the errors of the server and of the model"
    )
    loads = [request for worker in workers for request in worker.requests if isinstance(request, LoadModel)]
    assert sum(not each.dry for each in loads) == 2
    assert list(forecasts_dir().iterdir()) == [] and all(worker.closed for worker in workers)


def test_where_it_hurts_is_said_first(target: Target, tiny_twin: Path) -> None:
    """A draft as slow as its model can never pay."""
    run, _, _ = _run(target, target, _Costly(BASE_NS + _layers_ns(tiny_twin)))
    found = _result(run)
    assert verdict(found).startswith("Drafts do not pay: 0.7")
    assert PRESENTER.short_answer(run).startswith("break-even ")
    assert drafting_line(run, found) == ""
    even = Estimate(5.0, 3.0, 8.0)
    wide = [replace(each, step=replace(each.step, break_even=even)) for each in found.cases]
    assert verdict(replace(found, cases=tuple(wide))).startswith("Undecided: ")
    gains, _, _ = _run(target, target, _Costly())
    assert verdict(_result(gains)).startswith("Drafts pay above 1.")


def test_steps_that_may_be_anything_decide_nothing(target: Target) -> None:
    run, _, _ = _run(target, target, _Costly())
    found = _result(run)
    cases = [replace(each, step=replace(each.step, break_even=Estimate(1.5, 1e-5, 26907.5))) for each in found.cases]
    of_noise = replace(found, cases=tuple(cases))
    assert verdict(of_noise).startswith("Undecided, about 1.5 tokens a step with ")
    assert "At most" not in verdict(of_noise)
    assert is_undecided(cases[0].step.best_speedup, cases[0].k)


def test_rounds_in_which_the_smaller_twin_took_as_long_are_dropped() -> None:
    layers = tuple(StepCost(n, n * 100, n * 100, 0, 0) for n in (2, 6, 16))
    smaller, larger = (StepTimes.of_parts(3, t1_ms, StepParts(t1_ms + 1, 0.3, 0.3, 0.1, 0.0)) for t1_ms in (2.0, 4.0))
    rounds = [SpeculationRound(n, 0, (times,), twin) for n in range(3) for twin, times in enumerate((smaller, larger))]
    rounds[5] = SpeculationRound(2, 0, (replace(smaller, t1_ms=1.9),), 1)
    ((_, step),) = measured_steps(rounds, layers)
    assert step.times.t1_ms == pytest.approx(4 + 2.5 * 2)
    assert not [*measured_steps(rounds[2:], layers)], "one round is left"


def test_the_page_is_readable_at_80_columns(target: Target) -> None:
    run, _, _ = _run(target, target, _Costly(), SpeculateSettings())
    drafted = TextDrafted(192, 80_000_000, 100_000_000, [3, 0, 2, 1] * 48, 2)
    answers = [each for name in TEXTS for n in range(3) for each in answers_of(name, n, 3, drafted)]
    run = replace(run, result=replace(_result(run), texts=tuple(answered_texts(answers))))
    answer, pages = PRESENTER.details(run), []
    for why in (False, True):
        console = Console(width=80, file=io.StringIO())
        console.print(answer.rich(why=why))
        assert isinstance(console.file, io.StringIO)
        pages.append(console.file.getvalue().splitlines())
    front, lines = pages
    assert len(front) <= 20 and front[1].startswith("llama-server -m ")
    assert max(map(len, lines[2:])) <= 80 and not any("…" in line for line in lines)
    rows = [line.split()[:2] for line in lines if line[:5].strip() == "0"]
    assert rows == [["0", str(k)] for k in N_DRAFTED]


def test_a_short_time_limit_keeps_three_rounds(target: Target) -> None:
    settings = replace(SETTINGS, within_s=0.0)
    rig, _ = fake_rig(None, {number: _Costly().worker() for number in range(9)})
    job = Job(EXPERIMENT, target, LlamaConfig(), settings, draft=target)
    rounds = [each.observation for each in run_job(rig, job) if isinstance(each, PointMeasured)]
    assert {each.round for each in rounds if isinstance(each, SpeculationRound)} == {0, 1, 2}


def test_unsuitable_pairs_are_refused_before_anything_is_loaded(target: Target) -> None:
    header = target.header()
    small = replace(header, tensors=header.tensors[:2])
    cases: list[tuple[ModelFile, ModelFile, type[GgbenchError], str]] = [
        (header, replace(header, n_vocab=(header.n_vocab or 0) + 200), UsageError, "vocabularies"),
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
    trained = replace(target, file=replace(target.header(), n_ctx_train=65))
    assert _result(_run(trained, target, _Costly())[0]).depths == (0,)


def test_a_text_says_what_was_accepted_and_what_that_gained(target: Target) -> None:
    """Steps of 3, 0, 2 and 1 accepted tokens: 10 tokens in 4 steps; 100 ms against 80 ms for 8 without a draft."""
    drafted = TextDrafted(8, 80_000_000, 100_000_000, [3, 0, 2, 1], 2)
    places = [*(("prose", number) for number in range(3)), ("code", 0)]
    (found,) = answered_texts([each for place in places for each in answers_of(*place, 3, drafted)])
    assert (found.name, found.n_tokens, found.mean_len, found.accepted_share) == ("prose", 9, 2.5, 0.5)
    assert (found.plain_tok_s, found.drafted_tok_s, found.gain.value) == pytest.approx((100, 100, 1))
    assert found.difference == "from token 4 of 9 on", "the first comes with the prompt"
    result = replace(_result(_run(target, target, _Costly())[0]), texts=(replace(found, gain=Estimate(0.5, 0.4, 0.6)),))
    assert verdict(result).startswith("Drafts slow down prose (0.50 ±0.10 times).")
    run, _, _ = _run(target, target, _Costly())
    assert drafting_line(run, _result(run)) and drafting_line(run, result) == "", "measured to be slower"
