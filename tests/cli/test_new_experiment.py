"""The test of the design: an experiment is one folder, here outside the package, and no other line knows of it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

import ggbench.experiments
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.progress import PointMeasured
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.tui.app import GgbenchApp
from ggbench.tui.work_queue import WorkState
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.driving import see
from tests.fakes.engine import fake_rig
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import (  # noqa: F401 - fixtures
    Drive,
    app,
    drive,
    jobs,
    pilots_look_at_the_app,
    planner,
    services,
)

FOLDER = Path(__file__).parents[1] / "fakes" / "experiments"


@pytest.fixture(autouse=True)
def chat() -> Iterator[None]:
    ggbench.experiments.__path__.append(str(FOLDER))
    yield
    ggbench.experiments.__path__.remove(str(FOLDER))


def _job(target: Target, turns: int, **setup: int) -> Job:
    experiment = experiment_of("chat")
    return Job(experiment, target, LlamaConfig(**setup), experiment.settings_type(turns=turns))  # type: ignore[arg-type, call-arg]


def test_it_is_a_command_with_options_of_its_settings(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    assert "chat       Time the turns of a chat." in ggbench("--help").out
    assert "--turns N" in ggbench("chat", "--help").out
    ran = ggbench("chat", tiny_twin, "--turns", 3, "-ub", 64)
    assert ran.code == 0
    assert "details: 3 turns, " in ran.out
    assert f"ggbench chat {tiny_twin.absolute()} --turns 3 --n-ubatch 64" in ran.out
    assert "turn 2: " in ran.err
    assert "is not in the range" in ggbench("chat", tiny_twin, "--turns", 0).err


def test_its_runs_are_listed_shown_compared_and_reported(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.formats.report_page.vega_script", str)
    ids = [ggbench("chat", tiny_twin, "--turns", n, "--json").json["run_id"] for n in (2, 3)]
    listed = ggbench("results", "--json").json["rows"]
    assert [(row["kind"], row["state"]) for row in listed] == [("chat", "completed")] * 2
    assert "turns, " in ggbench("results", "--why").out
    document = ggbench("results", "show", ids[1], "--json").json
    assert [turn["n_question"] for turn in document["run"]["result"]["turns"]] == [32, 64, 96]
    assert "chat" in ggbench("compare", *ids).out
    assert ggbench("report", *ids, "-o", tmp_path / "report.html").code == 0
    assert "3 turns, " in (tmp_path / "report.html").read_text()
    assert ggbench("report", *ids, "-o", tmp_path / "report.csv").code == 0
    header, *rows = (tmp_path / "report.csv").read_text().splitlines()
    assert "chat_ms" in header.split(",")
    assert all(row.split(",")[header.split(",").index("chat_ms")] for row in rows)
    assert "chat" in ggbench("help", "figures").out


def test_one_that_is_killed_is_reduced_from_what_it_had(target: Target, tmp_path: Path) -> None:
    with Store.open(tmp_path / "results.db") as store:
        with contextlib.closing(run_job(fake_rig(store)[0], _job(target, 3))) as progress:
            next(each for each in progress if isinstance(each, PointMeasured) and "turn 1" in each.text)
        run = read_run(store, store.list_runs()[0])
    assert run.outcome is Outcome.INTERRUPTED
    assert [each.number for each in getattr(run.result, "turns", ())] == [0, 1]


def test_it_is_checked_before_anything_is_loaded(target: Target) -> None:
    with pytest.raises(UsageError, match="too small for the 306 tokens"):
        _job(target, 8, n_ctx=256)


def test_it_waits_runs_and_is_read_in_the_tui(target: Target, app: GgbenchApp, drive: Drive) -> None:  # noqa: F811
    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        queue = WatchedQueue(app.run_queue)
        app.run_queue.add([_job(target, 2)])
        await queue.idle()
        assert app.run_queue.items[0].state is WorkState.DONE
        shown = await see(app, pilot, "2")
        assert "turn 1" in shown
        shown = await see(app, pilot, "3")
        assert "chat" in shown
        assert "details: 2 turns, " in await see(app, pilot, "enter")

    drive(app, steps, (300, 45))
