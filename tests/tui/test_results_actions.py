"""What the Results screen does with runs: open, compare, copy, save, delete."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Static

from ggbench.runs.outcome import Outcome
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.tui.app import GgbenchApp
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.measured_runs import CompareScreen, DetailsPane, RunDetails
from ggbench.tui.screens.results import ResultsScreen
from ggbench.tui.widgets.curves_plot import CurvesPlot
from tests.fakes.driving import press, settle
from tests.fakes.measured import put_run, start
from tests.fakes.results_screen import chosen, message, shown
from tests.fakes.snapshots import words_of
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


def test_a_zoomed_plot_is_shown_whole_again(look: Look, filled: Path) -> None:

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        whole = await press(app, pilot, "G", "enter")
        plot = app.screen.query_one(CurvesPlot)
        plot.action_zoom_in()
        await settle(app, pilot)
        assert words_of(app) != whole
        assert isinstance(app.focused, DetailsPane)
        assert await press(app, pilot, "r") == whole

    look(steps, (140, 45))


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


def test_a_run_that_measured_nothing_compares_too(look: Look, filled: Path) -> None:

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "space", "c")
        text = words_of(app)
        assert "! b did not complete: out of memory in load: [31mno room" in text
        assert "★" not in text

    look(steps, (100, 50))


def test_a_run_of_an_unknown_kind_is_opened_but_not_compared(look: Look, filled: Path) -> None:
    with contextlib.closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE runs SET kind = 'nobody_knows' WHERE id = 4")
    connection.close()

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "enter")
        assert isinstance(app.screen, RunDetails)
        assert "Run 4 · nobody_knows" in words_of(app)
        assert "! this ggbench has no experiment 'nobody_knows'" in words_of(app)
        assert "ggbench decode synth:qwen1.5-0.5b q2_k" in words_of(app)
        await press(app, pilot, "escape", "space", "space", "c")
        assert isinstance(app.screen, ResultsScreen)
        assert "run 4 cannot be read: this ggbench has no experiment 'nobody_knows'" in message(app)
        await press(app, pilot, "w", "c")
        assert "run 4 cannot be read" in message(app)

    look(steps, (100, 50))


def test_many_runs_are_wider_than_the_window(look: Look, filled: Path) -> None:
    with Store.open(filled) as store:
        for _ in range(4):
            put_run(store, start())

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, *["space"] * 8, "c")
        table = app.screen.query_one("#table", Static)
        lines = [table.render_line(y).text for y in range(table.size.height)]
        rows = [line.split() for line in lines if line.startswith((" B ms", "B ms"))]
        assert len(rows) > 1
        assert sum(row.count("10.01") for row in rows) == 4
        assert any("17.02 ±0.10" in line for line in lines)
        assert max(len(line.rstrip()) for line in lines) <= 80

    look(steps)


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


def test_without_samples_there_is_no_picture_to_save(look: Look, filled: Path) -> None:
    with Store.open(filled) as store:
        run_id = store.begin(start())
        store.finish(run_id, dataclasses.replace(listed_run(store.load_run(1)), outcome=Outcome.CANCELLED))

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert "❯     5  –" in words_of(app)
        await press(app, pilot, "w")
        assert "rows and samples, two files" in words_of(app)
        assert "SVG" not in words_of(app)
        await press(app, pilot, "s")
        assert not isinstance(app.screen, ResultsScreen)

    look(steps)


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


def test_deleting_what_is_gone_already_is_no_error(look: Look, filled: Path) -> None:

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        with Store.open(filled) as store:
            store.delete_run(4)
        await press(app, pilot, "d", "y")
        assert "Deleted 1 run." in message(app)
        assert shown(app) == [3, 2, 1]

    look(steps)


def test_a_running_run_is_not_deleted(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        store.begin(start())

        async def steps(app: GgbenchApp, pilot: Page) -> None:
            assert "…" in words_of(app).splitlines()[3]
            await press(app, pilot, "w")
            assert "Run 1 is still running: saved with the samples so far." in words_of(app)
            await press(app, pilot, "escape", "d")
            assert "Run 1 is still running: it cannot be deleted before it ends." in words_of(app)
            await press(app, pilot, "y")
            assert "still running" in message(app)
            assert "stop it first" in message(app)
            assert shown(app) == [1]

        look(steps)
