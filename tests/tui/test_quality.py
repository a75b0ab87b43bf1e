"""A quality run in the TUI: asked for in the Library, watched chunk by chunk, listed, opened and compared."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.quality.record import NO_BASE, QualityRequest, QualitySettings
from ggbench.hub.access import HubAccess
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.runs.experiment import Job, experiment_of
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from tests.fakes.candidates import expected
from tests.fakes.driving import ask, press, see, words_of
from tests.fakes.jobs import FakeServices, scored
from tests.fakes.library import BUDGET, FakePlanner, local, plan_row, planned
from tests.fakes.scores import Scattered, without_mark
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


@pytest.fixture
def library(folder: Path, services: Services, planner: FakePlanner) -> App:
    models = tuple(
        local(
            str(folder), quant, store="folder", name="tiny", paths=(path := folder / f"tiny-{quant}.gguf",),
            file_bytes=path.stat().st_size,
        )
        for quant in ("q8_0", "q4_0")
    )  # fmt: skip
    rows = [plan_row("tiny", quant, BUDGET) for quant in ("q8_0", "q4_0")]
    timed = [msgspec.structs.replace(row, expected=expected(row.limit_tok_s or 1.0)) for row in rows]
    planner.rows_of[str(folder)] = [planned(row.quant, row) for row in timed]
    return App(msgspec.structs.replace(services, local_models=lambda: models))


def test_marked_quants_are_scored_beside_the_largest(
    library: App, text: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Job] = []

    def add(jobs: Sequence[Job]) -> None:
        asked.extend(jobs)

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        await press(app, pilot, "enter", "space", "j", "space")
        assert "measure 2 quants" in await ask(app, pilot, "quality")
        for name, value in {"text": str(text), "n_chunks": "24", "n_ctx": "64"}.items():
            app.screen.query_one(f"#{name}", Input).value = value
        await press(app, pilot, "enter")
        (job,) = asked
        assert (job.target.quant, job.base and job.base.target.quant) == ("q4_0", "q8_0")
        settings = job.settings
        assert isinstance(settings, QualitySettings)
        assert settings.text.path == str(text)
        assert (settings.n_chunks, settings.n_ctx, settings.n_seqs) == (24, 64, 32)
        assert isinstance(job.setup, LlamaConfig)
        assert job.setup.n_ctx is None
        await press(app, pilot, "1")
        await ask(app, pilot, "quality")
        app.screen.query_one("#base", Input).value = "none"
        await press(app, pilot, "enter")
        assert (asked[1].target.quant, asked[1].base) == ("q4_0", None)
        assert asked[1].settings == settings

    drive(library, steps, (100, 30))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["down", "down", *"few"], "--chunks: 'few' is not a whole number"),
        (["down"] * 4 + ["2"], "a chunk of 2 tokens is too short"),
        (["down"] * 3 + [*"nope"], "✗ no quant named 'nope'"),
        (["down", *"/gone.txt"], "/gone.txt cannot be read: No such file"),
    ],
)
def test_bad_input_is_a_message(library: App, drive: Drive, keys: list[str], message: str) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter")
        await ask(app, pilot, "quality")
        shown = await see(app, pilot, *keys, "enter")
        assert message in shown
        assert app.focused is app.screen.query("#lines Input")[keys.count("down") - 1]
        assert not app.run_queue.items

    drive(library, steps, (100, 30))


def test_a_run_is_watched_chunk_by_chunk(
    library: App, folder: Path, text: Path, jobs: FakeServices, drive: Drive
) -> None:
    scattered = Scattered(stops_at=14)
    jobs.answers.append(scattered.answer)

    async def steps(app: App, pilot: Page) -> None:
        app.run_queue.add(scored(folder, text))
        await asyncio.to_thread(scattered.reached.wait, 60)
        shown = await see(app, pilot, "2")
        assert "56%" in shown and " left" in shown and "PPL " in shown
        scattered.opened.set()

    drive(library, steps, (100, 30))


def test_scored_runs_are_listed_opened_and_compared(
    library: App, folder: Path, text: Path, jobs: FakeServices, drive: Drive
) -> None:
    jobs.answers += [Scattered(0.1).answer, Scattered(0.2).answer, Scattered(0.2, n_tokens=32 * 100).answer]

    async def steps(app: App, pilot: Page) -> None:
        queue = WatchedQueue(app.run_queue)
        app.run_queue.add(3 * scored(folder, text))
        await queue.idle()
        shown = await see(app, pilot, "3")
        assert sum(" PPL " in line for line in shown.splitlines()) == 3
        shown = await see(app, pilot, "enter")
        assert "100 chunks" in shown
        shown = await see(app, pilot, "escape", "j", "space", "j", "space", "c")
        assert "better in KLD" in shown
        await press(app, pilot, "escape", "k", "k", "space", "j", "j", "space", "c")
        assert "runs 2 with 3" in words_of(app)

    drive(library, steps, (150, 60))


@pytest.fixture
def target(tiny_twin: Path, tmp_path: Path) -> Target:
    return resolve_one(parse_model(str(without_mark(tiny_twin, tmp_path / "tiny-q8_0.gguf"))))


def _settings(target: Target, text: str) -> QualitySettings:
    request = QualityRequest(text or None, base=NO_BASE)
    hub = HubAccess.from_environment()
    (job,) = experiment_of("quality").jobs(request, parse_model(target.model), [target], LlamaConfig(), hub)
    assert isinstance(job.settings, QualitySettings)
    return job.settings


def test_texts_are_files_or_pythons_manual(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "prose").write_text("mine")
    assert _settings(target, "~/prose").text.path == str(tmp_path / "prose")
    assert _settings(target, "").text.name == "pydoc_data.topics"
