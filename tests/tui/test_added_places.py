"""Folders and files added by hand: typed, pasted, given to the command, listed, refused and removed."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from textual import events
from textual.pilot import Pilot

from ggbench.catalog.added_places import add_place, added_models, remembered_places
from ggbench.errors import BadFile, UnknownName
from ggbench.tui.app import GgbenchApp
from ggbench.tui.entry_point import command
from ggbench.tui.library_models import Section, list_models
from ggbench.tui.services import Services
from ggbench.tui.widgets.models_pane import ModelList, ModelsPane
from tests.fakes.driving import press, settle
from tests.fakes.library import CATALOG, FakePlanner
from tests.fakes.library_screen import table
from tests.fakes.model_stores import gguf_bytes
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


@pytest.fixture
def models(tmp_path: Path, tiny_twin: Path) -> Path:
    """A folder with two quants of one model, and another model below it."""
    folder = tmp_path / "my models"
    (folder / "below").mkdir(parents=True)
    for name in ("one-q8_0.gguf", "one-q4_0.gguf", "below/two-q8_0.gguf"):
        shutil.copy(tiny_twin, folder / name)
    return folder


@pytest.fixture
def places(services: Services, monkeypatch: pytest.MonkeyPatch) -> Services:
    """The disk has what was added by hand alone; a search of the Hub fails the test."""

    def searched(*_: object) -> None:
        pytest.fail("the Hub was searched")

    monkeypatch.setattr("ggbench.hub.listing.search_repos", searched)
    return dataclasses.replace(services, local_models=added_models)


def listed(app: App) -> list[str]:
    """The lines of the list of models, up to the twins."""
    lines = [str(option.prompt).strip() for option in app.screen.query_one(ModelList).options]
    return lines[: lines.index("twins: no download")] if "twins: no download" in lines else lines


def test_a_typed_folder_is_added_listed_and_planned(
    places: Services, models: Path, planner: FakePlanner, drive: Drive
) -> None:
    """Under its own heading, the quants of a model as one; the filter is empty again, and the next start has it."""

    async def steps(app: App, pilot: Page) -> None:
        await pilot.press("slash")
        app.screen.query_one(ModelsPane).input.value = str(models)
        await settle(app, pilot)
        assert listed(app) == ["a folder or file", f"+ add {models}"]
        await press(app, pilot, "enter")
        assert app.screen.query_one(ModelsPane).input.value == ""
        lines = listed(app)
        assert lines[0].endswith("my models")
        assert lines[1:] == ["one  2 quants", "two-q8_0"]
        assert planner.asked[-1][:2] == (str(models), ("one-q4_0.gguf", "one-q8_0.gguf"))
        assert table(app).has_focus

    drive(App(places), steps)
    assert remembered_places() == (models,)

    async def later(app: App, pilot: Page) -> None:
        assert listed(app)[1:] == ["one  2 quants", "two-q8_0"]

    drive(App(places), later)


@pytest.mark.parametrize("text", ["{}", "'{}'", "file://{}", "{}\nsecond line"])
def test_a_path_is_pasted_wherever_the_focus_is(places: Services, models: Path, drive: Drive, text: str) -> None:
    """Bracketed paste fills the filter, with what terminals and file managers put around a path."""
    pasted = text.format(models / "one-q8_0.gguf")

    async def steps(app: App, pilot: Page) -> None:
        app.post_message(events.Paste(pasted))
        await settle(app, pilot)
        await press(app, pilot, "enter")
        assert listed(app)[1:] == ["one-q8_0"]

    drive(App(places), steps)


def test_what_cannot_be_added_is_one_line(places: Services, tmp_path: Path, drive: Drive) -> None:
    """Nothing is remembered, the text stays to be corrected, and the line goes as soon as it is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.gguf").write_text("no model")

    async def steps(app: App, pilot: Page) -> None:
        field = app.screen.query_one(ModelsPane).input
        for name, reason in {
            "nowhere": "no such file or folder",
            "empty": "no GGUF model",
            "notes.gguf": "notes.gguf",
        }.items():
            await press(app, pilot, "slash")
            field.value = str(tmp_path / name)
            shown = await press(app, pilot, "enter")
            assert f"✗ {tmp_path}"[:20] in shown or "✗ no such" in shown
            assert reason in " ".join(shown.split())
            assert field.value == str(tmp_path / name)
        assert "✗" not in await press(app, pilot, "backspace")

    drive(App(places), steps, (160, 24))
    assert remembered_places() == ()


