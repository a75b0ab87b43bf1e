"""The Results screen over a real store: what it lists, in which order, and how it moves."""

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.tui.app import GgbenchApp
from ggbench.tui.screens.measured_runs import RunDetails
from ggbench.tui.screens.results import ResultsScreen
from ggbench.tui.widgets.runs_table import RunsTable
from tests.fakes.driving import check_snapshot, chosen, press, runs_table, settle, shown, words_of
from tests.fakes.measured import put_run, start
from tests.tui.conftest import Look

Page = Pilot[None]

pytestmark = pytest.mark.usefixtures("start_with_results")


def test_all_runs_are_listed_newest_first(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert shown(app) == [4, 3, 2, 1]
        lines = words_of(app).splitlines()
        assert "4 runs · newest first" in lines[1]
        assert lines[3].startswith("❯     4  ✗  synth:qwen1.5-0.5b  q2_k")
        assert "97." in lines[3]
        assert "decode   47.79 ±0.11" in lines[4]

    look(steps)


def test_any_column_sorts_and_what_is_not_known_comes_last(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j")
        assert chosen(app) == 3
        header = words_of(app).splitlines()[2]
        await pilot.click(RunsTable, offset=(header.index("speed"), 0))
        await settle(app, pilot)
        assert shown(app) == [4, 1, 3, 2]
        assert "by speed tok/s ▼" in words_of(app)
        await press(app, pilot, "S")
        assert shown(app) == [3, 1, 4, 2]
        await press(app, pilot, "s")
        assert shown(app) == [1, 3, 4, 2]
        assert "by W tokens/ms ▼" in words_of(app)
        assert chosen(app) == 3
        await press(app, pilot, "s", "s")
        assert shown(app)[-1] == 2
        assert "by outcome ▲" in words_of(app)

    look(steps)


def test_a_filter_takes_every_letter_and_leaves_the_marks(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "space")
        await press(app, pilot, "slash", *"completed q8")
        assert shown(app) == [3]
        assert isinstance(app.screen, ResultsScreen)
        assert "1 of 4 runs · 1 marked, 1 hidden" in words_of(app)
        await press(app, pilot, "enter")
        assert app.focused is runs_table(app)
        assert shown(app) == [3]
        await press(app, pilot, "slash", *"zz")
        assert "No run matches “zz”" in words_of(app)
        await press(app, pilot, "escape")
        assert shown(app) == [4, 3, 2, 1]
        assert app.screen.query_one("#filter", Input).styles.display == "none"
        assert "1 marked" in words_of(app)

    look(steps)


def test_a_long_list_scrolls_with_its_cursor(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        run_id = put_run(store, start(), n_gen=300)
        run = listed_run(store.load_run(run_id))
        for _ in range(199):
            store.finish(store.begin(start()), run)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "G")
        assert "❯     1" in words_of(app)
        await pilot.resize_terminal(80, 16)
        await settle(app, pilot)
        assert "❯     1" in words_of(app)
        await press(app, pilot, "pageup", *("right",) * 30)
        assert chosen(app) != 1
        assert "❯" in words_of(app)
        assert "synth:qwen1.5-0.5b  q4_k_m" in words_of(app)
        assert "note" in words_of(app).splitlines()[2]
        await press(app, pilot, "g")
        assert "❯   200" in words_of(app)

    look(steps)


def test_the_mouse_chooses_marks_and_opens(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await pilot.click(RunsTable, offset=(20, 3))
        assert chosen(app) == 2
        await pilot.click(RunsTable, offset=(1, 4))
        await settle(app, pilot)
        assert "1 marked" in words_of(app)
        await pilot.click(RunsTable, offset=(20, 2), times=2)
        await settle(app, pilot)
        assert isinstance(app.screen, RunDetails)
        assert "Run 3" in words_of(app)

    look(steps)


def test_a_window_too_small_says_so_and_nothing_else(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "y")
        for keys in (("j",), ("enter",)):
            await press(app, pilot, *keys)
            await pilot.resize_terminal(50, 12)
            await settle(app, pilot)
            assert " ".join(words_of(app).split()).endswith("enlarge this one")
            await pilot.resize_terminal(80, 24)
            await settle(app, pilot)
            assert "q8_0" in words_of(app)

    look(steps)


def test_names_cannot_steer_the_screen(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        put_run(store, start(model="[red]\x1b[31mx[/]", quant="日本語量子化の名前がとても長い"), n_gen=30)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert "[red][31mx[/]" in words_of(app)
        await press(app, pilot, "d")
        assert "[red][31mx[/]" in words_of(app)
        await press(app, pilot, "n", "enter")
        assert "[red][31mx[/]" in words_of(app)

    look(steps)


def test_pictures(look: Look, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "j", "space")
        check_snapshot(app, "results")
        await press(app, pilot, "c")
        check_snapshot(app, "compare")
        await press(app, pilot, "escape", "G", "enter")
        check_snapshot(app, "run_details")

    look(steps)


def test_picture_of_nothing(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        check_snapshot(app, "results_empty")

    look(steps)
