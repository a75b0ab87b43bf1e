"""What the Run screen looks like, in the app: each picture was looked at before it was accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec.structs
import pytest
from textual.pilot import Pilot

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Ending
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.workloads import BatchedDecode
from ggbench.experiments.maxctx.record import MaxctxResult
from ggbench.experiments.speed.record import SpeedSettings
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.runs.experiment import Experiment, Job, experiment_of
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import Bandwidth
from ggbench.tui.app import GgbenchApp
from ggbench.tui.screens.run import RunScreen
from ggbench.tui.work_queue import WorkState
from tests.fakes.driving import check_snapshot
from tests.fakes.engine import obey
from tests.fakes.jobs import FakeServices, Gate, decodes, scored, searches, small_context
from tests.fakes.scores import Scattered
from tests.tui.test_run_queue import crash

if TYPE_CHECKING:
    from tests.tui.conftest import Drive


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")


@pytest.fixture
def targets(tiny_twin: Path) -> list[Target]:
    target = resolve(parse_model(str(tiny_twin)))[0]
    return [
        msgspec.structs.replace(target, model="synth:tiny", quant=quant) for quant in ("q8_0", "q6_k", "q4_k_m", "q2_k")
    ]


class Slow(FakeServices):
    def run_context(self, store: Store | None, experiment: Experiment) -> RunContext:
        return msgspec.structs.replace(
            super().run_context(store, experiment), cpu_bandwidth=Bandwidth(1e9, "measured in a test")
        )


async def show_run(app: GgbenchApp, pilot: Pilot[None]) -> RunScreen:
    """The Run screen, drawn as things are at this moment."""
    await app.switch_mode("run")
    await pilot.pause()
    screen = app.screen
    assert isinstance(screen, RunScreen)
    screen._read_machine()
    await app.workers.wait_for_complete()
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
        live._counted_from = None  # no pace is twice the same
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
    settings = SpeedSettings((1, 512), 8, (1, 4), None)

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
