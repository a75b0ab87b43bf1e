"""Folders and files added by hand: typed, pasted, given to the command, listed, refused and removed."""

import shutil
import struct
from pathlib import Path

import msgspec.structs
import pytest
from click.testing import CliRunner
from textual import events
from textual.pilot import Pilot

from ggbench.errors import BadFile, UnknownName
from ggbench.models.added_places import add_place, added_models, remembered_places
from ggbench.tui.app import GgbenchApp
from ggbench.tui.entry_point import command
from ggbench.tui.host import Services
from ggbench.tui.model_list import Section, list_models
from ggbench.tui.screens.library import LibraryScreen
from ggbench.tui.widgets.models_pane import ModelsPane, ModelTree
from tests.fakes.driving import NEED_16K, press, said, see, settle, table, words_of
from tests.fakes.library import CATALOG, FakePlanner, local
from tests.fakes.model_stores import gguf_bytes
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


@pytest.fixture
def models(tmp_path: Path, tiny_twin: Path) -> Path:
    folder = tmp_path / "my models"
    (folder / "below").mkdir(parents=True)
    for name in ("one-q8_0.gguf", "below/two-q8_0.gguf"):
        shutil.copy(tiny_twin, folder / name)
    key, q8_0, q4_0 = b"general.file_type", struct.pack("<II", 4, 7), struct.pack("<II", 4, 2)
    (folder / "one-q4_0.gguf").write_bytes(tiny_twin.read_bytes().replace(key + q8_0, key + q4_0))
    return folder


@pytest.fixture
def places(services: Services, monkeypatch: pytest.MonkeyPatch) -> Services:
    def searched(*_: object) -> None:
        pytest.fail("the Hub was searched")

    monkeypatch.setattr("ggbench.hub.listing.search_repos", searched)
    return msgspec.structs.replace(services, local_models=added_models)


def listed(app: App) -> list[str]:
    """Return the lines of the list of models, up to the catalog."""
    nodes = app.screen.query_one(ModelTree).lines.values()
    lines = [f"{node.data.title}  {node.data.note}".strip() for node in nodes if node.data]
    return lines[: lines.index("catalog")] if "catalog" in lines else lines


