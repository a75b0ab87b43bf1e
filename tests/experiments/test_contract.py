"""What every experiment keeps: its settings are checked, a run is read back as it was, and a killed run is readable."""

import contextlib
import io
import json
import pkgutil
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from msgspec.structs import replace
from rich.console import Console

from ggbench import experiments
from ggbench.cli.main import cli
from ggbench.commands.run_output import nearest_parts
from ggbench.engines.endings import Outcome
from ggbench.engines.http.endpoint import EndpointConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError, UsageError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.forecast.record import ForecastSettings
from ggbench.experiments.prefill.record import PrefillSettings
from ggbench.experiments.quality.record import QualitySettings
from ggbench.experiments.quality.texts import find_text
from ggbench.experiments.session.record import SessionSettings
from ggbench.experiments.speculate.record import SpeculateSettings
from ggbench.experiments.speed.record import SpeedSettings
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.gguf_file.header import read_model_file
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.runs.driver import run_job, run_of
from ggbench.runs.experiment import Concluded, Job, experiment_of
from ggbench.runs.progress import Finished, PointMeasured, Progress, SamplesTimed
from ggbench.runs.run import Run, Settings
from ggbench.runs.session import Base, RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run, read_recording, read_run
from ggbench.show.answer import Answer
from ggbench.show.listed_runs import SavedRun, saved_figures
from ggbench.show.presenter import charts_of, metrics_of, presenter_of
from tests.fakes.engine import fake_rig
from tests.fakes.planted import PlantedMachine
from tests.fakes.scores import scores, without_mark
from tests.fakes.small_machine import SmallMachine, limited

KINDS = sorted(each.name for each in pkgutil.iter_modules(experiments.__path__) if each.ispkg)
SETTINGS: dict[str, Settings] = {
    "decode": DecodeSettings(1000, repeat=2), "forecast": ForecastSettings(),
    "prefill": PrefillSettings((512, 25, 1), 1), "session": SessionSettings("chat", 4),
    "speculate": SpeculateSettings((1, 3), (0, 64)),
    "speed": SpeedSettings((1, 512), 8, (1, 4)),
}  # fmt: skip
Make = Callable[[str, Store], contextlib.AbstractContextManager[tuple[RunContext, Job]]]


@pytest.fixture
def make(target: Target, tmp_path: Path) -> Make:
    """A small job of each kind and a machine to run it on."""

    @contextlib.contextmanager
    def prepare(kind: str, store: Store) -> Iterator[tuple[RunContext, Job]]:
        experiment = experiment_of(kind)
        match kind:
            case "maxctx":
                kv_bytes = read_model_file(target.path or Path()).kv_bytes_per_token()
                job = Job(experiment, target, limited(), experiment.settings_type())
                yield SmallMachine(kv_bytes, 16384, decode_edge=15000).rig(store), job
            case "quality":
                text = tmp_path / "prose.txt"
                text.write_text("some prose")
                trained = resolve_one(parse_model(str(without_mark(target.path or Path(), tmp_path / "m-q8_0.gguf"))))
                scored = QualitySettings(find_text(text)[0], n_ctx=32, n_seqs=2)
                job = Job(experiment, trained, LlamaConfig(), scored, Base(trained, "q8_0", "q8_0"))
                yield fake_rig(store, dict.fromkeys(range(8), scores()))[0], job
            case "speculate":
                yield fake_rig(store)[0], Job(experiment, target, LlamaConfig(), SETTINGS[kind], draft=target)
            case "tune":
                machine = PlantedMachine(7, effects={("threads", 1): 1.7}, noise=0.005)
                with machine.clocked():
                    yield machine.rig(store), Job(experiment, target, LlamaConfig(), experiment.settings_type())
            case _:
                yield fake_rig(store)[0], Job(experiment, target, LlamaConfig(), SETTINGS[kind])

    return prepare


def finished(progress: Iterator[Progress]) -> Run:
    *_, end = progress
    assert isinstance(end, Finished) and end.error is None, end
    return end.run


def printed(shown: object) -> str:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(shown)
    return console.export_text()