def test_a_word_that_is_also_a_folder_can_be_added_or_searched_for(
    places: Services, models: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lines are there; enter alone never asks the Hub."""
    monkeypatch.chdir(models)

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "slash", *"below")
        assert listed(app) == ["a folder or file", "+ add below", "found on the Hub", "⌕ search for “below”"]
        await press(app, pilot, "enter")
        assert listed(app)[1:] == ["two-q8_0"]

    drive(App(places), steps)


def test_a_place_is_removed_and_its_files_stay(places: Services, models: Path, drive: Drive) -> None:
    """By x on any of its models; on others the key does nothing."""
    add_place(models)

    async def steps(app: App, pilot: Page) -> None:
        assert len(listed(app)) == 3
        await press(app, pilot, "x")
        assert listed(app) == []
        assert ["its files stay" in each.message for each in app._notifications] == [True]
        await press(app, pilot, "x")

    drive(App(places), steps)
    assert remembered_places() == ()
    assert (models / "one-q8_0.gguf").exists()


def test_the_app_opens_on_a_model(places: Services, models: Path, planner: FakePlanner, drive: Drive) -> None:
    """On that of a file, on one of the catalog, and on a repo that no list has, which is then planned."""
    add_place(models)
    wanted: dict[Path | str, str] = {
        models / "below/two-q8_0.gguf": str(models / "below/two-q8_0.gguf"),
        models / "one-q4_0.gguf": str(models),
        "large-72b": "large-72b",
        "synth:large-72b": "synth:large-72b",
        "maker/other-gguf": "maker/other-gguf",
    }
    for opens, model in wanted.items():

        async def steps(app: App, pilot: Page, model: str = model) -> None:
            assert planner.asked[-1][0] == model
            assert table(app).has_focus

        drive(App(places, opens=opens), steps)


def test_the_command_takes_a_path_or_a_model(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is added before the screens open; what is neither is an error of the command."""
    opened: list[object] = []

    class Recorded(GgbenchApp):
        def run(self, *_: object, **__: object) -> None:
            opened.append(self.opens)

    monkeypatch.setattr("ggbench.tui.app.GgbenchApp", Recorded)
    monkeypatch.setattr("ggbench.tui.entry_point.is_terminal", lambda: True)
    run = CliRunner().invoke
    for argument in (str(models), "qwen1.5-7b", "synth:qwen1.5-7b", "hf:maker/small-gguf", "maker/small-gguf"):
        assert run(command, [argument, "--offline"]).exit_code == 0
    assert opened == [
        models / "one-q4_0.gguf",
        "qwen1.5-7b",
        "synth:qwen1.5-7b",
        "maker/small-gguf",
        "maker/small-gguf",
    ]
    assert remembered_places() == (models,)
    assert isinstance(run(command, [str(models / "nowhere.gguf")]).exception, BadFile)
    assert isinstance(run(command, ["qwen1.5-8b"]).exception, UnknownName)


def test_quants_are_grouped_by_folder_and_name(tmp_path: Path) -> None:
    """Two models of one folder are two; one without a quant in its name, and a broken one, are entries too."""
    for name in ("a/m-Q8_0.gguf", "a/M-q4_0.gguf", "a/n-q8_0.gguf", "b/m-q8_0.gguf", "b/plain.gguf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gguf_bytes())
    (tmp_path / "b/broken-q8_0.gguf").write_bytes(b"GGUF")
    add_place(tmp_path)
    entries = [entry for entry in list_models(CATALOG, added_models()) if entry.section is Section.ADDED]
    assert [(entry.title, entry.about, Path(entry.model).relative_to(tmp_path).as_posix()) for entry in entries] == [
        ("broken-q8_0", "", "b/broken-q8_0.gguf"),
        ("M", "2 quants", "a"),
        ("m-q8_0", "", "b/m-q8_0.gguf"),
        ("n-q8_0", "", "a/n-q8_0.gguf"),
        ("plain", "", "b/plain.gguf"),
    ]
    assert entries[0].reason
    assert len({entry.key for entry in entries}) == len(entries)
