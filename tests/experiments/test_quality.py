"""Quality runs over fake workers: what is asked of them, recorded, reduced, and read again."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Score
from ggbench.engines.endings import Ending, Outcome, OutOfMemory
from ggbench.engines.llama.config import LlamaConfig, MakeContext
from ggbench.experiments.quality import base_rows, scoring
from ggbench.experiments.quality.measure import EXPERIMENT
from ggbench.experiments.quality.record import QualityResult, QualitySettings
from ggbench.experiments.quality.texts import find_text
from ggbench.machine.host import Ram
from ggbench.machine.records import Imported
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.paths import logits_dir
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished, Progress, Working
from ggbench.runs.run import Run
from ggbench.runs.session import Base
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from tests.fakes.engine import Answer, FakeWorker, fake_rig
from tests.fakes.scores import scores, without_mark

N_CTX = 32
N_SCORED = 15
"""Scored tokens of each chunk: positions 16 to 30."""


@pytest.fixture
def trained(tmp_path: Path, tiny_twin: Path) -> Target:
    """The tiny twin without the mark of a twin, so that it passes for a trained model."""
    target = resolve_one(parse_model(str(without_mark(tiny_twin, tmp_path / "tiny-q8_0.gguf"))))
    assert target.provenance == "file"
    return target


@pytest.fixture
def settings(tmp_path: Path) -> QualitySettings:
    path = tmp_path / "prose.txt"
    path.write_text("some prose")
    return QualitySettings(find_text(path)[0], n_ctx=N_CTX, n_seqs=2)


def _run(
    target: Target,
    settings: QualitySettings,
    answers: list[Answer],
    store: Store | None = None,
    base: Base | None = None,
) -> tuple[Run, list[Progress], list[FakeWorker]]:
    rig, workers = fake_rig(store, dict(enumerate(answers)))
    progress = list(run_job(rig, Job(EXPERIMENT, target, LlamaConfig(), settings, base)))
    end = progress[-1]
    assert isinstance(end, Finished)
    return end.run, progress, workers


def _result(run: Run) -> QualityResult:
    assert isinstance(run.result, QualityResult)
    return run.result


def _requests(worker: FakeWorker) -> list[Score]:
    return [request for request in worker.requests if isinstance(request, Score)]


def _dies(request: Request) -> Iterator[protocol.Message | Ending]:
    """Answer until the fifth chunk, at which the worker dies."""
    if isinstance(request, Score) and request.chunks[0][0] == 4 * N_CTX:
        yield OutOfMemory("score", "killed")
    else:
        yield from scores()(request)


def test_every_chunk_is_scored_in_its_second_half(trained: Target, settings: QualitySettings) -> None:
    run, progress, (worker,) = _run(trained, settings, [scores()])
    found = _result(run)
    assert (run.outcome, found.n_chunks, found.n_scored) == (Outcome.COMPLETED, 10, 10 * N_SCORED)
    assert found.ppl is not None
    assert found.ppl.mean == pytest.approx(math.exp(2))
    assert found.chunk_nll == pytest.approx([2.0] * 10)
    assert found.divergence is None
    assert run.head.environment is not None
    disturbed = replace(run.head.environment, changes=("other programs used 80 % of the CPU",))
    assert replace(run, head=replace(run.head, environment=disturbed)).unsteady == ""  # scores do not depend on time
    scored = [request for request in _requests(worker) if request.targets[0]]
    assert [len(request.chunks) for request in scored] == [2] * 5
    assert scored[1].chunks[0] == tuple(range(2 * N_CTX, 3 * N_CTX))
    assert scored[1].targets[0] == tuple(range(2 * N_CTX + 17, 3 * N_CTX))
    assert [each.done for each in progress if isinstance(each, Working) and each.stage == "score"] == [
        0, 2, 4, 6, 8, 10,
    ]  # fmt: skip


def test_bos_takes_the_place_of_a_chunks_first_token(trained: Target, settings: QualitySettings) -> None:
    """llama-perplexity does so for every chunk; the targets stay."""
    _, _, (without,) = _run(trained, settings, [scores()])
    _, _, (worker,) = _run(trained, settings, [scores(bos=7)])
    asked = _requests(worker)
    assert {chunk[0] for request in asked for chunk in request.chunks} == {7}
    for ours, theirs in zip(asked, _requests(without), strict=True):
        assert [chunk[1:] for chunk in ours.chunks] == [chunk[1:] for chunk in theirs.chunks]
        assert ours.targets == theirs.targets


def test_a_text_shorter_than_two_chunks_is_refused(trained: Target, settings: QualitySettings) -> None:
    """llama-perplexity refuses it too."""
    run, _, (worker,) = _run(trained, settings, [scores(n_tokens=2 * N_CTX - 1)])
    assert "63 tokens, but two chunks of 32" in run.reason
    assert not _requests(worker)


def test_a_base_is_computed_right_before_the_model(trained: Target, settings: QualitySettings) -> None:
    run, _, (model, base) = _run(trained, settings, [scores(2.0), scores(1.5)], base=Base(trained))
    found = _result(run)
    assert found.divergence is not None
    assert found.divergence.kld.mean == pytest.approx(0.25)
    assert found.divergence.base_ppl.mean == pytest.approx(math.exp(1.5))
    assert found.divergence.same_top.mean == pytest.approx((10 * N_SCORED - 5) / (10 * N_SCORED))
    assert found.base is not None
    assert found.base.subject.quant == "q8_0"
    asked, written = _requests(model), _requests(base)
    assert [(each.start, each.chunks) for each in asked] == [(each.start, each.chunks) for each in written]
    assert all(each.rows is not None and each.rows.writes for each in written)
    assert all(each.rows is not None and not each.rows.writes for each in asked)
    assert model.closed and base.closed


def test_a_base_that_does_not_fit_beside_the_model_goes_first(
    trained: Target, settings: QualitySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(scoring, "describe_ram", lambda: Ram(1 << 30, 1))
    run, progress, (worker,) = _run(trained, settings, [scores()], base=Base(trained))
    found = _result(run)
    assert found.divergence is not None
    assert "q8_0 is scored first, into a file of" in str(progress)
    asked = _requests(worker)
    assert [each.rows.writes for each in asked if each.rows is not None] == [True] * 10 + [False] * 10
    assert sum(isinstance(request, MakeContext) for request in worker.requests) == 3
    (kept,) = logits_dir().iterdir()
    again, _, (worker,) = _run(trained, settings, [scores()], base=Base(trained))
    assert _result(again).divergence == found.divergence
    assert not any(each.rows.writes for each in _requests(worker) if each.rows is not None)
    other, _, _ = _run(trained, replace(settings, n_chunks=4), [scores()], base=Base(trained))
    assert other.outcome is Outcome.COMPLETED
    assert [path != kept for path in logits_dir().iterdir()] == [True]
    failed, _, _ = _run(trained, replace(settings, n_chunks=6), [_dies], base=Base(trained))
    assert failed.outcome is Outcome.OUT_OF_MEMORY and not list(logits_dir().iterdir())


def test_logits_in_use_are_left_to_the_process_that_uses_them(
    trained: Target, settings: QualitySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(scoring, "describe_ram", lambda: Ram(1 << 30, 1))
    with contextlib.ExitStack() as other:
        base_rows._lock_cache(other)
        run, _, _ = _run(trained, settings, [scores()], base=Base(trained))
        assert "another ggbench" in run.reason and not list(logits_dir().iterdir())
    run, _, _ = _run(trained, settings, [scores()], base=Base(trained))
    assert run.outcome is Outcome.COMPLETED


def test_a_twin_has_no_quality(tiny_twin: Path, settings: QualitySettings) -> None:
    run, _, workers = _run(resolve_one(parse_model(str(tiny_twin))), settings, [scores()])
    assert run.outcome is Outcome.FAILED
    assert "twin" in run.reason
    assert not workers


def test_a_model_without_a_tokenizer_is_refused(tiny_twin: Path, settings: QualitySettings, tmp_path: Path) -> None:
    path = tmp_path / "tiny-q8_0.gguf"
    path.write_bytes(tiny_twin.read_bytes().replace(b"ggbench.twin", b"ggbench.none"))
    run, _, workers = _run(resolve_one(parse_model(str(path))), settings, [scores()])
    assert run.outcome is Outcome.FAILED
    assert "tiny-q8_0 has no tokenizer" in run.reason
    assert not workers


def test_a_worker_that_dies_leaves_the_chunks_before(
    trained: Target, settings: QualitySettings, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "results.sqlite") as store:
        run, _, _ = _run(trained, settings, [_dies], store)
        assert (run.outcome, _result(run).n_chunks) == (Outcome.OUT_OF_MEMORY, 4)
        assert run.run_id is not None
        stored = replace(store.load_run(run.run_id), result_json=None)
        assert read_run(store, stored).result == run.result


def test_a_run_goes_on_where_an_earlier_one_stopped(trained: Target, settings: QualitySettings, tmp_path: Path) -> None:
    with Store.open(tmp_path / "results.sqlite") as store:
        stopped, _, _ = _run(trained, settings, [_dies], store)
        rig, workers = fake_rig(store, {0: scores()})
        other = list(run_job(rig, Job(EXPERIMENT, trained, LlamaConfig(type_k="q8_0"), settings)))
        assert _requests(workers[0])[0].chunks[0][0] == 0
        assert isinstance(other[-1], Finished)
        run, progress, (worker,) = _run(trained, settings, [scores()], store)
        assert f"continues run {stopped.run_id}, which has scored 4 chunks" in str(progress)
        assert _requests(worker)[0].chunks[0][0] == 4 * N_CTX
        assert (_result(run).n_chunks, _result(run).n_scored) == (10, 10 * N_SCORED)
        _, _, (again,) = _run(trained, settings, [scores()], store)
        assert _requests(again)[0].chunks[0][0] == 0


def test_a_run_does_not_go_on_where_another_machine_stopped(
    trained: Target, settings: QualitySettings, tmp_path: Path
) -> None:
    imported = Imported(tool="ggbench", file="x.zip", file_sha256="1", content_sha256="2")
    with Store.open(tmp_path / "results.sqlite") as store:
        stopped, _, _ = _run(trained, settings, [_dies], store)
        assert stopped.run_id is not None
        assert stopped.head.environment is not None
        environment = replace(stopped.head.environment, imported=imported)
        store.finish(stopped.run_id, replace(stopped, head=replace(stopped.head, environment=environment)))
        _, _, (worker,) = _run(trained, settings, [scores()], store)

    assert _requests(worker)[0].chunks[0][0] == 0
