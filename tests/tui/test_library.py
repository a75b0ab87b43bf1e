"""The Library: which models there are, and what is planned for the quants of one."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from textual.pilot import Pilot

from ggbench.errors import GgbenchError, StoreError, UsageError
from ggbench.records.outcome import Outcome
from ggbench.store.database import Store
from ggbench.tui.app import GgbenchApp
from ggbench.tui.messages import RunStored
from ggbench.tui.planner import PlannedQuant
from ggbench.tui.services import Services
from ggbench.tui.widgets.memory_bar import MemoryBar
from ggbench.tui.widgets.models_pane import ModelList
from tests.fakes.driving import press, settle
from tests.fakes.jobs import FakeServices
from tests.fakes.library import BUDGET, FakePlanner, local, plan_row
from tests.fakes.library_screen import choose, names, with_disk
from tests.fakes.measured import put_run, start
from tests.fakes.snapshots import words_of
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
WIDE = (180, 40)


def test_models_stand_in_sections(services: Services, drive: Drive) -> None:
    """Disk, twins, catalog: a repo's quants are one model, a model without a repo is a twin alone."""
    disk = (
        local("maker/tiny-gguf", "q8_0"),
        local("maker/tiny-gguf", "q4_k_m"),
        local("/models/mine.gguf", "q5_0", store="folder", name="mine"),
        local("synth:small-0.6b", "q8_0", store="twins"),
        local("", None, store="Ollama", name="~/.ollama", paths=(), file_bytes=None, reason="it cannot be read"),
    )

    async def steps(app: App, pilot: Page) -> None:
        prompts = [str(option.prompt).strip() for option in app.screen.query_one(ModelList).options]
        assert prompts == [
            "on this disk",
            "maker/tiny-gguf  2 quants",
            "mine  q5_0",
            "✗ ~/.ollama",
            "twins: no download",
            "synth:small-0.6b  1 made",
            "synth:large-72b",
            "synth:unpublished-1b",
            "catalog, on the Hub",
            "small-0.6b",
            "large-72b",
        ]
        shown = await press(app, pilot, "down", "down")
        assert "✗ ~/.ollama: it cannot be read" in shown

    drive(with_disk(services, *disk), steps)


def test_the_highlighted_model_is_planned(app: App, planner: FakePlanner, drive: Drive) -> None:
    """Every quant has a line with a verdict in a glyph and words, and the bar shows the chosen one."""

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "q4_k_m 4.85 1.39 GiB ✓ 222,208* ≤ 853" in " ".join(shown.split())
        assert "q8_0 at n_ctx 8,192: ✓ 19.3 GiB left" in shown
        shown = await press(app, pilot, "j")
        assert "✗ 70.8 GiB missing" in shown
        assert planner.asked == [("synth:small-0.6b", (), None, None), ("synth:large-72b", (), None, None)]
        shown = await press(app, pilot, "j", "j", "j")
        assert planner.asked[-1] == ("large-72b", ("q8_0", "q4_k_m", "q2_k"), None, None)
        assert names(app) == ["q8_0", "q4_k_m", "q2_k"]

    drive(app, steps)


def test_every_column_is_there(services: Services, jobs: FakeServices, drive: Drive) -> None:
    """In a wide window all are seen: predictions, what is on this disk, and what was measured."""
    with Store.open(jobs.folder / "results.sqlite") as store:
        put_run(store, start("small-0.6b", "q4_k_m"))

    async def steps(app: App, pilot: Page) -> None:
        shown = await choose(app, pilot, "small-0.6b", 1)
        header = next(line for line in shown.splitlines() if " BPW " in line).split("│")[1].split()
        assert header == [
            "quant", "BPW", "memory", "fits", "max", "tok/s", "W", "B", "size", "decoded", "weights", "KV", "compute",
            "tok/s", "tok/s",
        ]  # fmt: skip
        line = next(line for line in shown.splitlines() if " q4_k_m " in line)
        assert "↓ 364.2 MiB" in line
        assert "768.0 MiB" in line
        assert "—" not in line
        assert "↓" not in next(line for line in shown.splitlines() if " q8_0 " in line)
        assert next(line for line in shown.splitlines() if " q2_k " in line).count("—") == 1
        assert (
            "≤ ≥ the bandwidth's bound, not measured · ~ from W and B, beyond what was measured"
            " · * beyond the trained 32,768 · ↓ to download"
        ) in shown

    made_up = with_disk(services, local("maker/small-gguf", "q8_0"))
    drive(made_up, steps, (200, 40))


