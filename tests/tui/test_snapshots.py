"""What the Library, the Pulls screen and the sheets over them look like; each was looked at before it was accepted."""

from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot

from ggbench.models.targets import Target
from ggbench.runs.store.database import Store
from ggbench.tui.app import GgbenchApp
from ggbench.tui.pull_queue import PullItem
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.services import Services
from ggbench.tui.work_queue import WorkState
from tests.fakes.driving import check_snapshot, press, settle
from tests.fakes.jobs import FakeServices
from tests.fakes.library import local
from tests.fakes.measured import put_run, start
from tests.tui.conftest import Drive

Page = Pilot[None]
GIB = 1 << 30
QUESTION = "Download 4.43 GiB into Hugging Face's cache: maker/small-gguf q8_0?"


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """With colours, which the tests otherwise turn off."""
    monkeypatch.delenv("NO_COLOR")


def test_the_library(services: Services, jobs: FakeServices, drive: Drive) -> None:
    """Models of every section, a plan with marks, two measured quants, one on this disk, and what can lie over them."""
    with Store.open(jobs.folder / "results.sqlite") as store:
        for quant in ("q8_0", "q4_k_m"):
            put_run(store, start("small-0.6b", quant))
    disk = (local("maker/small-gguf", "q8_0"), local("~/models/mine.gguf", "q5_0", store="folder", name="mine"))
    keys = {
        "help": ["question_mark"], "card": ["g", *"30"], "confirm": [],
        "options": ["o", *"12GiB", "down", "down", "right"], "search": ["m"],
        "quality": ["Q", "down", *"wikitext-2"], "speed": ["T", *"1,2k"],
    }  # fmt: skip

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        app.animation_level = "none"
        await press(app, pilot, *["j"] * 5, "enter")
        await press(app, pilot, "space", "j", "space", "right")
        check_snapshot(app, "library")
        for name, pressed in keys.items():
            await press(app, pilot, *pressed)
            if name == "confirm":
                app.push_screen(ConfirmScreen(QUESTION, "Download"))
                await settle(app, pilot)
            check_snapshot(app, name)
            await press(app, pilot, "escape")

    drive(GgbenchApp(msgspec.structs.replace(services, local_models=lambda: disk)), steps)


def test_pulls_in_every_state(app: GgbenchApp, drive: Drive) -> None:
    target = Target("maker/small-gguf", "q8_0", "hub", None)
    states = (
        PullItem("maker/small-gguf", "q8_0", GIB, GIB, path=Path("/hub/small-q8_0.gguf"), id=0, state=WorkState.DONE),
        PullItem("maker/large-gguf", "q4_k_m", 12 * GIB, 41 * GIB, 36e6, id=1, state=WorkState.DOWNLOADING),
        PullItem(
            "maker/large-gguf", "q2_k", GIB, 27 * GIB, reason="the disk is full; make room", id=2,
            state=WorkState.FAILED,
        ),
        PullItem("maker/other-gguf", "q8_0", GIB, 3 * GIB, id=3, state=WorkState.STOPPED),
        PullItem("maker/other-gguf", "ud-q4_k_xl", id=4),
    )  # fmt: skip

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        app.pull_queue._items = {item.id: item for item in states}
        app.pull_queue._targets = dict.fromkeys(range(len(states)), target)
        await press(app, pilot, "4", "j")
        check_snapshot(app, "pulls")
        app.pull_queue._items = {}

    drive(app, steps)
