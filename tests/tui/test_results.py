"""The Results screen over a real store: list, sort, filter, mark, open, compare, copy, save, delete."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input, Static
from textual.worker import WorkerFailed

from ggbench.errors import StoreError
from ggbench.records import Outcome
from ggbench.store.database import Store
from ggbench.tui.app import GgbenchApp
from ggbench.tui.messages import RunStored
from ggbench.tui.screens.compare import CompareScreen
from ggbench.tui.screens.confirm import ConfirmScreen
from ggbench.tui.screens.results import ResultsScreen
from ggbench.tui.screens.run_details import RunDetails
from ggbench.tui.services import Services
from ggbench.tui.widgets.runs_table import RunsTable
from tests.fakes.library import settle
from tests.fakes.measured import fill, put_run, start
from tests.fakes.snapshots import check_snapshot, words_of
from tests.tui.conftest import Drive, Steps

Page = Pilot[None]
Size = tuple[int, int]
Look = Callable[..., None]


@pytest.fixture(autouse=True)
def start_with_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen that these tests are about."""
    monkeypatch.setattr(GgbenchApp, "DEFAULT_MODE", "results")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of `services` lives."""
    return tmp_path / "results.sqlite"


@pytest.fixture
def filled(path: Path) -> Path:
    """Runs 1 to 4: q4_k_m, f16 out of memory, q8_0, q2_k interrupted."""
    assert fill(path) == [1, 2, 3, 4]
    return path


@pytest.fixture
def look(services: Services, drive: Drive) -> Look:
    """Opens the Results screen and does these steps."""

    def run(steps: Steps, size: Size = (80, 24)) -> None:
        drive(GgbenchApp(services), steps, size)

    return run


async def press(app: GgbenchApp, pilot: Page, *keys: str) -> None:
    await pilot.press(*keys)
    await settle(app, pilot)


def table(app: GgbenchApp) -> RunsTable:
    return app.screen.query_one(RunsTable)


def shown(app: GgbenchApp) -> list[int]:
    return [run.run_id for run in table(app).runs]


def chosen(app: GgbenchApp) -> int | None:
    run = table(app).cursor_run
    return None if run is None else run.run_id


def told(app: GgbenchApp) -> str:
    return str(app.screen.query_one("#told", Static).render())


def test_all_runs_are_listed_newest_first(look: Look, filled: Path) -> None:
    """With glyphs for how they ended, and the fit of the interrupted one made from its samples."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert shown(app) == [4, 3, 2, 1]
        lines = words_of(app).splitlines()
        assert "4 runs · newest first" in lines[1]
        assert lines[3].startswith("❯     4  ✗  synth:qwen1.5-0.5b  q2_k")
        assert "97." in lines[3]
        assert "17.0" in lines[4]

    look(steps)


def test_any_column_sorts_and_what_is_not_known_comes_last(look: Look, filled: Path) -> None:
    """A header by mouse, the next column by `s`, the other way by `S` or a second click; the cursor stays."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j")
        assert chosen(app) == 3
        header = words_of(app).splitlines()[2]
        await pilot.click(RunsTable, offset=(header.index("B ms"), 0))
        await settle(app, pilot)
        assert shown(app) == [3, 4, 1, 2]
        await press(app, pilot, "S")
        assert shown(app) == [1, 4, 3, 2]
        await press(app, pilot, "s")
        assert shown(app) == [4, 1, 3, 2]
        assert "by speed tok/s ▼" in words_of(app)
        assert chosen(app) == 3
        await press(app, pilot, "s")
        assert shown(app)[-1] == 2
        assert "by outcome ▲" in words_of(app)

    look(steps)


def test_a_filter_takes_every_letter_and_leaves_the_marks(look: Look, filled: Path) -> None:
    """While it has the keys, `d` and `q` are letters; enter leaves it, esc takes it off."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "space")
        await press(app, pilot, "slash", *"completed q8")
        assert shown(app) == [3]
        assert isinstance(app.screen, ResultsScreen)
        assert "1 of 4 runs · 1 marked, 1 hidden" in words_of(app)
        await press(app, pilot, "enter")
        assert app.focused is table(app)
        assert shown(app) == [3]
        await press(app, pilot, "slash", *"zz")
        assert "No run has “zz”" in words_of(app)
        await press(app, pilot, "escape")
        assert shown(app) == [4, 3, 2, 1]
        assert app.screen.query_one("#filter", Input).styles.display == "none"
        assert "1 marked" in words_of(app)

    look(steps)


