"""What the Results screen does with runs: open, compare, copy, save, delete."""

from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot

from ggbench.runs.store.database import Store
from ggbench.tui.app import GgbenchApp
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.measured_runs import CompareScreen, RunDetails
from tests.fakes.driving import chosen, message, press, settle, shown, words_of
from tests.fakes.measured import put_run, start
from tests.tui.conftest import Look

Page = Pilot[None]

pytestmark = pytest.mark.usefixtures("start_with_results")


def test_enter_opens_one_run_in_full(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "G", "enter")
        assert isinstance(app.screen, RunDetails)
        assert "Run 1 · decode · 2026-11-20 01:00 UTC" in words_of(app)
        await press(app, pilot, "end")
        assert "Again: ggbench decode synth:qwen1.5-0.5b q4_k_m -n 3000" in words_of(app)
        await press(app, pilot, "escape", "k", "enter")
        assert "out of memory" in words_of(app)

    look(steps)


def test_two_marked_runs_are_compared(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space")
        await press(app, pilot, "c")
        assert "Mark two or more runs" in message(app)
        await press(app, pilot, "j", "space", "c")
        assert isinstance(app.screen, CompareScreen)
        text = words_of(app)
        assert "Comparing runs 3, 1" in text
        assert "★ 10.0" in text
        assert "b is better" in text
        assert "quant: q8_0 in a, q4_k_m in b" in text
        await press(app, pilot, "escape")
        assert "2 marked" in words_of(app)

    look(steps, (100, 50))


def test_a_key_right_after_a_mark_sees_it(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        async def at_once(*keys: str) -> None:
            for key in keys:
                app.post_message(Key(key, " " if key == "space" else key))
            await settle(app, pilot)

        await at_once("space", "d")
        assert "Delete run 4 (synth:qwen1.5-0.5b q2_k)" in words_of(app)
        await press(app, pilot, "n")
        await at_once("space", "w")
        assert "Save 2 runs (4, 3)" in words_of(app)
        await press(app, pilot, "escape")
        await at_once("g", "space", "space", "space", "d")
        assert "Delete run 2 (synth:qwen1.5-0.5b f16)" in words_of(app)
        await press(app, pilot, "n")
        await at_once("space", "c")
        assert "Comparing runs 2, 1" in words_of(app)

    look(steps)


def test_the_command_is_copied_and_shown(look: Look, path: Path) -> None:
    """On one line whatever was stored: a line break would run it as soon as it is pasted; the marked, a line each."""
    with Store.open(path) as store:
        put_run(store, start(command="ggbench bench 'a [b]model'\nrm -rf x"), n_gen=30)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "y")
        assert app.clipboard == "ggbench bench 'a [b]model' rm -rf x"
        assert "ggbench bench 'a [b]model' rm -rf x" in words_of(app)
        with Store.open(path) as store:
            put_run(store, start(command="ggbench bench other"), n_gen=30)
        await press(app, pilot, "r", "g", "space", "space", "y")
        assert app.clipboard == "ggbench bench other\nggbench bench 'a [b]model' rm -rf x"
        assert "Copied 2 commands" in message(app)

    look(steps)


def test_runs_are_saved_where_ggbench_was_started(
    look: Look, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "w", "c")
        assert f"Saved {folder}/ggbench-run-3.csv" in message(app).replace("\n", "")
        await press(app, pilot, "w", "h")
        assert f"Saved {folder}/ggbench-run-3.html" in message(app).replace("\n", "")
        await press(app, pilot, "G", "enter", "w", "j", "j", "enter")
        assert "Saved" in words_of(app)
        await press(app, pilot, "w", "escape", "escape", "k", "k", "k", "enter", "w", "s")
        assert sorted(file.name for file in folder.iterdir()) == [
            "ggbench-run-1-b.svg", "ggbench-run-1-memory.svg", "ggbench-run-1-speed.svg", "ggbench-run-1-w.svg",
            "ggbench-run-1.svg", "ggbench-run-3-samples.csv", "ggbench-run-3.csv", "ggbench-run-3.html",
            "ggbench-run-4-speed.svg", "ggbench-run-4.svg",
        ]  # fmt: skip

    look(steps, (140, 45))


def test_deleting_asks_first(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "space", "space", "G", "d")
        assert isinstance(app.screen, ConfirmScreen)
        assert "Delete 2 runs (4, 3) with 3,100 samples?" in words_of(app)
        await press(app, pilot, "n")
        assert shown(app) == [4, 3, 2, 1]
        await press(app, pilot, "d", "y")
        assert shown(app) == [2, 1]
        assert chosen(app) == 1
        assert "Deleted 2 runs." in message(app)
        await press(app, pilot, "d", "y")
        assert shown(app) == [2]

    look(steps)
    with Store.open(filled) as store:
        assert [run.run_id for run in store.list_runs()] == [2]


def test_a_running_run_is_not_deleted(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        store.begin(start())

        async def steps(app: GgbenchApp, pilot: Page) -> None:
            assert "…" in words_of(app).splitlines()[3]
            await press(app, pilot, "w")
            assert "Run 1 is still running: saved with the samples so" in words_of(app)
            await press(app, pilot, "escape", "d")
            assert "Run 1 is still running: it cannot be deleted before it ends." in words_of(app)
            await press(app, pilot, "y")
            assert "still running" in message(app)
            assert "stop it first" in message(app)
            assert shown(app) == [1]

        look(steps)
