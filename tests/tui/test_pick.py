"""A pick in the TUI: what is needed, what to run and why, and what becomes of the choice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual import events
from textual.pilot import Pilot

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate
from ggbench.errors import BadFile
from ggbench.expect.sessions import known_sessions
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.models.targets import FileToRun
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import ModelsChanged, RunStored
from ggbench.tui.screens.library import LibraryScreen
from ggbench.tui.screens.measure import RunRequest
from ggbench.tui.widgets.answer_pane import AnswerPane
from tests.fakes.candidates import candidate
from tests.fakes.driving import check_snapshot, press, see, settle, table, words_of
from tests.fakes.library import FakePlanner, local
from tests.fakes.watched import WAIT_S
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


def published(quant: str, cache: str = "f16", **figures: Any) -> Candidate:  # noqa: ANN401 - of several types
    file = FileToRun("small-0.6b", quant, (Path(f"/cache/small-{quant}.gguf"),), repo="maker/small-gguf")
    return replace(candidate(quant, cache, **figures), to_run=file)


CANDIDATES = (
    published("q8_0", loss=0.001, tok_s=12.0, gib=7.6, n_ctx=16384),
    published("q4_k_m", loss=0.02, tok_s=20.0, gib=4.5, n_ctx=32768),
    published("q2_k", loss=0.2, tok_s=30.0, gib=2.9, n_ctx=40960),
    published("q4_k_m", "q8_0", loss=0.02, cache_loss=0.004, tok_s=19.0, gib=4.5, n_ctx=65536),
)


@pytest.fixture
def planner(planner: FakePlanner) -> FakePlanner:
    planner.rows_of["small-0.6b"] = CANDIDATES
    return planner


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, tuple[str, tuple[str, ...]]]]:
    found: list[tuple[Any, tuple[str, tuple[str, ...]]]] = []

    def find(_screen: LibraryScreen, request: Any, selection: Any) -> None:  # noqa: ANN401
        found.append((request, selection))

    monkeypatch.setattr(LibraryScreen, "find_targets", find)
    return found


def pane(app: App) -> str:
    """Return the title of the answer beside or over the quants; empty if none is shown."""
    found = app.screen.query_one(AnswerPane)
    return str(found.border_title) if found.display else ""


def test_the_pick_and_its_command_are_on_top_and_what_is_behind_them_a_key_away(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await pilot.resize_terminal(200, 50)
        await settle(app, pilot)
        assert "In a chat session it answers at" in words_of(app)
        await pilot.resize_terminal(140, 34)
        await settle(app, pilot)
        words = words_of(app)
        run = "llama-server -hf maker/small-gguf:q4_k_m --no-mmproj -c 8192 -ngl 999 -np 1"
        assert "│ Run q4_k_m" in words and f"│ {run} " in words
        assert "│ q8_0: llama-server -hf maker/small-gguf:q8_0 " in await see(
            app, pilot, "tab", "j"
        )  # which `y` copies
        await press(app, pilot, "end")
        why = await see(app, pilot, "w")
        assert pane(app) == "why" and "In a chat session it answers at" in why and "13 turns" not in why
        assert "chat: 13 turns, 6,713 tokens" in await see(app, pilot, "w")
        assert why.count(run) == 1
        assert "Docker" in await see(app, pilot, "y")
        await press(app, pilot, "enter")
        assert app.clipboard == run  # and not of the quant where the cursor was
        await press(app, pilot, "y", "down", "enter")
        assert app.clipboard.startswith("[small-")
        await press(app, pilot, "escape")
        assert pane(app) == "" and table(app).has_focus
        await pilot.resize_terminal(200, 50)
        await settle(app, pilot)
        assert pane(app) == "why" and "loss [nats]" in words_of(app)

    drive(app, steps, (140, 34))


def test_nothing_is_copied_or_explained_before_the_pick_is_made(app: App, drive: Drive, planner: FakePlanner) -> None:
    async def steps(app: App, pilot: Page) -> None:
        planner.held = {"small-0.6b"}
        await pilot.press("tab", "r")
        await asyncio.to_thread(planner.reached.wait, WAIT_S)
        assert "planning…" in words_of(app) and "llama-server" not in words_of(app)
        planner.opened.set()
        await settle(app, pilot)
        assert "pick of small-0.6b for chat, 8,192 tokens" in await see(app, pilot, "w")

    drive(app, steps)


def test_needs_change_the_pick_and_are_kept(app: App, drive: Drive, planner: FakePlanner) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "e", "down", "down", *"fast")
        assert "'fast' is not a number" in await see(app, pilot, "enter")
        words = await see(app, pilot, *["backspace"] * 4, *"15", "enter")
        assert "for chat, 8,192 tokens, at least 15.0 tok/s" in words
        assert planner.requests[-1].needs == Needs(tok_s=15.0)
        await press(app, pilot, "w", "e", "right", "right")
        keys = ["down", "down", *["backspace"] * 2, "down", "down", "right", "enter"]
        words = await see(app, pilot, *keys)
        assert planner.requests[-1].needs == Needs(known_sessions()["documents"], prefer="quality")
        assert "for documents, 32,768 tokens, prefers quality" in words
        assert "Run q8_0" not in words  # whose context is too short
        words = await see(app, pilot, "escape", "e")
        assert "documents" in words and "▼" in words
        await press(app, pilot, "space", "up", "enter", "escape")  # the list, where enter chooses
        for key in ("e", "down", *"40k", "down", *"15", "enter"):  # in a burst, before the dialog has opened
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(app, pilot)
        needs = planner.requests[-1].needs
        assert (needs.given_n_ctx, needs.tok_s) == (40 << 10, 15.0)
        words = await see(app, pilot, "e", "left", "enter")
        assert "for coding, 40,960 tokens, at least 15.0 tok/s" in words
        assert planner.requests[-1].needs.session.n_tokens == 40_920
        words = await see(app, pilot, "e", "down")
        words = " ".join(words.replace("│", " ").split())
        assert "Empty: chat 8k, coding 64k, documents 32k." in words

    drive(app, steps, (140, 36))


def test_the_row_at_the_cursor_is_run_or_downloaded(
    app: App, drive: Drive, started: list[tuple[Any, tuple[str, tuple[str, ...]]]]
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        words = await see(app, pilot, "w", "b")
        assert "measure q4_k_m of small-0.6b" in words
        await press(app, pilot, "enter", "escape")  # as no jobs are made here, the dialog waits for them
        ((request, selection),) = started
        assert isinstance(request, RunRequest)
        assert request.options == DecodeSettings(200)
        assert request.setup.type_k == "f16"
        assert selection == ("small-0.6b", ("q4_k_m",))
        await press(app, pilot, "p")
        assert started[1] == (None, ("small-0.6b", ("q4_k_m",)))

    drive(app, steps)


def test_a_downloaded_file_and_a_run_renew_an_open_pick(
    app: App, drive: Drive, planner: FakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "w")
        here = [replace(each, to_run=replace(each.to_run, is_here=True)) for each in CANDIDATES if each.to_run]
        path = Path("/cache/small-q4_k_m.gguf")
        found = [local("small-0.6b", "q4_k_m", paths=(path,))]
        monkeypatch.setattr(app, "services", replace(app.services, local_models=lambda: found))
        planner.rows_of["small-0.6b"] = here
        app._screens["library"].post_message(ModelsChanged())
        await settle(app, pilot)
        assert planner.n_forgotten == 1
        await press(app, pilot, "y", "enter")
        assert app.clipboard.startswith("llama-server -m /cache/")
        await press(app, pilot, "2")
        n_asked = len(planner.asked)
        app._screens["library"].post_message(RunStored())
        await settle(app, pilot)
        assert len(planner.asked) == n_asked
        await press(app, pilot, "1")
        assert len(planner.asked) == n_asked + 1
        assert pane(app) == "why"

    drive(app, steps)


def test_what_cannot_be_picked_is_said(app: App, drive: Drive, planner: FakePlanner) -> None:
    async def steps(app: App, pilot: Page) -> None:
        words = await see(app, pilot, "w", "e", "down", "down", *"99", "enter")
        assert "q4_k_m comes nearest: it answers at 20.0 tok/s in a chat session" in " ".join(words.split())
        planner.errors["small-0.6b"] = BadFile("no quant can be planned", "take another model")
        words = await see(app, pilot, "e", "right", "enter")
        assert "✗ no quant can be planned" in words

    drive(app, steps, (120, 36))


def test_a_pick_looks_as_accepted(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "w")
        check_snapshot(app, "pick")

    drive(app, steps)