def test_two_marked_runs_are_compared(look: Look, filled: Path) -> None:
    """Less than two is told; the better one has a star and is named, and what differs is too; esc comes back."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space")
        await press(app, pilot, "c")
        assert "Mark two runs or more" in told(app)
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
    """Without a pause between them, a question names the runs that are marked, and no other."""

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


def test_a_run_that_measured_nothing_compares_too(look: Look, filled: Path) -> None:
    """No samples, no plot, and no better one; the reason is told without its control characters."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "space", "c")
        text = words_of(app)
        assert "! b did not complete: out of memory in load: [31mno room" in text
        assert "★" not in text

    look(steps, (100, 50))


def test_many_runs_are_wider_than_the_window(look: Look, filled: Path) -> None:
    """Their numbers are cut off nowhere: the rest comes into view to the right."""
    with Store.open(filled) as store:
        for _ in range(4):
            put_run(store, start())

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, *["space"] * 8, "c")
        await press(app, pilot, "pagedown", *["right"] * 60)
        assert "★ 10.01 ±0.08    10.25    17.02 ±0.10    —    ★ 10.01 ±0.08  a, b, c" in words_of(app)

    look(steps)


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_enter_opens_one_run_in_full(look: Look, filled: Path, size: Size) -> None:
    """Its curve, and below it everything that is known; a run without samples opens without a curve."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "G", "enter")
        assert isinstance(app.screen, RunDetails)
        assert "Run 1 · bench · 2026-11-20 01:00 UTC" in words_of(app)
        assert "position" in words_of(app) or size == (80, 24)
        await press(app, pilot, "end")
        assert "Again: ggbench bench synth:qwen1.5-0.5b q4_k_m -n 3000" in words_of(app)
        await press(app, pilot, "escape", "k", "enter")
        assert "out of memory" in words_of(app)

    look(steps, size)


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
        assert "Copied 2 commands" in told(app)

    look(steps)


def test_runs_are_saved_where_ggbench_was_started(
    look: Look, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marked as CSV, the chosen as SVG from its own screen; each says where it is."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "w", "c")
        assert f"Saved {folder}/ggbench-run-3.csv" in told(app).replace("\n", "")
        await press(app, pilot, "G", "enter", "w", "j", "enter")
        assert "Saved" in words_of(app)
        await press(app, pilot, "w", "escape", "escape", "k", "k", "k", "enter", "w", "s")
        assert sorted(file.name for file in folder.iterdir()) == [
            "ggbench-run-1.svg", "ggbench-run-3-samples.csv", "ggbench-run-3.csv", "ggbench-run-4.svg",
        ]  # fmt: skip

    look(steps, (140, 45))


def test_deleting_asks_first(look: Look, filled: Path) -> None:
    """No leaves all; yes takes the marked ones from the store, and the cursor stays in the list."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "space", "space", "G", "d")
        assert isinstance(app.screen, ConfirmScreen)
        assert "Delete 2 runs (4, 3) with 3,100 samples?" in words_of(app)
        await press(app, pilot, "n")
        assert shown(app) == [4, 3, 2, 1]
        await press(app, pilot, "d", "y")
        assert shown(app) == [2, 1]
        assert chosen(app) == 1
        assert "Deleted 2 runs." in told(app)
        await press(app, pilot, "d", "y")
        assert shown(app) == [2]

    look(steps)
    with Store.open(filled) as store:
        assert [run.run_id for run in store.list_runs()] == [2]