def check_shown(run: Run) -> None:
    """Every view of a run can be made, whatever it came to."""
    show = presenter_of(run.head.kind)
    assert printed(show.details(run)).strip()
    assert printed(show.table([run])).strip()
    assert json.loads(show.documents.one.text(show.documents.value(run)))["quant"] == run.subject.quant
    ending = show.ending(run)
    assert ending and ending.isprintable() and "\n" not in ending
    assert show.short_answer(run).isprintable()
    printed(Answer("", "", nearest_parts([run])))


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_cannot_measure_is_refused(kind: str, make: Make, store: Store) -> None:
    with make(kind, store) as (_, job):
        experiment, settings = job.experiment, job.settings
    for config in (EndpointConfig(), TransformersConfig()):
        if any(map(config.unsupported, experiment.needs)):
            with pytest.raises(UsageError, match=f"{config.program} cannot"):
                experiment.check(config, settings)
    if settings.n_ctx_needed is not None:
        with pytest.raises(UsageError, match="n_ctx"):
            experiment.check(LlamaConfig(n_ctx=settings.n_ctx_needed - 1), settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_read_back_as_it_was(kind: str, make: Make, store: Store) -> None:
    with make(kind, store) as (machine, job):
        live = finished(run_job(machine, job))
    assert live.is_complete and live.run_id is not None
    stored = store.load_run(live.run_id)
    again = run_of(job.experiment, read_recording(store, stored), Concluded(live.outcome, live.reason))
    assert (again.result, again.memory, again.gpu_use) == (live.result, live.memory, live.gpu_use)
    whole = read_run(store, stored)
    assert whole.head.started_at and whole.finished_at
    assert replace(whole, head=replace(whole.head, started_at=""), finished_at=None) == live
    assert whole == listed_run(store.list_runs()[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_shown_drawn_and_compared(kind: str, make: Make, store: Store) -> None:
    with make(kind, store) as (machine, job):
        runs = [finished(run_job(machine, job)) for _ in range(2)]
    check_shown(runs[0])
    summaries = list(runs)
    saved = [SavedRun.load(store, each.run_id or 0) for each in summaries]
    assert metrics_of([kind], summaries)
    assert all(figure.curves for figure in saved_figures(saved))
    assert presenter_of(kind).has_figures or not saved_figures(saved)
    charts_of([kind], summaries, ["a", "b"])


@pytest.mark.parametrize("kind", KINDS)
def test_its_command_measures_the_same_again(kind: str, make: Make, store: Store) -> None:
    with make(kind, store) as (_, job):
        program, name, *words = shlex.split(job.experiment.command(job))
    found = cli.get_command(click.Context(cli), name)
    assert program == "ggbench" and found is not None
    found.make_context(name, words)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_is_readable(kind: str, make: Make, tmp_path: Path) -> None:
    """A process that ends in mid-run closes nothing; the next to open the store marks the run."""
    path = tmp_path / "killed.sqlite"
    killed = Store.open(path)
    with make(kind, killed) as (machine, job), contextlib.closing(run_job(machine, job)) as progress:
        next(each for each in progress if isinstance(each, SamplesTimed | PointMeasured) and killed.list_runs())
    killed.close()
    with Store.open(path) as store:
        (stored,) = store.list_runs()
        run = read_run(store, stored)
    assert (run.outcome, run.reason) == (Outcome.INTERRUPTED, "ggbench exited before the run ended")
    assert run.finished_at is None and run.head.environment is not None
    check_shown(run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_another_version_is_said_to_be_one(kind: str, make: Make, store: Store) -> None:
    """What cannot be read of a run costs what depends on it, and no other run."""
    with make(kind, store) as (machine, job):
        live = finished(run_job(machine, job))
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as raw:
        for column, broken in (("settings", "[]"), ("engine", "nonesuch")):
            whole = raw.execute(f"SELECT {column} FROM runs").fetchone()
            raw.execute(f"UPDATE runs SET {column} = ?", (broken,))
            with pytest.raises(StoreError) as error:
                listed_run(store.list_runs()[0])
            assert "upgrade ggbench" in error.value.hint
            raw.execute(f"UPDATE runs SET {column} = ?", whole)
        raw.execute("UPDATE runs SET result = '[]'")
    (stored,) = store.list_runs()
    run = read_run(store, stored)
    assert (run.outcome, run.result) == (live.outcome, live.result)
    assert run.reason.startswith("its result was written by another version of ggbench")
    check_shown(listed_run(stored))
