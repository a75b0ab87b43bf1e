"""The dialog that starts every measurement: what it offers, what it says that a run takes, and what it remembers."""

import asyncio
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Tabs

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.forecast.record import ForecastSettings
from ggbench.experiments.prefill.record import PrefillSettings
from ggbench.experiments.speculate.record import SpeculateSettings
from ggbench.plugins import plugin_names
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.run import Settings
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.screens.forms import Choice, option_fields, options_form
from ggbench.tui.screens.measure import RunRequest
from tests.cli.conftest import parse_words
from tests.fakes.driving import ask, burst, click, message, press, said, see, settle, show_kind, words_of
from tests.fakes.jobs import FakeServices, Gate
from tests.fakes.library import BUDGET, CATALOG, FakePlanner, local, plan_row, planned
from tests.fakes.llama_server import install
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


def in_dialog(words: str) -> str:
    return " ".join(words.replace("│", " ").split())


@pytest.fixture
def here(tiny_twin: Path, services: Services, planner: FakePlanner) -> Callable[[], App]:
    """Start the app with one quant that is on this disk."""
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    row = msgspec.structs.replace(plan_row("tiny", "q8_0", BUDGET), file=str(tiny_twin))
    planner.rows_of[str(tiny_twin)] = [planned("q8_0", row)]
    return lambda: App(msgspec.structs.replace(services, local_models=lambda: (model,)), opens=tiny_twin)


def added(app: App, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Return the jobs that will be added to the queue, which does not run them."""
    jobs: list[Job] = []

    def add(new: Sequence[Job]) -> None:
        jobs.extend(new)

    monkeypatch.setattr(app.run_queue, "add", add)
    return jobs


def test_every_experiment_is_offered_and_its_options_are_explained(here: Callable[[], App], drive: Drive) -> None:
    kinds = plugin_names("ggbench.experiments", "measure")

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "b")
        assert tuple(tab.id for tab in app.screen.query("#what Tab")) == kinds
        assert len(kinds) > 6
        assert " ".join(kinds) in in_dialog(words_of(app))
        assert "Forecast a model's speed without its file" in in_dialog(await see(app, pilot, "up", "right"))
        assert app.screen.query_one("#what", Tabs).active == kinds[kinds.index("decode") + 1]
        words = in_dialog(await see(app, pilot, "left"))
        assert "--n-gen 200 Number of tokens to decode --repeat 1 Decode N times in one run" in words
        assert "⏎ start" in words
        assert "q8_0 -n 200" in words  # of the whole command
        words = in_dialog(await see(app, pilot, "down"))
        assert "Number of tokens to decode, e.g. 1k" in words

    drive(here(), steps)


def test_the_dialog_says_where_what_and_how_much_is_measured(app: App, drive: Drive) -> None:
    """On this computer, even if another card is planned for; its first line is one of the command line's."""
    app.opens = "small-0.6b"

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "space", "j", "space", "g", *"3090", "enter")
        assert "2 quants of small-0.6b on this computer, not rtx-3090" in await see(app, pilot, "b")
        kinds = plugin_names("ggbench.experiments", "measure")
        for kind in (*kinds, "decode"):
            await show_kind(app, pilot, kind)
            if kind != "speculate":  # which needs a draft
                command, notes = message(app).splitlines()
                assert notes.startswith("and so each of 2 quants")
                parse_words(shlex.split(command)[1:])
        app.screen.query_one("#n_gen", Input).value = "40k"
        app.screen.query_one("#repeat", Input).value = "600"
        await settle(app, pilot)
        assert message(app).endswith("49,152,000 tokens to decode, beyond the 32,768 of training")

    drive(app, steps, (100, 40))


def test_every_option_has_a_label_and_an_explanation() -> None:
    fields = [
        (kind, field) for kind in plugin_names("ggbench.experiments", "measure")
        for field in option_fields(experiment_of(kind).request_type)
    ]  # fmt: skip
    fields += [("options", field) for field in options_form().fields]
    assert not [(kind, field.label) for kind, field in fields if len(field.label) > 14]
    assert not [(kind, field.label) for kind, field in fields if not field.unset]