def test_a_running_run_is_not_deleted(look: Look, path: Path) -> None:
    """The store refuses, and the screen says what to do; the run is listed as running meanwhile."""
    with Store.open(path) as store:
        store.begin(start())

        async def steps(app: GgbenchApp, pilot: Page) -> None:
            assert "…" in words_of(app).splitlines()[3]
            await press(app, pilot, "w")
            assert "Run 1 still runs: saved as far as it is." in words_of(app)
            await press(app, pilot, "escape", "d")
            assert "Run 1 still runs: stays until it has ended." in words_of(app)
            await press(app, pilot, "y")
            assert "still running" in told(app)
            assert "stop it first" in told(app)
            assert shown(app) == [1]

        look(steps)


def test_without_samples_there_is_no_picture_to_save(look: Look, filled: Path) -> None:
    """It is not offered, and its key does nothing; a run that a person ended has a dash and no cross."""
    with Store.open(filled) as store:
        run_id = store.begin(start())
        row = store.load_run(1).row
        assert row is not None
        store.finish(run_id, dataclasses.replace(row, outcome=Outcome.CANCELLED))

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert "❯     5  –" in words_of(app)
        await press(app, pilot, "w")
        assert "as two CSV files" in words_of(app)
        assert "SVG" not in words_of(app)
        await press(app, pilot, "s")
        assert not isinstance(app.screen, ResultsScreen)

    look(steps)


def test_an_empty_store_says_how_to_measure(look: Look, path: Path) -> None:
    """And the keys that need a run do nothing."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert "Nothing was measured yet." in words_of(app)
        assert "press b" in words_of(app)
        await press(app, pilot, "d", "c", "y", "w", "slash", "s", "enter", "space")
        assert isinstance(app.screen, ResultsScreen)
        assert "Compare" not in words_of(app).splitlines()[-1]

    look(steps)


def test_a_store_of_a_newer_ggbench_says_so(look: Look, filled: Path) -> None:
    """In place of the runs, with what to do."""
    with sqlite3.connect(filled) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        text = " ".join(words_of(app).split())
        assert "written by a newer ggbench" in text
        assert "upgrade ggbench" in text

    look(steps)


def test_a_locked_store_is_read_again(services: Services, drive: Drive, filled: Path) -> None:
    """The error stands where the runs would be and goes away with them; a later one leaves them in view."""
    locked = True

    def open_store() -> Store:
        if locked:
            raise StoreError("another program kept the file locked for 10 s", "try again once it has ended")
        return Store.open(filled)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        nonlocal locked
        assert "kept the file locked" in words_of(app)
        assert "r reads it again" in words_of(app)
        locked = False
        await press(app, pilot, "r")
        assert shown(app) == [4, 3, 2, 1]
        await press(app, pilot, "j")
        assert chosen(app) == 3
        locked = True
        await press(app, pilot, "r")
        assert shown(app) == [4, 3, 2, 1]
        assert "kept the file locked" in told(app)
        for keys in (("enter",), ("w", "c"), ("d", "y")):
            await press(app, pilot, *keys)
            assert isinstance(app.screen, ResultsScreen)
            assert "try again once it has ended" in told(app)

    drive(GgbenchApp(dataclasses.replace(services, open_store=open_store)), steps)


def test_a_run_that_arrives_moves_nothing(look: Look, filled: Path) -> None:
    """The cursor, the marks and the filter stay while the list grows."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "slash", *"synth", "enter")
        assert chosen(app) == 2
        with Store.open(filled) as store:
            put_run(store, start(quant="q2_k"), n_gen=30)
            put_run(store, start(model="another"), n_gen=30)
        app.screen.post_message(RunStored(5))
        await settle(app, pilot)
        assert shown(app) == [5, 4, 3, 2, 1]
        assert chosen(app) == 2
        assert "5 of 6 runs · 1 marked" in words_of(app)

    look(steps)


