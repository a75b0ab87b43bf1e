"""The Results screen over a real store: what it lists, in which order, and how it moves."""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import msgspec.structs
import pytest
from textual.events import AppFocus
from textual.pilot import Pilot
from textual.widgets import Input, Label
from textual.worker import WorkerFailed

from ggbench.decisions.compare.comparison import columns_of, compare
from ggbench.errors import StoreError
from ggbench.models.subject import Subject
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.text import has_words
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import RunStored, Services
from ggbench.tui.screens.results import OpenedRuns, ResultsScreen
from ggbench.tui.stored_runs import job_again, read_runs, saved_runs
from ggbench.tui.widgets.runs_table import RunsTable
from tests.fakes.driving import (
    burst,
    check_snapshot,
    chosen,
    press,
    runs_table,
    said,
    see,
    settle,
    shown,
    words_of,
)
from tests.fakes.measured import put_run, start
from tests.tui.conftest import Drive, Look

Page = Pilot[None]

pytestmark = pytest.mark.usefixtures("start_with_results")


def rows_of(app: GgbenchApp) -> list[list[str]]:
    """The words of each run in view, of a table that is alone."""
    lines = [line.strip("│╭╰ ").removeprefix("●").split() for line in words_of(app).splitlines()[3:]]
    return [line for line in lines if line and line[0].isdecimal()]


def opened(app: GgbenchApp) -> list[int | None]:
    return app.screen.query_one(OpenedRuns).run_ids