def test_a_typed_folder_is_added_listed_and_planned(
    places: Services, models: Path, planner: FakePlanner, drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await pilot.press("slash")
        app.screen.query_one(ModelsPane).input.value = str(models)
        await settle(app, pilot)
        assert listed(app) == [f"+ add {models}"]
        await press(app, pilot, "enter")
        assert app.screen.query_one(ModelsPane).input.value == ""
        lines = listed(app)
        assert lines[0].endswith("my models")
        assert lines[1:] == ["one  2 quants", "two-q8_0"]
        assert (str(models), ("one-q4_0.gguf", "one-q8_0.gguf")) in [each[:2] for each in planner.asked]
        assert table(app).has_focus

    drive(App(places), steps)
    assert remembered_places() == (models,)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(models / "below", "apart")

    async def later(app: App, pilot: Page) -> None:
        """A word that is also a folder can be added or searched for; enter alone never asks the Hub."""
        assert listed(app)[1:] == ["one  2 quants", "two-q8_0"]
        await press(app, pilot, "slash", *"apart")
        assert listed(app) == ["+ add apart", "⌕ search the Hub for apart"]
        await press(app, pilot, "enter")
        assert len(listed(app)) == 5

    drive(App(places), later)


@pytest.mark.parametrize("text", ["{}", "'{}'", "file://{}", "{}\nsecond line"])
def test_a_path_is_pasted_wherever_the_focus_is(places: Services, models: Path, drive: Drive, text: str) -> None:
    pasted = text.format(models / "one-q8_0.gguf")

    async def steps(app: App, pilot: Page) -> None:
        app.post_message(events.Paste(pasted))
        await settle(app, pilot)
        await press(app, pilot, "enter")
        assert listed(app)[1:] == ["one-q8_0"]

    drive(App(places), steps)


def test_what_cannot_be_added_is_one_line(places: Services, tmp_path: Path, drive: Drive) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.gguf").write_text("no model")

    async def steps(app: App, pilot: Page) -> None:
        field = app.screen.query_one(ModelsPane).input
        for name, reason in {
            "nowhere": "no such file or folder",
            "empty": "no GGUF file",
            "notes.gguf": "notes.gguf",
        }.items():
            await press(app, pilot, "slash")
            field.value = str(tmp_path / name)
            shown = await see(app, pilot, "enter")
            assert f"✗ {tmp_path}"[:20] in shown or "✗ no such" in shown
            assert reason in " ".join(shown.split())
            assert field.value == str(tmp_path / name)
        assert "✗" not in await see(app, pilot, "backspace")

    drive(App(places), steps, (160, 24))
    assert remembered_places() == ()


def test_a_place_is_removed_and_its_files_stay(places: Services, models: Path, drive: Drive) -> None:
    add_place(models)

    async def steps(app: App, pilot: Page) -> None:
        assert len(listed(app)) == 3
        await press(app, pilot, "d")
        assert listed(app) == []
        assert "its files stay" in said(app)

    drive(App(places), steps)
    assert remembered_places() == ()
    assert (models / "one-q8_0.gguf").exists()


def test_the_app_opens_on_a_model(places: Services, models: Path, planner: FakePlanner, drive: Drive) -> None:
    add_place(models)
    wanted: dict[Path | str, str] = {
        models / "below/two-q8_0.gguf": str(models / "below/two-q8_0.gguf"), models / "one-q4_0.gguf": str(models),
        "vast-72b": "vast-72b", "twin:vast-72b": "twin:vast-72b", "maker/other-gguf": "maker/other-gguf",
    }  # fmt: skip
    quants: dict[Path | str, str] = {"twin:vast-72b": "Q4_0", models / "one-q4_0.gguf": "ONE-Q8_0.GGUF"}
    for opens, model in wanted.items():
        opens_quant = quants.get(opens)

        async def steps(app: App, pilot: Page, model: str = model, opens_quant: str | None = opens_quant) -> None:
            library = app.screen
            assert isinstance(library, LibraryScreen)
            assert library.library.entry is not None
            assert library.library.entry.model == model
            assert model in {each[0] for each in planner.asked}  # a dropped plan of another may ask after it
            assert table(app).has_focus
            if opens_quant is None:
                return
            chosen = table(app).chosen
            assert chosen is not None and chosen.is_called(opens_quant)
            await press(app, pilot, "up", *NEED_16K)  # from then on the cursor is the user's
            assert table(app).chosen not in (None, chosen)

        drive(App(places, opens=opens, opens_quant=opens_quant), steps)


def test_the_command_takes_a_path_or_a_model(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    class Recorded(GgbenchApp):
        def run(self, *_: object, **__: object) -> None:
            opened.append((self.opens, self.opens_quant))

    monkeypatch.setattr("ggbench.tui.app.GgbenchApp", Recorded)
    monkeypatch.setattr("ggbench.tui.entry_point.is_terminal", lambda: True)
    run = CliRunner().invoke
    wanted: dict[str, tuple[object, str | None]] = {
        str(models): (models / "one-q4_0.gguf", None),
        f"{models}:Q8_0": (models / "one-q8_0.gguf", "one-q8_0.gguf"),
        str(models / "one-q8_0.gguf"): (models / "one-q8_0.gguf", "one-q8_0.gguf"),
        "qwen1.5-7b": ("qwen1.5-7b", None), "twin:qwen1.5-7b:q4_k_m": ("twin:qwen1.5-7b", "q4_k_m"),
        "hf:maker/small-gguf": ("maker/small-gguf", None), "maker/small-gguf:q8_0": ("maker/small-gguf", "q8_0"),
    }  # fmt: skip
    for argument in wanted:
        assert run(command, [argument, "--offline"]).exit_code == 0
    assert opened == list(wanted.values())
    assert remembered_places() == (models,)
    assert isinstance(run(command, [str(models / "nowhere.gguf")]).exception, BadFile)
    assert isinstance(run(command, ["qwen1.5-8b"]).exception, UnknownName)
    assert "not a server" in str(run(command, ["http://127.0.0.1:8080/v1"]).exception)


def test_quants_are_grouped_by_folder_and_name(tmp_path: Path) -> None:
    for name in ("a/m-Q8_0.gguf", "a/M-q4_0.gguf", "a/n-q8_0.gguf", "b/m-q8_0.gguf", "b/plain.gguf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gguf_bytes())
    (tmp_path / "b/broken-q8_0.gguf").write_bytes(b"GGUF")
    add_place(tmp_path)
    entries = [entry for entry in list_models(CATALOG, added_models()) if entry.section is Section.ADDED]
    assert [(entry.title, entry.about, Path(entry.model).relative_to(tmp_path).as_posix()) for entry in entries] == [
        ("M", "2 quants", "a"), ("m-q8_0", "", "b/m-q8_0.gguf"), ("n-q8_0", "", "a/n-q8_0.gguf"),
        ("plain", "", "b/plain.gguf"), ("broken-q8_0", "", "b/broken-q8_0.gguf"),
    ]  # fmt: skip
    assert entries[-1].reason
    for maker in ("one", "other"):
        path = tmp_path / "c" / maker / "m-GGUF" / "z-q8_0.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(gguf_bytes())
    titles = [entry.title for entry in list_models(CATALOG, added_models()) if entry.title.endswith("z-q8_0")]
    assert [title.split("/")[-3] for title in sorted(titles)] == ["one", "other"]
    assert len({entry.key for entry in entries}) == len(entries)


def test_only_a_twin_that_was_added_is_listed() -> None:
    own = local("twin:small-0.6b", "q8_0", store="twins")
    listed = list_models(CATALOG, [own, msgspec.structs.replace(own, place=own.paths[0])])
    assert [entry.section for entry in listed if entry.files] == [Section.ADDED]


def test_a_typed_server_is_for_the_command_line(places: Services, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await pilot.press("slash")
        app.screen.query_one(ModelsPane).input.value = "http://127.0.0.1:9"
        await settle(app, pilot)
        await press(app, pilot, "enter")
        assert "✗ this command needs a model file, not a server" in words_of(app)

    drive(App(places), steps)