@pytest.mark.parametrize("keys", [("enter",), ("w", "c")])
def test_a_run_that_another_ggbench_deleted(look: Look, filled: Path, keys: tuple[str, ...]) -> None:
    """Opening or saving it says that it is gone, and the list is brought up to date."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        with Store.open(filled) as store:
            store.delete_run(4)
        await press(app, pilot, *keys)
        assert "run 4 was deleted meanwhile" in told(app)
        assert shown(app) == [3, 2, 1]

    look(steps)


def test_a_fault_is_told_and_ends_nothing(services: Services, drive: Drive, filled: Path) -> None:
    """A run may go on behind this screen, so what nobody foresaw is words and not the end of the app."""
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
        assert "nobody foresaw this" in told(app)
        works = True
        await press(app, pilot, "r", "enter")
        assert isinstance(app.screen, RunDetails)

    drive(GgbenchApp(dataclasses.replace(services, open_store=open_store)), steps)


def test_deleting_what_is_gone_already_is_no_error(look: Look, filled: Path) -> None:
    """The person wanted it gone."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        with Store.open(filled) as store:
            store.delete_run(4)
        await press(app, pilot, "d", "y")
        assert "Deleted 1 run." in told(app)
        assert shown(app) == [3, 2, 1]

    look(steps)


def test_names_cannot_steer_the_screen(look: Look, path: Path) -> None:
    """Markup and control characters of a model's name are text, in the list and in the question before deleting."""
    with Store.open(path) as store:
        put_run(store, start(model="[red]\x1b[31mx[/]", quant="日本語量子化の名前がとても長い"), n_gen=30)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        assert "[red][31mx[/]" in words_of(app)
        await press(app, pilot, "d")
        assert "[red][31mx[/]" in words_of(app)
        await press(app, pilot, "n", "enter")
        assert "[red][31mx[/]" in words_of(app)

    look(steps)


def test_a_long_list_scrolls_with_its_cursor(look: Look, path: Path) -> None:
    """To the end and back, and when the window shrinks; columns scroll aside while the names stay."""
    with Store.open(path) as store:
        run_id = put_run(store, start(), n_gen=300)
        row = store.load_run(run_id).row
        assert row is not None
        for _ in range(199):
            store.finish(store.begin(start()), row)

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


def test_a_window_too_small_says_so_and_nothing_else(look: Look, filled: Path) -> None:
    """In the list with something told below it, and in the screens over it."""

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "y")
        for keys in (("j",), ("enter",)):
            await press(app, pilot, *keys)
            await pilot.resize_terminal(50, 12)
            await settle(app, pilot)
            assert " ".join(words_of(app).split()).endswith("make the window larger")
            await pilot.resize_terminal(80, 24)
            await settle(app, pilot)
            assert "q8_0" in words_of(app)

    look(steps)


def test_the_mouse_chooses_marks_and_opens(look: Look, filled: Path) -> None:
    """A click on a line takes the cursor there, one in its margin marks it, a double click opens it."""

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


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_pictures(look: Look, filled: Path, size: Size, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list with marks, runs side by side, and one run in full look as they did when somebody looked."""
    monkeypatch.delenv("NO_COLOR")

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "j", "space")
        check_snapshot(app, f"results_{size[0]}x{size[1]}")
        await press(app, pilot, "c")
        check_snapshot(app, f"compare_{size[0]}x{size[1]}")
        await press(app, pilot, "escape", "G", "enter")
        check_snapshot(app, f"run_details_{size[0]}x{size[1]}")

    look(steps, size)


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_picture_of_nothing(look: Look, size: Size, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty store."""
    monkeypatch.delenv("NO_COLOR")

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        check_snapshot(app, f"results_empty_{size[0]}x{size[1]}")

    look(steps, size)
