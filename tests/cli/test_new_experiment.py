"""The design's own test: an experiment, its presenter and its command, all in this file, need no other line changed."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import ClassVar

import click
import msgspec
import pytest
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from ggbench.cli import main as cli_main
from ggbench.commands.measuring import make_jobs, measure
from ggbench.commands.options import Asked, measuring_options
from ggbench.commands.run_output import show_measured
from ggbench.engines.endings import Completed, Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.workloads import BatchedDecode
from ggbench.machine.records import MachineReading
from ggbench.models.command_line import named, reproduce
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from ggbench.plugins import plugin_names
from ggbench.runs import experiment as experiments
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.progress import Point, Progress
from ggbench.runs.recording import Recording
from ggbench.runs.run import Result, Run, Settings
from ggbench.runs.session import Session
from ggbench.show import presenter as presenters
from ggbench.show.document import Shape, of
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments, run_documents, subject
from ggbench.stats.decode_timing import Bandwidth
from tests.cli.conftest import FakeMachine
from tests.cli.conftest import Run as Command
from tests.fakes.jobs import FakeServices
from tests.fakes.parts import install
from tests.fakes.watched import watched_runs


class BatchSettings(Settings, msgspec.Struct, frozen=True):
    batches: tuple[int, ...] = (1, 4)
    n_gen: int = 100


class BatchSpeed(msgspec.Struct, frozen=True):
    n_seqs: int
    tok_s: float


class BatchResult(Result, msgspec.Struct, frozen=True):
    speeds: tuple[BatchSpeed, ...]


class BatchExperiment(Experiment):
    kind: ClassVar[str] = "batches"
    settings_type = BatchSettings
    result_type = BatchResult
    observed = (BatchSpeed,)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        settings = session.settings(BatchSettings)
        assert isinstance(session.setup, LlamaConfig)
        yield from session.prepare()
        ending = yield from session.open(replace(session.setup, n_ctx=4096, n_seq_max=max(settings.batches)))
        for n_seqs in settings.batches:
            if not isinstance(ending, Completed):
                break
            series = f"batches/p25/b{n_seqs}/r0"
            ending = yield from session.run(BatchedDecode(25, settings.n_gen, n_seqs), series, n_total=200)
            step_ns = session.recorder.recording.series[series].step_ns
            speed = BatchSpeed(n_seqs, n_seqs * len(step_ns) * 1e9 / sum(step_ns))
            session.recorder.observe(speed)
            yield Point(f"batch {n_seqs}: {speed.tok_s:.0f} tok/s", speed)
        return ending

    def reduce(self, recording: Recording) -> BatchResult:
        return BatchResult(recording.of(BatchSpeed))

    def command(self, job: Job, bandwidth: Bandwidth | None = None) -> str:
        return reproduce("batches", named(job.target), job.setup, {})


class BatchPresenter(Presenter):
    kind: ClassVar[str] = "batches"
    title: ClassVar[str] = "batches"
    documents: ClassVar[RunDocuments] = run_documents(
        "batches",
        Shape(
            "Batches",
            "Speed by batch size.",
            subject("quant"),
            of(BatchResult, "speeds", lambda run: run.result),
            of(Run, "outcome"),
        ),
    )

    def answer(self, run: Run) -> str:
        assert isinstance(run.result, BatchResult)
        return f"{run.result.speeds[-1].tok_s:.0f} tok/s in batches of {run.result.speeds[-1].n_seqs}"

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        return Text(f"{self.ending(run)}\nAgain: {run.head.command}")

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return Text("\n".join(map(self.ending, runs)))


@click.command()
@measuring_options()
def command(asked: Asked) -> None:
    measured = measure(make_jobs(experiments.experiment_of("batches"), BatchSettings(), asked), asked)
    show_measured(measured)
    measured.leave()


@pytest.fixture(autouse=True)
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules where they would be written, found by their names, and a line in the index of commands."""
    install(monkeypatch, "ggbench.experiments.batches.measure", EXPERIMENT=BatchExperiment())
    install(monkeypatch, "ggbench.experiments.batches.show", PRESENTER=BatchPresenter())
    install(monkeypatch, "ggbench.cli.batches", command=command)
    monkeypatch.setitem(cli_main.COMMANDS, "batches", "Time batches.")
    kinds = (*plugin_names("ggbench.experiments"), "batches")
    monkeypatch.setattr("ggbench.show.presenter.plugin_names", lambda _: kinds)


def test_a_new_experiment_runs_from_its_command_to_its_results(
    ggbench: Command, machine: FakeMachine, tiny_twin: Path
) -> None:
    ran = ggbench("batches", tiny_twin)
    assert ran.code == 0
    assert "tok/s in batches of 4" in ran.out
    assert "batch 4: " in ran.err
    listed = ggbench("results", "--json").json["rows"]
    assert [(row["kind"], row["state"], row["n_samples"]) for row in listed] == [("batches", "completed", 200)]
    assert "in batches of 4" in ggbench("results").out
    shown = ggbench("results", "show", listed[0]["run_id"])
    assert "tok/s in batches of 4" in shown.out
    assert f"Again: ggbench batches {tiny_twin.absolute()}" in shown.out
    document = ggbench("results", "show", listed[0]["run_id"], "--json").json
    assert document["schema"] == "ggbench.results.batches/1"
    assert [speed["n_seqs"] for speed in document["speeds"]] == [1, 4]
    assert ggbench("batches", tiny_twin, "--json").json["schema"] == "ggbench.batches/1"


def test_a_new_experiment_waits_in_the_queue_of_the_tui(tiny_twin: Path, tmp_path: Path) -> None:
    job = Job(
        experiments.experiment_of("batches"), resolve_one(parse_model(str(tiny_twin))), LlamaConfig(), BatchSettings()
    )
    services = FakeServices(tmp_path)
    with watched_runs(services) as watched:
        watched.queue.add([job])
        watched.wait(lambda queue: not queue.is_busy)
        (item,) = watched.queue.items
        (sampled,) = watched.queue.plotted
    assert item.run is not None
    assert item.run.outcome is Outcome.COMPLETED
    assert presenters.presenter_of(item.kind).ending(item.run).endswith("in batches of 4")
    assert sampled.n_done == 200
