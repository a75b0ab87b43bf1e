"""The screens of the TUI as they look at 80x24 and the Library at 120x36, and a run of every kind as it is watched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot

from ggbench.engines import protocol
from ggbench.engines.contract import BatchedDecode, Request
from ggbench.engines.endings import Ending
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.maxctx.record import MaxctxResult
from ggbench.experiments.speed.record import SpeedSettings
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.runs.experiment import Experiment, Job, experiment_of
from ggbench.runs.progress import Pace
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Expected
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.run import RunScreen
from ggbench.tui.work_queue import PullItem, WorkState
from tests.fakes.candidates import measured_loss, session_of
from tests.fakes.driving import NEED_16K, ask, check_snapshot, press, settle
from tests.fakes.engine import obey
from tests.fakes.jobs import FakeServices, Gate, decodes, scored, searches, small_context
from tests.fakes.library import BUDGET, FakePlanner, local, plan_row, planned
from tests.fakes.scores import Scattered
from tests.tui.conftest import Drive
from tests.tui.test_run_queue import crash

Page = Pilot[None]
GIB = 1 << 30
QUESTION = "Download 4.43 GiB into Hugging Face's cache: maker/small-gguf q8_0?"


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use colours, which the tests otherwise turn off."""
    monkeypatch.delenv("NO_COLOR")


def test_the_library(services: Services, planner: FakePlanner, drive: Drive) -> None:
    """Models of every section, quants known in every way, with marks, one on this disk, and what can lie over them."""
    rows = [plan_row("small-0.6b", quant, BUDGET) for quant in ("q8_0", "q6_k", "q4_k_m", "q3_k_m", "q2_k")]
    forecast = Expected(612.0, 540.0, 690.0, "scaled", "this machine's other runs")
    planner.rows_of["small-0.6b"] = [
        planned("q8_0", rows[0], speed=session_of(493.0), weights_loss=measured_loss(0.0012), probed_by=3),
        planned("q6_k", msgspec.structs.replace(rows[1], expected=forecast)),
        *(planned(row.quant, row) for row in rows[2:]),
    ]
    disk = (local("maker/small-gguf", "q8_0"), local("~/models/mine.gguf", "q5_0", store="folder", name="mine"))
    keys = {
        "help": ["question_mark"], "card": ["g", *"30"], "confirm": [], "needs": ["e"],
        "options": ["o", *"12GiB", "down", "down", "right"], "measure": ["b"],
        "search": [*["down"] * 4, *"12GiB"], "quality": ["down", *"wiki.test.raw"], "speed": ["down", *"1,2k"],
    }  # fmt: skip
    kinds = {"search": "maxctx", "quality": "quality", "speed": "speed"}

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        app.animation_level = "none"
        await press(app, pilot, *["j"] * 3, "enter")
        await press(app, pilot, "space", "j", "j", "space", "j", *NEED_16K)
        check_snapshot(app, "library")
        await pilot.resize_terminal(120, 36)
        await settle(app, pilot)
        check_snapshot(app, "library_120")
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        for name, pressed in keys.items():
            if name in kinds:
                await ask(app, pilot, kinds[name])
            await press(app, pilot, *pressed)
            if name == "confirm":
                app.push_screen(ConfirmScreen(QUESTION, "Download", is_harmless=True))
                await settle(app, pilot)
            check_snapshot(app, name)
            await press(app, pilot, "escape")

    drive(GgbenchApp(msgspec.structs.replace(services, local_models=lambda: disk)), steps)


def test_pulls_in_every_state(app: GgbenchApp, drive: Drive) -> None:
    target = Target("maker/small-gguf", "q8_0", "hub", None)
    states = (
        PullItem("maker/small-gguf", "q8_0", GIB, GIB, path=Path("/hub/small-q8_0.gguf"), id=0, state=WorkState.DONE),
        PullItem("maker/large-gguf", "q4_k_m", 12 * GIB, 41 * GIB, 36e6, id=1, state=WorkState.DOWNLOADING),
        PullItem(
            "maker/large-gguf", "q2_k", GIB, 27 * GIB, reason="the disk is full; make room", id=2,
            state=WorkState.FAILED,
        ),
        PullItem("maker/other-gguf", "q8_0", GIB, 3 * GIB, id=3, state=WorkState.STOPPED),
        PullItem("maker/other-gguf", "ud-q4_k_xl", id=4),
    )  # fmt: skip

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        app.pull_queue._items = {item.id: item for item in states}
        app.pull_queue._targets = dict.fromkeys(range(len(states)), target)
        await press(app, pilot, "2")
        check_snapshot(app, "pulls")
        await press(app, pilot, "x")  # the cursor is on the one in progress
        assert app.pull_queue._stopped == {1}
        app.pull_queue._items = {}

    drive(app, steps)