@pytest.mark.parametrize(
    ("kind", "keys", "settings"),
    [
        ("prefill", ["down", *"8,16"], PrefillSettings((8, 16))),
        ("forecast", [], ForecastSettings()),
        ("speculate", ["down", *"2", *["down"] * 4, *"qwen2.5-0.5b:q8_0"], SpeculateSettings((2,))),
    ],
)
def test_a_kind_without_a_line_of_code_here_is_measured(
    here: Callable[[], App],
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    keys: Sequence[str],
    settings: Settings,
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        jobs = added(app, monkeypatch)
        await ask(app, pilot, kind)
        await press(app, pilot, *keys, "enter")
        assert [(job.experiment.kind, job.settings) for job in jobs] == [(kind, settings)]
        assert (jobs[0].draft and jobs[0].draft.quant) == ("q8_0" if kind == "speculate" else None)

    drive(here(), steps, (100, 30))


def test_drafts_that_only_a_server_makes_need_no_model_but_that_server(
    here: Callable[[], App], drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        jobs = added(app, monkeypatch)
        await ask(app, pilot, "speculate")
        assert "✗ speculate needs a draft model" in await see(app, pilot, "enter")
        app.screen.query_one("#spec_type", Input).value = "ngram-simple"
        await settle(app, pilot)
        assert "does not draft by ngram-simple" in await see(app, pilot, "enter")
        app.screen.query_one("#engine", Input).value = f"llama-server={install(tmp_path)}"
        await settle(app, pilot)
        await press(app, pilot, "enter")
        (job,) = jobs
        assert job.setup.engine_option and job.draft is None
        assert job.settings == SpeculateSettings(spec_type="ngram-simple")

    drive(here(), steps, (100, 30))


def test_a_program_that_alone_sees_a_gpu_is_the_engine_to_begin_with(
    here: Callable[[], App], drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path).parent}:/usr/bin:/bin")

    async def steps(app: App, pilot: Page) -> None:
        await ask(app, pilot, "decode")
        await settle(app, pilot)
        assert app.screen.query_one("#engine", Input).value == "llama-server"
        assert "but llama-server lists llvmpipe" in words_of(app)
        await ask(app, pilot, "quality")
        assert app.screen.query_one("#engine", Input).value == ""

    drive(here(), steps, (100, 30))


def test_the_last_choices_are_kept_by_kind_until_the_end(
    here: Callable[[], App], drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        added(app, monkeypatch)
        await ask(app, pilot, "prefill")
        await press(app, pilot, "down", *"8", "enter", "1", "b")
        assert app.screen.query_one("#what", Tabs).active == "prefill"
        assert app.screen.query_one("#lengths", Input).value == "8"
        await ask(app, pilot, "decode")
        assert app.screen.query_one("#n_gen", Input).value == "200"
        await press(app, pilot, "ctrl+r")
        assert app.screen.query_one("#n_gen", Input).value == ""
        await press(app, pilot, "escape", "b")
        assert app.screen.query_one("#what", Tabs).active == "prefill"

    drive(here(), steps)


def test_a_file_that_is_not_here_is_downloaded_or_measured_as_a_twin(
    app: App, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.opens = "small-0.6b"

    async def steps(app: App, pilot: Page) -> None:
        jobs = added(app, monkeypatch)
        words = in_dialog(await see(app, pilot, "b"))
        assert "file download ▼" in words
        assert "to download, or a twin" in words
        assert "offline" in await see(app, pilot, "enter")
        await press(app, pilot, *["down"] * 4, "right", "enter")
        assert [(job.target.provenance, job.settings) for job in jobs] == [("twin", DecodeSettings(200))]
        await press(app, pilot, "1")
        await ask(app, pilot, "quality")
        app.screen.query_one("#file", Choice).value = "twin now"
        assert "is a twin: untrained weights have no quality" in in_dialog(await see(app, pilot, "enter"))

    drive(app, steps, (100, 30))


def test_only_files_that_are_not_here_are_measured_as_twins(tiny_twin: Path, services: Services) -> None:
    request = RunRequest(experiment_of("decode"), DecodeSettings(), LlamaConfig(), is_twin=True)
    for model, path in ((str(tiny_twin), tiny_twin), ("small-0.6b", None)):
        selection = (model, ("q8_0",))
        assert [job.target.path for job in request.jobs(services, selection, CATALOG)] == [path]


def test_a_run_started_during_another_waits_in_the_queue(
    here: Callable[[], App], jobs: FakeServices, drive: Drive
) -> None:
    gate = Gate()
    jobs.answers.append(gate.answer)

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "b", *["backspace"] * 3, *"1k", "enter")
        assert app.current_mode == "run"
        await asyncio.to_thread(gate.reached.wait, 60)
        await press(app, pilot, "1", "b", "enter")
        assert app.current_mode == "library"
        assert "queued: 2 shows the queue" in said(app)
        assert [item.state.is_at_work for item in app.run_queue.items] == [True, False]
        gate.opened.set()

    drive(here(), steps)


def test_the_mouse_changes_starts_and_closes(
    here: Callable[[], App], drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        jobs = added(app, monkeypatch)
        await press(app, pilot, "b")
        await pilot.click("#what Tab#forecast")
        await settle(app, pilot)
        assert app.screen.query_one("#what", Tabs).active == "forecast"
        await click(app, pilot, "⏎ start")
        assert [job.experiment.kind for job in jobs] == ["forecast"]
        await press(app, pilot, "1", "b")
        await click(app, pilot, "esc close")
        assert not app.screen.is_modal

    drive(here(), steps)


def test_what_is_refused_starts_nothing_and_is_gone_to(
    here: Callable[[], App], drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        jobs = added(app, monkeypatch)
        await press(app, pilot, "b")
        field = app.screen.query_one("#n_gen", Input)
        field.value = "1x"
        await settle(app, pilot)
        assert "✗ --n-gen: '1x' is not a number of tokens" in in_dialog(await see(app, pilot, "enter"))
        assert app.focused is field and not jobs

    drive(here(), steps)


def test_keys_typed_in_a_burst_go_where_they_belong(
    here: Callable[[], App], drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        jobs = added(app, monkeypatch)
        await burst(app, pilot, "b", *"300", "enter")
        await press(app, pilot, "3")
        assert [job.settings for job in jobs] == [DecodeSettings(300)]
        assert app.current_mode == "results"
        await burst(app, pilot, "1", "b", "escape", "b", *"400", "enter")
        await burst(app, pilot, "1", "slash", *"x1")
        assert [job.settings for job in jobs] == [DecodeSettings(300), DecodeSettings(400)]
        assert app.current_mode == "library"
        assert isinstance(app.focused, Input) and app.focused.value == "x1"

    drive(here(), steps)


def test_a_session_is_that_of_the_needs(here: Callable[[], App], drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await ask(app, pilot, "session")
        assert app.screen.query_one("#workload", Input).value == "chat"
        await press(app, pilot, "escape", "e", "right", "enter")
        assert "--workload coding" in in_dialog(await ask(app, pilot, "session"))

    drive(here(), steps)
