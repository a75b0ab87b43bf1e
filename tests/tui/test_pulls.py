"""Downloads in the background: the queue by itself, and the way from the Library to the Run screen."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec.structs
import pytest
from textual.events import Paste
from textual.pilot import Pilot

from ggbench.errors import NetworkError
from ggbench.hub.access import HubAccess
from ggbench.models.disk import find_local_models
from ggbench.models.reference import parse_model
from ggbench.models.sources import OnProgress
from ggbench.models.targets import Target, resolve
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.widgets.models_pane import ModelTree
from ggbench.tui.work_queue import PullQueue, WorkState
from tests.fakes.driving import press, see, settle, words_of
from tests.fakes.hub import Hang, TestHub
from tests.fakes.library import BUDGET, FakePlanner, plan_row, planned
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import Drive

Page = Pilot[None]
GIB = 1 << 30


class Scripted:
    def __init__(self, run: Callable[[OnProgress], Path]) -> None:
        self._run = run

    download_bytes = GIB

    def materialize(self, on_progress: OnProgress | None = None) -> SimpleNamespace:
        assert on_progress is not None
        return SimpleNamespace(paths=(self._run(on_progress),))


def scripted(run: Callable[[OnProgress], Path], quant: str = "q8_0") -> Target:
    return Target("maker/m", quant, "hub", None, GIB, Scripted(run))  # type: ignore[arg-type]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Iterator[PullQueue]:
    queue = PullQueue(lambda: None, clock)
    yield queue
    queue.close()


def test_one_after_another_and_none_twice(queue: PullQueue) -> None:
    reached, opened, done = threading.Event(), threading.Event(), []

    def slow(on_progress: OnProgress) -> Path:
        on_progress(1, GIB)
        reached.set()
        assert opened.wait(60)
        on_progress(2, GIB)
        raise AssertionError("it was stopped")

    def quick(on_progress: OnProgress) -> Path:
        done.append(1)
        return Path("/x")

    watched = WatchedQueue(queue)
    queue.add([scripted(slow, "q8_0"), scripted(quick, "q4_0"), scripted(quick, "q2_k")])
    queue.add([scripted(quick, "q4_0")])
    assert reached.wait(60)
    assert [item.quant for item in queue.items] == ["q8_0", "q4_0", "q2_k"]
    assert queue.summary().endswith(", 2 queued")
    queue.stop(1)
    queue.stop(0)
    opened.set()
    watched.wait(lambda queue: not queue.is_busy)
    assert [item.state for item in queue.items] == [WorkState.STOPPED, WorkState.STOPPED, WorkState.DONE]
    assert done == [1]


def test_a_failure_has_its_reason_and_can_be_tried_again(queue: PullQueue) -> None:
    tries = []

    def fails(on_progress: OnProgress) -> Path:
        tries.append(1)
        if len(tries) == 1:
            raise NetworkError("the Hub is in trouble", "try again later")
        raise RuntimeError("boom")

    watched = WatchedQueue(queue)
    queue.add([scripted(fails)])
    watched.wait(lambda queue: not queue.is_busy)
    assert queue.items[0].reason == "the Hub is in trouble; try again later"
    assert queue.items[0].amount == "—"
    queue.retry(0)
    watched.wait(lambda queue: not queue.is_busy)
    assert "unexpected: RuntimeError('boom')" in queue.items[0].reason
    assert len(queue.items) == 1


def test_a_completed_download_has_its_file(queue: PullQueue) -> None:
    watched = WatchedQueue(queue)
    queue.add([scripted(lambda _on_progress: Path("/models/m.gguf"))])
    watched.wait(lambda queue: not queue.is_busy)
    (item,) = queue.items
    assert (item.state, item.path) == (WorkState.DONE, Path("/models/m.gguf"))


def test_a_download_is_reported_before_its_first_byte() -> None:
    """A server may take long to send it; whoever waits for the state hears of it."""
    started = threading.Event()

    def note() -> None:
        if any(item.state is WorkState.DOWNLOADING for item in pulls.items):
            started.set()

    def wait(on_progress: OnProgress) -> Path:
        assert started.wait(60)
        return Path("/models/m.gguf")

    pulls = PullQueue(note)
    watched = WatchedQueue(pulls)
    pulls.add([scripted(wait)])
    watched.wait(lambda queue: not queue.is_busy)
    pulls.close()
    assert pulls.items[0].state is WorkState.DONE


@pytest.fixture
def online(services: Services, hub: TestHub, planner: FakePlanner, monkeypatch: pytest.MonkeyPatch) -> Services:
    planner.rows_of["maker/tiny-gguf"] = [planned("q8_0", plan_row("tiny", "q8_0", BUDGET))]
    monkeypatch.setattr("ggbench.hub.api.BACKOFF_S", (0.0, 0.0, 0.0))
    return msgspec.structs.replace(services, hub=HubAccess.from_environment(), local_models=find_local_models)


async def find(app: GgbenchApp, pilot: Page, text: str, opens: str = "enter") -> str:
    """Search the Hub for a name that no local model has, and choose the first result."""
    await press(app, pilot, "slash", *text, "enter")
    models = app.screen.query_one(ModelTree)
    models.move_cursor(next(node for node in models.lines.values() if node.data and "maker/" in node.data.title))
    await settle(app, pilot)
    n_pulls = len(app.pull_queue.items)
    assert "enter: its quants" in await see(app, pilot, "p")  # and not those of the model before
    assert len(app.pull_queue.items) == n_pulls
    return await see(app, pilot, opens)


def test_a_repo_is_found_pulled_and_then_on_this_disk(
    online: Services, hub: TestHub, tiny_twin: Path, drive: Drive
) -> None:
    hub.add_repo("maker/tiny-gguf", {"tiny-q8_0.gguf": tiny_twin, "README.md": b"x"})
    app = GgbenchApp(online)

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        shown = await find(app, pilot, "tiny")
        assert "maker/tiny-gguf · " in shown
        queue = WatchedQueue(app.pull_queue)
        await press(app, pilot, "p")
        await queue.idle()
        assert "✓ maker/tiny-gguf q8_0" in await see(app, pilot, "2")
        shown = await see(app, pilot, "1")
        assert "on this disk" in shown
        models = app.screen.query_one(ModelTree)
        assert list(models.lines)[-1] == "search"
        assert len([each for each in models.entries if "maker/" in each.title]) == 1
        line = next(line for line in shown.splitlines() if "q8_0 " in line)
        assert "↓" not in line

    drive(app, steps, (160, 40))
    target = resolve(parse_model("maker/tiny-gguf", "q8_0"), hub=msgspec.structs.replace(online.hub, offline=True))[0]
    assert target.path is not None
    assert target.path.stat().st_size == tiny_twin.stat().st_size


def test_the_key_that_measures_lists_the_quants_of_a_repo_first(
    online: Services, hub: TestHub, tiny_twin: Path, drive: Drive
) -> None:
    hub.add_repo("maker/tiny-gguf", {"tiny-q8_0.gguf": tiny_twin})

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        shown = await find(app, pilot, "tiny", "b")
        assert "maker/tiny-gguf · 1 quant" in shown

    drive(GgbenchApp(online), steps, (160, 40))


@pytest.mark.parametrize("text", ["maker/tiny-gguf", "https://huggingface.co/maker/tiny-gguf/tree/main"])
def test_a_repo_named_whole_is_opened_at_once(online: Services, planner: FakePlanner, drive: Drive, text: str) -> None:
    async def steps(app: GgbenchApp, pilot: Page) -> None:
        app.post_message(Paste(text))
        await settle(app, pilot)
        await press(app, pilot, "enter")
        assert planner.asked[-1][0] == "maker/tiny-gguf"
        chosen = app.screen.query_one(ModelTree).chosen
        assert chosen is not None and chosen.title == "maker/tiny-gguf"

    drive(GgbenchApp(online), steps)


def test_much_is_asked_about_and_a_stopped_part_is_kept(
    online: Services, hub: TestHub, tiny_twin: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.commands.downloads.CONFIRM_ABOVE_BYTES", 1000)
    hub.add_repo("maker/tiny-gguf", {"tiny-q8_0.gguf": tiny_twin})
    size = tiny_twin.stat().st_size

    async def steps(app: GgbenchApp, pilot: Page) -> None:
        await find(app, pilot, "tiny")
        await press(app, pilot, "p")
        assert isinstance(app.screen, ConfirmScreen)
        assert "maker/tiny-gguf q8_0" in words_of(app)
        await press(app, pilot, "n")
        assert not app.is_busy
        hub.fail("*tiny-q8_0.gguf", Hang(size // 2))
        queue = WatchedQueue(app.pull_queue)
        await press(app, pilot, "p", "y", "2")
        await queue.reach(lambda queue: (queue.items[0].done_bytes or 0) > 1000)
        await settle(app, pilot)
        assert "↓ maker/tiny-gguf q8_0" in words_of(app)
        await press(app, pilot, "x")
        await queue.idle()
        await settle(app, pilot)
        assert "  stopped" in words_of(app)
        sent_before = hub.sent_bytes()
        await press(app, pilot, "enter")
        await queue.idle()
        await settle(app, pilot)
        assert "✓ maker/tiny-gguf q8_0" in words_of(app)
        assert hub.sent_bytes() - sent_before < size

    drive(GgbenchApp(online), steps, (120, 30))