@pytest.fixture
def targets(tiny_twin: Path) -> list[Target]:
    target = resolve(parse_model(str(tiny_twin)))[0]
    return [
        msgspec.structs.replace(target, model="twin:tiny", quant=quant) for quant in ("q8_0", "q6_k", "q4_k_m", "q2_k")
    ]


class Slow(FakeServices):
    def run_context(self, store: Store | None, experiment: Experiment) -> RunContext:
        return msgspec.structs.replace(
            super().run_context(store, experiment), cpu_bandwidth=Bandwidth(1e9, "measured in a test")
        )


async def show_run(app: GgbenchApp, pilot: Pilot[None]) -> RunScreen:
    """Draw the Run screen now."""
    await app.switch_mode("run")
    await pilot.pause()
    screen = app.screen
    assert isinstance(screen, RunScreen)
    screen._draw()
    await pilot.pause()
    return screen


def test_a_run(app: GgbenchApp, jobs: FakeServices, targets: list[Target], drive: Drive) -> None:
    gate = Gate()
    slow = Slow(jobs.folder, [obey, crash, gate.answer], reading=jobs.reading)
    app.services = msgspec.structs.replace(app.services, run_context=slow.run_context)

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        app.run_queue.add(decodes(targets, 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        assert app.run_queue.live is not None
        app.run_queue.live.pace = Pace()  # none is twice the same
        screen = await show_run(app, pilot)
        assert screen._queue.items[2].state is WorkState.DECODING
        check_snapshot(app, "run")
        gate.opened.set()

    drive(app, steps)


def test_a_search(app: GgbenchApp, jobs: FakeServices, targets: list[Target], drive: Drive) -> None:
    jobs.answers.append(small_context)

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        app.run_queue.add(searches(targets[:1], LlamaConfig(n_ctx=16_384, memory_limit_bytes=1 << 30)))
        while app.run_queue.is_busy:
            await pilot.pause(0.01)
        live = app.run_queue.live
        assert live is not None
        live.points = tuple(text.partition(" (")[0] for text in live.points)  # no time is twice the same
        await show_run(app, pilot)
        run = app.run_queue.items[0].run
        assert run is not None
        assert isinstance(run.result, MaxctxResult)
        assert run.result.max_n_ctx == 2048
        check_snapshot(app, "run_maxctx")

    drive(app, steps)


def test_a_text_is_scored(app: GgbenchApp, jobs: FakeServices, folder: Path, text: Path, drive: Drive) -> None:
    scattered = Scattered(0.3, stops_at=14)
    jobs.answers += [Scattered(0.1).answer, scattered.answer]

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        app.run_queue.add(2 * scored(folder, text))
        await asyncio.to_thread(scattered.reached.wait, 60)
        live = app.run_queue.live
        assert live is not None
        live.pace = Pace()  # none is twice the same
        await show_run(app, pilot)
        check_snapshot(app, "run_quality")
        scattered.opened.set()

    drive(app, steps)


def test_a_grid_of_cases(app: GgbenchApp, jobs: FakeServices, targets: list[Target], drive: Drive) -> None:
    gate = Gate()

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, BatchedDecode) and (request.n_prompt, request.n_seqs) == (512, 4):
            gate.reached.set()
            assert gate.opened.wait(60)
        yield from obey(request)

    jobs.answers += [obey, answer]
    settings = SpeedSettings((1, 512), 8, (1, 4))

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        app.run_queue.add([Job(experiment_of("speed"), target, LlamaConfig(), settings) for target in targets[:2]])
        await asyncio.to_thread(gate.reached.wait, 60)
        await show_run(app, pilot)
        check_snapshot(app, "run_speed")
        gate.opened.set()

    drive(app, steps)


def test_nothing_to_run(app: GgbenchApp, drive: Drive) -> None:
    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        await show_run(app, pilot)
        check_snapshot(app, "run_empty")

    drive(app, steps)
