"""A search for settings in the TUI: asked for in the Library, watched, and taken over."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.tune.record import TuneResult, TuneSettings
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve, resolve_one
from ggbench.runs.experiment import FoundSetup, Job, experiment_of
from ggbench.tui.app import GgbenchApp
from ggbench.tui.screens.settings_dialog import SettingsDialog
from ggbench.tui.widgets.curves_plot import CurvesPlot
from tests.fakes.driving import press
from tests.fakes.jobs import FakeServices
from tests.fakes.planted import PlantedMachine
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
SETTINGS = TuneSettings((0, 4096), within_s=300)
PLANTED = {("flash_attn", "off"): 0.5}


def test_what_should_be_faster_is_asked(app: App, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Job] = []

    def add(jobs: Sequence[Job]) -> None:
        asked.extend(jobs)

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        await press(app, pilot, "slash", *"synth:small", "enter", "enter", "t")
        assert isinstance(app.screen, SettingsDialog)
        shown = await press(app, pilot, "down", *"0,4k", "down", *"5m", "down", *"q9", "enter")
        assert "✗" in shown and "'q9' is not a type of a KV cache" in shown
        await press(app, pilot, "backspace", *"8_0", "enter")
        assert asked[0].settings == TuneSettings((0, 4096), "decode", 300.0, ("q8_0",))
        assert asked[0].experiment.kind == "tune"

    drive(app, steps, (100, 30))


def test_the_race_is_watched_and_kept(tiny_twin: Path, app: App, jobs: FakeServices, drive: Drive) -> None:
    planted = PlantedMachine(3, {("threads", 1): 1.7}, PLANTED, noise=0.005)
    jobs.answers.append(planted.answer)

    async def steps(app: App, pilot: Page) -> None:
        queue = WatchedQueue(app.run_queue)
        with planted.clocked():
            app.run_queue.add(
                [Job(experiment_of("tune"), resolve(parse_model(str(tiny_twin)))[0], LlamaConfig(), SETTINGS)]
            )
            await queue.idle()
        shown = await press(app, pilot, "2")
        assert "times the speed of the defaults" in shown
        figure = app.screen.query_one(CurvesPlot).figures[0]
        assert figure.key == "race"
        assert "flash_attn off" in [curve.name for curve in figure.curves]
        assert " flash_attn off" in shown
        shown = await press(app, pilot, "3", "enter")
        assert "flash_attn off: 1.4" in shown

    drive(app, steps, (150, 50))


def test_what_was_found_is_taken_over_with_one_key(
    tiny_twin: Path, app: App, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PlantedMachine(3, {("threads", 1): 1.7}, PLANTED, noise=0.005).tune(
        resolve_one(parse_model(str(tiny_twin))), SETTINGS
    )

    assert isinstance(run.result, TuneResult) and run.result.best is not None
    found = FoundSetup(run.run_id, run.result.changes(run.result.best), "found")

    async def steps(app: App, pilot: Page) -> None:
        shown = await press(app, pilot, "slash", *"synth:small", "enter", "enter", "a")
        assert "no settings were found for" in shown
        assert app.setup == LlamaConfig()
        monkeypatch.setattr("ggbench.experiments.tune.measure.find_tuned", lambda *_: found)
        await press(app, pilot, "a")
        assert app.setup == LlamaConfig(flash_attn="off")

    drive(app, steps, (100, 30))