def test_a_later_choice_wins(app: App, planner: FakePlanner, drive: Drive) -> None:
    """A plan that comes after another model was chosen is dropped, and none of its rows is seen."""
    planner.held = {"synth:large-72b"}

    async def steps(app: App, pilot: Page) -> None:
        await pilot.press("j")
        await asyncio.to_thread(planner.reached.wait, 60)
        assert "synth:large-72b · planning…" in words_of(app)
        await pilot.press("j")
        planner.opened.set()
        await settle(app, pilot)
        assert "synth:unpublished-1b · 8 quants" in words_of(app)
        assert "missing" not in words_of(app)

    drive(app, steps)


def test_a_quant_that_cannot_be_planned_is_a_row(app: App, planner: FakePlanner, drive: Drive) -> None:
    """Its reason stands where the memory would be shown; the others are planned."""
    row = dataclasses.replace(
        plan_row("x", "iq9_z", BUDGET),
        outcome=Outcome.FAILED,
        reason="no such\x1b[31m type",
        weight_bytes=None,
        fits=None,
    )
    planner.rows_of["synth:small-0.6b"] = [
        PlannedQuant("iq9_z", row),
        PlannedQuant("q8_0", plan_row("x", "q8_0", BUDGET)),
    ]

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "✗ not planned" in shown
        assert "no such[31m type" in shown
        assert "1.66 GiB  ✓" in shown

    drive(app, steps)


def test_an_error_without_a_hint_is_one_line(app: App, planner: FakePlanner, drive: Drive) -> None:
    """It does not end in a stray semicolon or an empty line."""
    planner.errors["synth:small-0.6b"] = GgbenchError("llama.cpp said no")

    async def steps(app: App, pilot: Page) -> None:
        assert "✗ llama.cpp said no" in words_of(app)

    drive(app, steps)


def test_a_machine_that_cannot_be_read_is_reported(services: Services, drive: Drive) -> None:
    """Why, and that nothing is planned before it is known."""

    def machine_budget() -> Any:  # noqa: ANN401 - it returns nothing
        raise UsageError("there is no GPU 3 here", "there are 2, counted from 0")

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "✗ there is no GPU 3 here" in shown
        assert "there are 2, counted from 0" in shown
        assert "planned once this machine is known" in shown

    drive(App(dataclasses.replace(services, machine_budget=machine_budget)), steps)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StoreError("the results are of a newer ggbench", "update ggbench"), "update ggbench"),
        (RuntimeError("boom"), "unexpected RuntimeError: boom"),
    ],
)
def test_a_store_that_cannot_be_read_is_reported(
    services: Services, drive: Drive, error: Exception, message: str
) -> None:
    """The plans are there all the same, without what was measured."""

    def open_store() -> Store:
        raise error

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert message in shown
        assert "q8_0    8.50  1.66 GiB  ✓" in shown

    drive(App(dataclasses.replace(services, open_store=open_store)), steps)


def test_news_of_a_run_bring_its_measurement(app: App, jobs: FakeServices, drive: Drive) -> None:
    """A run that another screen or another ggbench stored is shown after its notification."""

    async def steps(app: App, pilot: Page) -> None:
        with Store.open(jobs.folder / "results.sqlite") as store:
            put_run(store, start("synth:small-0.6b", "q8_0"))
        app.screen.post_message(RunStored())
        await settle(app, pilot)
        line = next(line for line in words_of(app).splitlines() if " q8_0 " in line)
        assert "—" not in line

    drive(app, steps, (200, 40))


def test_names_of_others_are_text(services: Services, planner: FakePlanner, drive: Drive) -> None:
    """Neither markup nor control characters of a model's or a quant's name do anything."""
    name = "maker/[bold red]x[/]"
    planner.rows_of[name] = [PlannedQuant("[b]q\x1b[2J", plan_row("x", "q8_0", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "maker/[bold red]x[/]" in shown
        assert "[b]q[2J" in shown

    drive(with_disk(services, local(name, "q8_0")), steps, WIDE)


def test_the_planner_ends_with_the_app(app: App, planner: FakePlanner, drive: Drive) -> None:
    """Nothing is left behind."""

    async def steps(app: App, pilot: Page) -> None:
        assert app.screen.query_one(MemoryBar)

    drive(app, steps)
    assert planner.is_closed