def test_all_runs_are_listed_newest_first(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert shown(app) == [4, 3, 2, 1]
        assert " 4 runs " in words_of(app).splitlines()[1]
        run, *_ = rows_of(app)
        assert run == ["4", "twin:qwen1.5-0.5b", "q2_k", "decode", "97.6", "interrupted"]
        await pilot.resize_terminal(200, 24)
        await settle(app, pilot)
        expected = "3 twin:qwen1.5-0.5b q8_0 decode 47.79 ±0.16 17.03 ±0.18 391 ±16 completed 3,000"
        assert " ".join(rows_of(app)[1]).startswith(expected)

    look(steps)


def test_a_filter_takes_every_letter_and_leaves_the_marks(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "space")
        await press(app, pilot, "slash", *"completed q8")
        assert shown(app) == [3]
        assert isinstance(app.screen, ResultsScreen)
        assert "1 of 4 runs, ● 1 marked" in words_of(app)
        await press(app, pilot, "enter")
        assert app.focused is runs_table(app)
        assert shown(app) == [3]
        await press(app, pilot, "slash", *"zz")
        assert "No run matches “zz”" in words_of(app)
        await press(app, pilot, "escape")
        assert shown(app) == [4, 3, 2, 1]
        assert not app.screen.query_one("#filter", Input).display
        assert "1 marked" in words_of(app)
        assert "marked" not in await see(app, pilot, "escape")

    look(steps)


def test_a_long_list_scrolls_with_its_cursor(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        run_id = put_run(store, start())
        run = listed_run(store.load_run(run_id))
        for _ in range(199):
            store.finish(store.begin(start()), run)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "end")
        assert rows_of(app)[-1][0] == "1"
        await pilot.resize_terminal(80, 16)
        await settle(app, pilot)
        assert chosen(app) == 1
        assert rows_of(app)[-1][0] == "1"
        await press(app, pilot, "pageup")
        assert chosen(app) not in (1, 200)
        await press(app, pilot, "home")
        assert rows_of(app)[0][0] == "200"

    look(steps)


def test_the_mouse_chooses_and_opens(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await pilot.click(RunsTable, offset=(20, 4))
        assert chosen(app) == 2
        await pilot.click(RunsTable, offset=(20, 3))
        await pilot.click(RunsTable, offset=(20, 3))
        await settle(app, pilot)
        assert opened(app) == [3]

    look(steps)


def test_names_cannot_steer_the_screen(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        put_run(store, start(model="[red]\x1b[31mx[/]", quant="日本語量子化の名前がとても長い"), n_gen=30)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert "[red][31mx[/]" in words_of(app)
        assert "Delete run 1 ([red][31mx[/]" in await see(app, pilot, "d")
        await press(app, pilot, "n", "enter")
        assert "[red][31mx[/]" in words_of(app)

    look(steps)


def test_pictures(look: Look, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "j", "j", "space")
        check_snapshot(app, "results")
        await press(app, pilot, "c")
        check_snapshot(app, "compare")
        await press(app, pilot, "escape", "end", "enter")
        check_snapshot(app, "run_details")

    look(steps)


def test_picture_of_nothing(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        check_snapshot(app, "results_empty")

    look(steps)


def test_a_locked_store_is_read_again(services: Services, drive: Drive, filled: Path) -> None:
    """The error takes the list's place until the runs are read; a later error leaves them in view."""
    locked = True

    def open_store() -> Store:
        if locked:
            raise StoreError("another program kept the file locked for 10 s", "try again when it has finished")
        return Store.open(filled)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        nonlocal locked
        assert "kept the file locked" in words_of(app)
        assert "Press r to try again" in words_of(app)
        locked = False
        await press(app, pilot, "r")
        assert shown(app) == [4, 3, 2, 1]
        await press(app, pilot, "j")
        assert chosen(app) == 3
        locked = True
        await press(app, pilot, "r")
        assert shown(app) == [4, 3, 2, 1]
        assert "kept the file locked" in said(app)
        for keys in (("enter",), ("s",), ("d", "y")):
            app.clear_notifications()
            await press(app, pilot, *keys)
            assert isinstance(app.screen, ResultsScreen)
            assert "try again when it has finished" in said(app)

    drive(GgbenchApp(msgspec.structs.replace(services, open_store=open_store)), steps)


def test_a_run_that_arrives_moves_nothing(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "j", "slash", *"qwen1.5", "enter")
        assert chosen(app) == 2
        with Store.open(filled) as store:
            put_run(store, start(quant="q2_k"), n_gen=30)
            put_run(store, start(model="another"), n_gen=30)
        app.screen.post_message(RunStored())
        await settle(app, pilot)
        assert shown(app) == [5, 4, 3, 2, 1]
        assert chosen(app) == 2
        assert "1 marked" in words_of(app)
        assert "5 of 6 runs" in words_of(app)

    look(steps)


def test_what_another_process_stored_is_shown_when_the_terminal_has_the_focus_again(look: Look, filled: Path) -> None:
    """A run that begins, ends or is deleted elsewhere."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        async def look_again() -> list[int]:
            app.post_message(AppFocus())
            await settle(app, pilot)
            return shown(app)

        with Store.open(filled) as store:
            run_id = store.begin(start(quant="q2_k"))
            assert await look_again() == [5, 4, 3, 2, 1]
            assert "running" in rows_of(app)[0]
            store.finish(run_id, listed_run(store.load_run(1)))
            await look_again()
            assert "completed" in rows_of(app)[0]
            store.delete_run(3)
            assert await look_again() == [5, 4, 2, 1]
            for keys in (("enter",), ("s",)):  # opening or saving a run that is gone says so
                gone = shown(app)[0]
                store.delete_run(gone)
                await press(app, pilot, "home", *keys)
                assert f"no run named '{gone}'" in said(app)
                assert shown(app)[0] < gone
            assert shown(app) == [2, 1]

    look(steps)


def test_an_unexpected_error_is_reported_and_ends_nothing(services: Services, drive: Drive, filled: Path) -> None:
    """A run may be in progress behind this screen, so an unexpected error is shown and does not end the app."""
    works = True

    def open_store() -> Store:
        if not works:
            raise RuntimeError("nobody foresaw this")
        return Store.open(filled)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        nonlocal works
        works = False
        with contextlib.suppress(WorkerFailed):  # where it is still waited for
            await press(app, pilot, "r")
        await pilot.pause()
        assert "nobody foresaw this" in said(app)
        works = True
        await press(app, pilot, "r", "enter")
        assert opened(app) == [4]

    drive(GgbenchApp(msgspec.structs.replace(services, open_store=open_store)), steps)


def test_enter_opens_one_run_in_full(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "end", "enter")
        assert opened(app) == [1]
        assert "run 1 · decode · 2026-11-20 01:00 UTC" in words_of(app)
        assert "Model" in await see(app, pilot, "w")
        assert "Model" not in await see(app, pilot, "w")
        whole = await see(app, pilot, "0")
        assert await see(app, pilot, "+") != whole
        assert await see(app, pilot, "0") == whole
        await press(app, pilot, "escape", "k", "enter")
        assert "out of memory" in words_of(app)

    look(steps, (140, 45))


def test_the_list_is_beside_what_is_open_where_there_is_room(look: Look, filled: Path) -> None:
    """Another run is opened in its place; the list is what another screen leads back to."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "enter")
        assert opened(app) == [4] and runs_table(app).display
        runs_table(app).focus()
        await press(app, pilot, "j", "enter")
        assert opened(app) == [3]
        await pilot.resize_terminal(120, 36)
        await settle(app, pilot)
        assert "outcome" not in words_of(app)
        await press(app, pilot, "1", "3")
        assert not app.screen.query(OpenedRuns)
        assert "outcome" in words_of(app)

    look(steps, (200, 50))


def test_two_marked_runs_are_compared(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space")
        await press(app, pilot, "c")
        assert "Mark two or more finished runs" in said(app)
        await press(app, pilot, "j", "j", "space", "c")
        text = words_of(app)
        assert "runs 1 with 3" in text
        assert "No verdict, one run each" in text
        assert len((await see(app, pilot, "w")).split()) > 30
        await press(app, pilot, "y")
        assert "| speed tok/s |" in app.clipboard
        await press(app, pilot, "escape")
        assert "2 marked" in words_of(app)

    look(steps, (100, 50))


def test_a_table_has_whole_cells_as_soon_as_it_is_drawn(look: Look, filled: Path) -> None:
    """A dialog over it may draw it before Textual measures its cells."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        table = runs_table(app)
        table.draw()
        assert "q4_k_m" in "".join(table.render_line(y).text for y in range(table.row_count + 1))
        await pilot.pause()

    look(steps, (120, 40))


def test_repeated_runs_are_compared_by_their_means(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        for quant, b_ms in (("q4_k_m", 10.0), ("q2_k", 10.4), ("q4_k_m", 10.1), ("q2_k", 10.6)):
            put_run(store, start(quant=quant), b_ms, n_gen=300)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        words = " ".join((await see(app, pilot, *["space", "j"] * 4, "c")).split())
        assert "runs 1, 3 with 2, 4" in words
        await press(app, pilot, "escape", "space", "k", "space", "home", "j")  # runs 3 and 4 are left
        words = " ".join((await see(app, pilot, "c")).split())
        assert "runs 3 with 4" in words
        await press(app, pilot, "b")
        question = str(app.screen.query_one(Label).content)
        assert "Measure q4_k_m (run 3) and q2_k (run 4) again in 4 turns (about 0 s)? Then" in question
        assert "other programs used" not in question

    look(steps, (120, 50))


def test_a_key_right_after_a_mark_sees_it(
    look: Look, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await burst(app, pilot, "space", "j", "space", "S")
        assert said(app).endswith("ggbench-runs-3-4.json")
        await burst(app, pilot, "home", "space", "j", "space", "j", "space", "d", "y")
        assert "Deleted run 2 (twin:qwen1.5-0.5b f16)" in said(app)
        await burst(app, pilot, "home", "enter")
        await press(app, pilot, "S")
        assert said(app).endswith("ggbench-run-4.json")
        assert opened(app) == [4]

    look(steps)


def test_the_command_is_copied_and_shown(
    look: Look, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command is one line whatever was stored: a line break would run it as soon as it is pasted. In tmux it is in
    the buffer of tmux.
    """
    tmux = tmp_path / "bin" / "tmux"
    tmux.parent.mkdir()
    tmux.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\ncat > {tmp_path}/buffer\n')
    tmux.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmux.parent), prepend=os.pathsep)
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    with Store.open(path) as store:
        put_run(store, start(command="ggbench bench 'a [b]model'\nrm -rf x"), n_gen=30)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "y")
        assert app.clipboard == "ggbench bench 'a [b]model' rm -rf x" == (tmp_path / "buffer").read_text()
        assert (tmp_path / "arguments").read_text() == "load-buffer -w -\n"
        assert "ggbench bench 'a [b]model' rm -rf x" in words_of(app)
        with Store.open(path) as store:
            put_run(store, start(command="ggbench bench other"), n_gen=30)
        await press(app, pilot, "r", "home", "space", "j", "space", "y")
        assert app.clipboard == "ggbench bench 'a [b]model' rm -rf x\nggbench bench other"
        assert "ggbench bench other" in said(app)

    look(steps)


def test_runs_are_saved_where_ggbench_was_started(
    look: Look, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.formats.report_page.vega_script", str)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "s")
        assert f"Saved {folder}/ggbench-run-3.html" in said(app).replace("\n", "")
        await press(app, pilot, "end", "enter", "s")
        assert "Saved" in words_of(app)
        names = sorted(file.name for file in folder.iterdir())
        assert names == ["ggbench-run-1.html", "ggbench-run-3.html"]

    look(steps, (140, 45))


def test_the_run_at_the_cursor_or_the_marked_ones_are_deleted_after_a_question(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "end", "d")
        question = str(app.screen.query_one(Label).content)
        assert question == "Delete run 1 (twin:qwen1.5-0.5b q4_k_m)?"
        await press(app, pilot, "n")
        assert shown(app) == [4, 3, 2, 1]
        await press(app, pilot, "d", "y")
        assert shown(app) == [4, 3, 2]
        assert chosen(app) == 2  # near the one that is gone
        await press(app, pilot, "home", "space", "j", "space", "d", "y")
        assert shown(app) == [2]
        assert "Deleted 2 runs (3, 4)." in said(app)

    look(steps)
    with Store.open(filled) as store:
        assert [run.run_id for run in store.list_runs()] == [2]


def test_runs_are_listed_by_model(look: Look, filled: Path) -> None:
    """Each model's runs are together, the model of the newest first."""
    with Store.open(filled) as store:
        put_run(store, start(model="another-1b"), n_gen=30)
        put_run(store, start(quant="q5_0"), n_gen=30)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert shown(app) == [6, 4, 3, 2, 1, 5]
        assert [row[1] for row in rows_of(app)] == ["twin:qwen1.5-0.5b"] * 5 + ["another-1b"]

    look(steps)


def test_a_running_run_is_not_deleted(look: Look, path: Path) -> None:
    with Store.open(path) as store:
        store.begin(start())

        async def steps(app: GgbenchApp, pilot: Page) -> None:
            assert "running" in rows_of(app)[0]
            await press(app, pilot, "d", "y")
            assert "still running" in said(app)
            assert "stop it first" in said(app)
            assert shown(app) == [1]
            await press(app, pilot, "enter")
            assert "interrupted" not in words_of(app) and "still running" in words_of(app)
            put_run(store, start(), n_gen=30)
            put_run(store, start(), n_gen=30)
            await press(app, pilot, "escape", "r", "home", "space", "end", "space", "c")
            assert "Mark two or more finished runs" in said(app)
            await press(app, pilot, "home", "j", "space", "c")
            assert "runs 2 with 3" in words_of(app)

        look(steps)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("setup = '[]'", "another version of ggbench"),
        ("result = '[]'", "another version of ggbench"),
        ("kind = 'nobody_knows'", "no experiment 'nobody_knows'"),
        ("engine = 'nobody_knows'", "no engine 'nobody_knows'"),
    ],
)
def test_a_run_that_cannot_be_read_is_listed_with_the_reason(filled: Path, change: str, reason: str) -> None:
    with contextlib.closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute(f"UPDATE runs SET {change} WHERE id = 1")
    connection.close()
    with Store.open(filled) as store:
        runs = read_runs(store, {})
    assert [run.run_id for run in runs] == [4, 3, 2, 1]
    assert reason in runs[-1].note
    assert [run for run in runs if has_words(run.searched, reason)] == [runs[-1]]
    assert (runs[-1].run is not None) == change.startswith("result")


def test_what_did_not_change_is_not_read_again(filled: Path) -> None:
    with Store.open(filled) as store:
        whole = read_runs(store, {})
        store._connection.execute("UPDATE runs SET state = 'failed' WHERE id = 2")
        again = read_runs(store, {run.run_id: run for run in whole})
    assert [run is before for run, before in zip(again, whole, strict=True)] == [True, True, False, True]
    assert again[2].stored.state == "failed"


def test_a_run_that_is_closed_before_it_is_drawn_ends_nothing(look: Look, filled: Path) -> None:
    with Store.open(filled) as store:
        runs = saved_runs(store, [4])

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        shown = OpenedRuns(runs, compare(columns_of([each.run for each in runs])))
        app.screen.mount(shown)
        await shown.remove()
        await settle(app, pilot)
        assert app.is_running

    look(steps)


def test_a_run_that_cannot_be_read_is_not_opened(look: Look, filled: Path) -> None:
    with contextlib.closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE runs SET setup = '[]' WHERE id = 4")

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "enter")
        assert isinstance(app.screen, ResultsScreen)
        assert "another version of ggbench" in said(app)

    look(steps)


def test_a_run_is_measured_again_with_its_own_file(tmp_path: Path, tiny_twin: Path, services: Services) -> None:
    """Also where its name and quant no longer select one file; without its file, by its name."""
    files = [tmp_path / f"{name}-q8_0.gguf" for name in ("a", "b")]
    for file in files:
        shutil.copy(tiny_twin, file)
    stored = Subject(model=str(tmp_path), quant="q8_0", source="file", file=str(files[1]))
    head = msgspec.structs.replace(start(), subject=stored)
    job = job_again(services, head)
    assert (job.target.path, job.target.model, job.target.quant) == (files[1], stored.model, "q8_0")
    assert (job.setup, job.settings) == (head.setup, head.settings)
    files[1].unlink()
    assert job_again(services, head).target.path == files[0]
