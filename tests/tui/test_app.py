"""The app around its screens: modes, help, palette, quitting, and what goes on behind them."""

import asyncio
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import msgspec.structs
import pytest
from textual.pilot import Pilot

from ggbench.hub.access import HubAccess
from ggbench.models.disk import models_in_place
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve
from ggbench.runs.experiment import Experiment
from ggbench.runs.session import RunContext, run_context
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import HOST_DEVICE, Budget
from ggbench.stats.decode_timing import Bandwidth
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.screens.dialogs import ConfirmScreen, HelpScreen
from ggbench.tui.widgets.bars import TopLine
from tests.fakes.driving import press, see, settle, words_of
from tests.fakes.jobs import FakeServices, Gate, decodes
from tests.fakes.library import BUDGET, FakePlanner, budgets_of, plan_row, planned
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
MODES = {"1": "library", "2": "run", "3": "results"}


def test_digits_and_clicks_change_the_screen(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        for key, mode in MODES.items():
            await press(app, pilot, key)
            assert app.current_mode == mode
            assert "ggbench  1 Library  2 Run  3 Results" in words_of(app).splitlines()[0]
            assert words_of(app).splitlines()[-1].endswith("? help · ^p all actions · q quit")  # whole at 80 columns
            assert ("/ filter" in words_of(app).splitlines()[-1]) == (key != "2")
            if key != "1":
                assert "Library (1)" in words_of(app)
        await pilot.click(TopLine, offset=(24, 0))
        await settle(app, pilot)
        assert app.current_mode == "run"

    drive(app, steps)


SHOWN = {
    "library": {
        "": "w=w why, e=e needs, o=o options, g=g GPU, y=y copy, b=b measure, p=p pull, space=␣ mark,"
        " question_mark=? help, tab=tab next, slash=/ filter, ctrl+p=^p all, q=q quit",
        "w": "w=w more, escape=esc back, y=y copy",
        "e": "enter=⏎ apply, left=← →, right=→ change, ctrl+r=^r defaults, escape=esc close",
        "b": "enter=⏎ start, up=↑ what, escape=esc close",
        "question_mark": "escape=esc close",
    },
    "results": {
        "": "enter=⏎ open, space=␣ mark, c=c compare, b=b again, s=s report, S=S export, d=d delete",
        "enter": "w=w more, b=b again, s=s report, y=y copy, escape=esc back, "
        "plus=+ -, minus=- zoom, left=← →, right=→ move, 0=0 all",
        "d": "enter=⏎ choose, left=← →, right=→ change",
    },
}
"""What the frames of a screen, and of what a key opens there, name: keys, each with the place to click."""


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("mode", SHOWN)
def test_a_click_on_a_shown_key_presses_it(
    services: Services, planner: FakePlanner, drive: Drive, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(App, "DEFAULT_MODE", mode)
    rows = [plan_row("small-0.6b", quant, BUDGET) for quant in ("q8_0", "q4_k_m")]
    planner.rows_of["small-0.6b"] = [planned(row.quant, row) for row in rows]
    pressed: list[str] = []
    monkeypatch.setattr(App, "simulate_key", lambda _app, key: pressed.append(key))

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, *["j", "enter"] * (mode == "library"))
        for opening, shown in SHOWN[mode].items():
            await press(app, pilot, *[opening] * bool(opening))
            lines = [*enumerate(words_of(app).splitlines())]
            for key, text in (each.split("=", 1) for each in shown.split(", ")):
                y, line = next((y, line) for y, line in reversed(lines) if text in line)
                await pilot.click(offset=(line.rindex(text), y))
                await settle(app, pilot)
                assert pressed.pop() == key, (opening, text)
            await press(app, pilot, *["escape"] * bool(opening))

    drive(App(services), steps, (120, 36))


def test_help_and_palette_list_every_key(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        commands = {command.title for command in app.get_system_commands(app.screen)}
        assert {"Run", "Library", "Filter", "GPU", "Help", "Theme"} <= commands
        for key in (*MODES, "1"):
            await press(app, pilot, key)
            for command in app.get_system_commands(app.screen):
                assert len(command.help.partition(" (key: ")[0].split()) > 1, command
        await press(app, pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen)
        shown = words_of(app)
        assert "Measure the marked quants, or the chosen one" in shown
        assert "Page up" not in shown
        await press(app, pilot, "escape")
        assert not isinstance(app.screen, HelpScreen)

    drive(app, steps, (100, 60))


def test_a_click_beside_the_help_closes_it(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "question_mark")
        await pilot.click(offset=(1, 1))
        await settle(app, pilot)
        assert not isinstance(app.screen, HelpScreen)

    drive(app, steps)


def test_the_theme_is_kept_after_the_end(services: Services, drive: Drive, home: Path) -> None:
    async def first(app: App, pilot: Page) -> None:
        assert app.current_theme.dark
        app.theme = "textual-light"
        await settle(app, pilot)

    async def second(app: App, pilot: Page) -> None:
        assert app.theme == "textual-light"

    async def third(app: App, pilot: Page) -> None:
        assert app.current_theme.dark

    drive(App(services), first)
    drive(App(services), second)
    (file,) = home.rglob("theme.txt")
    file.write_text("no such theme")
    drive(App(services), third)


def test_enter_twice_in_a_palette_chooses_once(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "ctrl+p")
        await press(app, pilot, *"theme")
        for _ in range(3):
            app.simulate_key("enter")
        await settle(app, pilot)
        app.search_themes()
        await settle(app, pilot)
        await pilot.press("down")
        for _ in range(3):
            app.simulate_key("enter")
        await settle(app, pilot)
        while len(app.screen_stack) > 1:
            await press(app, pilot, "escape", "escape")
        answers: list[bool | None] = []
        app.push_screen(ConfirmScreen("Really?"), answers.append)
        await settle(app, pilot)
        for key in ("enter", "enter", "y"):
            app.simulate_key(key)
        await settle(app, pilot)
        assert answers == [False]  # the safe answer
        assert app.is_running

    drive(app, steps)


def test_a_window_too_small_ends_nothing(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        for key in MODES:
            await pilot.press(key)
            await pilot.resize_terminal(20, 4)
            await settle(app, pilot)
            await pilot.resize_terminal(80, 24)
            await settle(app, pilot)
            assert "1 Library" in words_of(app)

    drive(app, steps)


def test_quitting_during_a_run_asks(tiny_twin: Path, services: Services, jobs: FakeServices, drive: Drive) -> None:
    gate = Gate()
    jobs.answers.append(gate.answer)
    app = App(services)

    def open_at_the_end(cancel: Event) -> None:
        cancel.wait(60)
        gate.opened.set()

    async def steps(app: App, pilot: Page) -> None:
        app.run_queue.add(decodes(resolve(parse_model(str(tiny_twin))), 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        await settle(app, pilot)
        assert "▶ running" in words_of(app).splitlines()[0]
        await press(app, pilot, "q")
        await press(app, pilot, "enter")
        assert app.is_busy and not app.screen.is_modal
        await press(app, pilot, "q", "left")
        Thread(target=open_at_the_end, args=(app.run_queue._cancel,)).start()
        await pilot.press("y")

    drive(app, steps)
    assert not app.is_busy
    assert jobs.workers[0].closed
    with Store.open(jobs.folder / "results.sqlite") as store:
        (run,) = store.list_runs()
        assert run.state == "cancelled"
        assert run.n_samples


def test_an_app_that_fails_leaves_no_engine(
    tiny_twin: Path, services: Services, jobs: FakeServices, drive: Drive
) -> None:
    gate = Gate()
    gate.opened.set()
    jobs.answers.append(gate.answer)

    async def steps(app: App, pilot: Page) -> None:
        app.run_queue.add(decodes(resolve(parse_model(str(tiny_twin))), 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(App(services), steps)
    assert jobs.workers[0].closed


def test_the_command_needs_a_terminal_and_the_others_no_textual() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "ggbench", "tui"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 2
    assert "ggbench bench" in asked.stderr
    code = (
        "import sys\nfrom ggbench.cli.main import main\n"
        "try:\n    main(['--help'])\nfinally:\n    assert not any(name.startswith('textual') for name in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "tui" in ended.stdout


def rig(store: Store | None, experiment: Experiment) -> RunContext:
    return msgspec.structs.replace(run_context(store, given_bandwidth=Bandwidth(20e9, "given in a test")), threads=1)


@pytest.mark.llama
def test_from_the_library_to_the_results(tiny_twin: Path, drive: Drive) -> None:
    memory = msgspec.structs.replace(BUDGET.devices[0], device=HOST_DEVICE, name="this test")
    budget = Budget(host=memory)
    services = msgspec.structs.replace(
        Services(HubAccess.from_environment(offline=True)), run_context=rig,
        local_models=lambda: models_in_place(tiny_twin), machine_budgets=budgets_of(budget),
    )  # fmt: skip

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        queue = WatchedQueue(app.run_queue)
        assert "q8_0" in words_of(app)
        assert "✓" in words_of(app)
        await press(app, pilot, "b", "enter")
        assert app.current_mode == "run"
        await queue.idle()
        (measured,) = app.run_queue.items
        assert measured.run is not None
        shown = await see(app, pilot, "2", "enter")
        assert "run 1 · decode" in shown
        assert " tok/s" in shown
        await press(app, pilot, "escape")
        assert app.current_mode == "run"
        assert "completed" in await see(app, pilot, "3")
        await press(app, pilot, "enter", "b", "enter")
        assert app.current_mode == "run"
        await queue.idle()
        assert "marked" not in await see(app, pilot, "3")
        assert "runs 1 with 2" in await see(app, pilot, "c")

    drive(GgbenchApp(services), steps, (140, 45))
    with Store.open() as store:
        assert {run.state for run in store.list_runs()} == {"completed"}


def test_an_app_without_its_terminal_quits(app: App, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a signal, as under nohup, it would read a dead terminal in a circle."""
    monkeypatch.setattr("ggbench.tui.app._WATCH_EVERY_S", 0.01)
    terminal = iter((True,))
    monkeypatch.setattr("ggbench.tui.app.os.isatty", lambda _: next(terminal, False))

    async def steps(app: App, pilot: Page) -> None:
        async with asyncio.timeout(10):
            while app.return_code is None:
                await pilot.pause()

    drive(app, steps)
    assert app.return_code == 130
