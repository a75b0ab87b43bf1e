"""A run by input length and batch size in the TUI: asked for in the Library, watched, listed and compared."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ggbench.engines import protocol
from ggbench.engines.contract import BatchedDecode, Request
from ggbench.engines.endings import Ending
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.speed.record import SpeedSettings
from ggbench.experiments.tune.record import TuneSettings
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.runs.experiment import Job, experiment_of
from ggbench.tui.app import GgbenchApp
from tests.fakes.driving import ask, press, see
from tests.fakes.engine import obey
from tests.fakes.jobs import FakeServices
from tests.fakes.watched import WAIT_S, WatchedQueue
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
SETTINGS = SpeedSettings((1, 512), 8, (1, 4))


def speeds(targets: Sequence[Target]) -> list[Job]:
    return [Job(experiment_of("speed"), target, LlamaConfig(), SETTINGS) for target in targets]


def test_cases_are_chosen_in_a_dialog(app: App, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Job] = []

    def add(jobs: Sequence[Job]) -> None:
        asked.extend(jobs)

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        await press(app, pilot, "slash", *"unpub", "enter", "enter")
        await ask(app, pilot, "speed")
        shown = await see(app, pilot, "down", *"1,2k", "down", *"64", "down", *"1,300", "enter")
        assert "✗ a batch of 300 sequences is more than llama.cpp supports" in shown
        shown = await see(app, pilot, *["backspace"] * 3, "x", "enter")
        assert "✗ --parallel: '1,x' is not a list of batch sizes" in shown
        await press(app, pilot, "backspace", "8", "enter")
        assert asked[0].settings == SpeedSettings((1, 2048), 64, (1, 8))
        assert isinstance(asked[0].setup, LlamaConfig)
        assert asked[0].setup.n_ctx is None
        await press(app, pilot, "1", "b", "enter")
        assert asked[1].settings == asked[0].settings

    drive(app, steps, (100, 30))


def test_a_grid_is_watched_and_compared(tiny_twin: Path, app: App, jobs: FakeServices, drive: Drive) -> None:
    reached, opened = threading.Event(), threading.Event()

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, BatchedDecode) and request.n_prompt == 512 and request.n_seqs == 4:
            reached.set()
            assert opened.wait(WAIT_S)
        yield from obey(request)

    jobs.answers.append(answer)

    async def steps(app: App, pilot: Page) -> None:
        queue = WatchedQueue(app.run_queue)
        app.run_queue.add(2 * speeds(resolve(parse_model(str(tiny_twin)))))
        await asyncio.to_thread(reached.wait, WAIT_S)
        shown = await see(app, pilot, "2")
        assert "24 steps" in shown
        assert "W, B" not in shown
        opened.set()
        await queue.idle()
        shown = await see(app, pilot, "3")
        assert "Qwen2.5 14.5 tok/s" in shown
        shown = await see(app, pilot, "space", "j", "space", "c")
        assert "runs 1 with 2" in shown

    drive(app, steps, (150, 50))


SEARCH = TuneSettings((0, 4096), within_s=300)
PLANTED = {("flash_attn", "off"): 0.5}


def test_what_should_be_faster_is_asked(app: App, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Job] = []

    def add(jobs: Sequence[Job]) -> None:
        asked.extend(jobs)

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        await press(app, pilot, "slash", *"unpub", "enter", "enter")
        await ask(app, pilot, "tune")
        shown = await see(app, pilot, "down", *"0,4k", "down", "down", *"5x", "enter")
        assert "✗" in shown
        await press(app, pilot, "backspace", "m", "enter")
        assert asked[0].settings == TuneSettings((0, 4096), "decode", 300.0)
        assert asked[0].experiment.kind == "tune"

    drive(app, steps, (100, 30))
