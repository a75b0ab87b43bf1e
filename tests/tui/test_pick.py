"""A pick in the TUI: what is needed, what to run and why, and what becomes of the choice."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual import events
from textual.pilot import Pilot

from ggbench.decisions.pick.needs import WORKLOADS, Needs
from ggbench.decisions.pick.record import Candidate
from ggbench.errors import BadFile
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.models.targets import FileToRun
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import ModelsChanged, RunStored
from ggbench.tui.measuring import RunRequest
from ggbench.tui.screens.library import LibraryScreen
from tests.fakes.candidates import candidate
from tests.fakes.driving import check_snapshot, press, settle, words_of
from tests.fakes.library import FakePlanner, local
from tests.fakes.watched import WAIT_S
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


def shown(app: App) -> str:
    return type(app.screen).__name__


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
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Sequence[tuple[str, tuple[str, ...]]]]]:
    found: list[tuple[Any, Sequence[tuple[str, tuple[str, ...]]]]] = []

    def find(_screen: LibraryScreen, request: Any, selection: Any) -> None:  # noqa: ANN401
        found.append((request, selection))

    monkeypatch.setattr(LibraryScreen, "find_targets", find)
    return found


def test_the_whole_decision_is_a_key_away(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        assert "P Pick" in words_of(app)
        words = await press(app, pilot, "P")
        assert shown(app) == "PickScreen"
        assert "\n Run q4_k_m" in words
        run = "llama-server -hf maker/small-gguf:q4_k_m --no-mmproj -c 8192 -ngl 999 -np 1"
        assert f"\n {run}\n" in words
        await pilot.resize_terminal(50, 24)  # where the command takes two lines
        await settle(app, pilot)
        assert "".join(run.split()) in "".join(words_of(app).split())
        await pilot.resize_terminal(100, 34)
        await settle(app, pilot)
        await press(app, pilot, "y")
        assert app.clipboard == run
        why = await press(app, pilot, "w")
        assert words.splitlines()[:3] == why.splitlines()[:3]
        assert len(why.split()) > len(words.split())
        assert (await press(app, pilot, "escape", "w")).startswith(words[:100])
        await press(app, pilot, "escape")
        assert len(app.screen_stack) == 1

    drive(app, steps, (100, 34))


def test_enter_shows_the_plan_of_a_quant_with_its_command(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        words = await press(app, pilot, "tab", "j", "enter")
        assert "tokens in q8_0.\n" in words
        assert "small-gguf:q8_0" in words
        await press(app, pilot, "y")
        assert "small-gguf:q8_0" in app.clipboard
        words = await press(app, pilot, "e", "down", *"4k", "enter")
        assert "small-gguf:q8_0" in words
        await press(app, pilot, "escape", "P", "y")
        assert ":q4_k_m" in app.clipboard

    drive(app, steps)


def test_a_decision_is_shown_and_copied_once_it_is_made(app: App, drive: Drive, planner: FakePlanner) -> None:
    async def steps(app: App, pilot: Page) -> None:
        planner.held = {"small-0.6b"}
        await pilot.press("tab", "right")
        await asyncio.to_thread(planner.reached.wait, WAIT_S)
        for key in ("y", "P"):
            await pilot.press(key)
            assert "the quants are still being planned" in words_of(app)
        assert shown(app) == "LibraryScreen"
        planner.opened.set()
        await settle(app, pilot)
        assert "small-0.6b for chat, 16,384 tokens" in await press(app, pilot, "P")
        planner.opened.clear()
        planner.reached.clear()
        app._screens["library"].post_message(RunStored())
        await asyncio.to_thread(planner.reached.wait, WAIT_S)
        assert "picking again" in words_of(app)
        planner.opened.set()
        await settle(app, pilot)
        await press(app, pilot, "escape")
        assert "copied its download, and llama-server -hf maker/small-gguf:q" in await press(app, pilot, "y")
        assert "\nllama-server" in app.clipboard

    drive(app, steps)


def test_needs_change_the_pick_and_are_kept(app: App, drive: Drive, planner: FakePlanner) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "e", "down", "down", *"fast")
        assert "'fast' is not a number" in await press(app, pilot, "enter")
        words = await press(app, pilot, *["backspace"] * 4, *"15", "enter")
        assert "For chat, 8,192 tokens, at least 15.0 tok/s (e) on RTX 4090" in words
        assert planner.requests[-1].needs == Needs(given_tok_s=15.0)
        await press(app, pilot, "P", "e", "right", "right", "right")
        keys = ["down", "down", *["backspace"] * 2, "down", "down", "right", "right", "enter"]
        words = await press(app, pilot, *keys)
        assert planner.requests[-1].needs == Needs(WORKLOADS["documents"], given_prefer="quality")
        assert "for documents, 32,768 tokens, prefers quality on" in words
        assert "Run q8_0" not in words  # whose context is too short
        words = await press(app, pilot, "escape")
        assert "For documents, 32,768 tokens, prefers quality (e)" in words
        words = await press(app, pilot, "e")
        assert "‹ documents ›" in words
        assert "‹ quality ›" in words
        await press(app, pilot, "escape")
        for key in ("e", "down", *"40k", "down", *"15", "enter"):  # in a burst, before the dialog has opened
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(app, pilot)
        needs = planner.requests[-1].needs
        assert (needs.given_n_ctx, needs.given_tok_s) == (40 << 10, 15.0)
        words = await press(app, pilot, "e", "left", "enter")
        assert "For agent, 40,960 tokens, turns after 23,776, at least 15.0 tok/s" in words
        assert planner.requests[-1].needs.workload.n_depth == 23_776
        words = await press(app, pilot, "e", "down", *["backspace"] * 5, *"16k")
        words = " ".join(words.replace("│", " ").split())
        assert "Empty: chat 8,192, coding 65,536, agent 131,072, documents 32,768." in words
        words = " ".join((await press(app, pilot, "enter")).replace("│", " ").split())
        assert "prompt and answer of agent are 17,184 tokens, more than 16,384" in words

    drive(app, steps)


def test_the_row_at_the_cursor_is_run_or_downloaded(
    app: App, drive: Drive, started: list[tuple[Any, Sequence[tuple[str, tuple[str, ...]]]]]
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        words = await press(app, pilot, "P")
        assert "llama-server -hf maker/small-gguf:q4_k_m" in words
        words = await press(app, pilot, "b")
        assert "Measure q4_k_m" in words
        await press(app, pilot, "enter", "escape")  # as no jobs are made here, the dialog waits for them
        assert shown(app) == "LibraryScreen"
        ((request, selection),) = started
        assert isinstance(request, RunRequest)
        assert request.options == DecodeSettings(200)
        assert (request.setup.n_ctx, request.setup.type_k) == (8192, "f16")
        assert selection == [("small-0.6b", ("q4_k_m",))]
        await press(app, pilot, "P", "p")
        assert started[1] == (None, [("small-0.6b", ("q4_k_m",))])

    drive(app, steps)


def test_a_downloaded_file_and_a_run_renew_an_open_pick(
    app: App, drive: Drive, planner: FakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "tab", "enter")
        assert shown(app) == "PickScreen"
        here = [replace(each, to_run=replace(each.to_run, is_here=True)) for each in CANDIDATES if each.to_run]
        path = Path("/cache/small-q4_k_m.gguf")
        found = [local("small-0.6b", "q4_k_m", paths=(path,))]
        monkeypatch.setattr(app, "services", replace(app.services, local_models=lambda: found))
        planner.rows_of["small-0.6b"] = here
        app._screens["library"].post_message(ModelsChanged())
        await settle(app, pilot)
        assert planner.n_forgotten == 1
        await press(app, pilot, "y")
        assert app.clipboard.startswith("llama-server -m /cache/")
        await press(app, pilot, "2")
        n_asked = len(planner.asked)
        app._screens["library"].post_message(RunStored())
        await settle(app, pilot)
        assert len(planner.asked) == n_asked
        await press(app, pilot, "1")
        assert len(planner.asked) == n_asked + 1
        assert shown(app) == "PickScreen"

    drive(app, steps)


def test_what_cannot_be_picked_is_said(app: App, drive: Drive, planner: FakePlanner) -> None:
    async def steps(app: App, pilot: Page) -> None:
        words = await press(app, pilot, "P", "e", "down", "down", *"99", "enter")
        assert "q4_k_m comes nearest: it answers at 20.0 tok/s, not 99.0." in " ".join(words.split())
        planner.errors["small-0.6b"] = BadFile("no quant can be planned", "take another model")
        words = await press(app, pilot, "e", "right", "enter")
        assert "✗ no quant can be planned" in words
        assert shown(app) == "PickScreen"

    drive(app, steps)


def test_a_pick_looks_as_accepted(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "P")
        check_snapshot(app, "pick")

    drive(app, steps)
