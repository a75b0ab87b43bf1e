"""The Results screen over a store that others change, lock or have made newer."""

import contextlib
from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot
from textual.worker import WorkerFailed

from ggbench.errors import StoreError
from ggbench.runs.store.database import Store
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import RunStored
from ggbench.tui.screens.measured_runs import RunDetails
from ggbench.tui.screens.results import ResultsScreen
from ggbench.tui.services import Services
from tests.fakes.driving import chosen, message, press, settle, shown, words_of
from tests.fakes.measured import put_run, start
from tests.tui.conftest import Drive, Look

Page = Pilot[None]

pytestmark = pytest.mark.usefixtures("start_with_results")


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
        assert "Press r to try again" in words_of(app)
        locked = False
        await press(app, pilot, "r")
        assert shown(app) == [4, 3, 2, 1]
        await press(app, pilot, "j")
        assert chosen(app) == 3
        locked = True
        await press(app, pilot, "r")
        assert shown(app) == [4, 3, 2, 1]
        assert "kept the file locked" in message(app)
        for keys in (("enter",), ("w", "c"), ("d", "y")):
            await press(app, pilot, *keys)
            assert isinstance(app.screen, ResultsScreen)
            assert "try again once it has ended" in message(app)

    drive(GgbenchApp(msgspec.structs.replace(services, open_store=open_store)), steps)


def test_a_run_that_arrives_moves_nothing(look: Look, filled: Path) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await press(app, pilot, "j", "space", "slash", *"synth", "enter")
        assert chosen(app) == 2
        with Store.open(filled) as store:
            put_run(store, start(quant="q2_k"), n_gen=30)
            put_run(store, start(model="another"), n_gen=30)
        app.screen.post_message(RunStored())
        await settle(app, pilot)
        assert shown(app) == [5, 4, 3, 2, 1]
        assert chosen(app) == 2
        assert "5 of 6 runs · 1 marked" in words_of(app)

    look(steps)


def test_an_unexpected_error_is_reported_and_ends_nothing(services: Services, drive: Drive, filled: Path) -> None:
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
        assert "nobody foresaw this" in message(app)
        works = True
        await press(app, pilot, "r", "enter")
        assert isinstance(app.screen, RunDetails)

    drive(GgbenchApp(msgspec.structs.replace(services, open_store=open_store)), steps)
