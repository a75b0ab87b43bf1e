"""From the Library to a run: what is requested, and what comes of it."""

from collections.abc import Sequence
from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot

from ggbench.engines.llama.config import LlamaConfig
from ggbench.runs.experiment import Job
from ggbench.tui.app import GgbenchApp
from ggbench.tui.planner import PlannedQuant
from ggbench.tui.services import Services
from tests.fakes.driving import press, with_disk, words_of
from tests.fakes.jobs import FakeServices
from tests.fakes.library import BUDGET, FakePlanner, local, plan_row
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


def test_a_length_of_runs_is_chosen_by_a_key(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        assert "n_gen 200" in words_of(app)
        seen = []
        for _ in range(5):
            await press(app, pilot, "n")
            seen.append(app.n_gen)
        assert seen == [300, 1_000, 3_000, 10_000, 300]
        assert "n_gen 300" in words_of(app)

    drive(app, steps)


@pytest.mark.parametrize(("key", "n_ctx", "notice"), [("right", 16_384, ""), ("left", None, "need n_ctx 10,240")])
def test_a_run_takes_the_context_that_was_planned(
    tiny_twin: Path,
    services: Services,
    planner: FakePlanner,
    monkeypatch: pytest.MonkeyPatch,
    drive: Drive,
    key: str,
    n_ctx: int | None,
    notice: str,
) -> None:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [PlannedQuant("q8_0", plan_row("tiny", "q8_0", BUDGET))]
    asked: list[int | None] = []

    def add(jobs: Sequence[Job]) -> None:
        asked.extend(job.setup.n_ctx for job in jobs if isinstance(job.setup, LlamaConfig))

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        await press(app, pilot, "enter", key, "g", *"3060 ti", "enter")
        await press(app, pilot, "b")
        assert asked == [n_ctx]
        shown = [each.message for each in app._notifications]
        assert any("measured on this machine" in each for each in shown)
        assert any(notice in each for each in shown)
        assert len(shown) == (2 if notice else 1)

    drive(App(msgspec.structs.replace(services, local_models=lambda: (model,))), steps)


def test_marked_quants_are_measured(
    tiny_twin: Path, services: Services, planner: FakePlanner, jobs: FakeServices, drive: Drive
) -> None:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [PlannedQuant("q8_0", plan_row("tiny", "q8_0", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        queue = WatchedQueue(app.run_queue)
        await press(app, pilot, "enter", "space")
        assert "1 marked" in words_of(app)
        await press(app, pilot, "space")
        assert "marked" not in words_of(app)
        await press(app, pilot, "space", "b")
        assert app.current_mode == "run"
        assert [(item.subject.model, item.kind) for item in app.run_queue.items] == [(str(tiny_twin), "decode")]
        await queue.idle()
        await press(app, pilot, "1")
        line = next(line for line in words_of(app).splitlines() if " q8_0 " in line)
        assert "< 10.6" in line
        assert " 94.1 " in line
        assert "●" not in line
        await press(app, pilot, "m", "enter")
        assert app.run_queue.items[-1].kind == "maxctx"

    drive(with_disk(services, model), steps, (200, 40))
    assert jobs.workers[0].closed
