"""The Library: which models there are, and what is planned for the quants of one."""

import asyncio

import msgspec.structs
import pytest
from textual.pilot import Pilot

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.tui.app import GgbenchApp
from ggbench.tui.planner import PlannedQuant
from ggbench.tui.services import Services
from ggbench.tui.widgets.models_pane import ModelList
from tests.fakes.driving import names, press, settle, with_disk, words_of
from tests.fakes.jobs import FakeServices
from tests.fakes.library import BUDGET, FakePlanner, local, plan_row
from tests.fakes.measured import put_run, start
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
WIDE = (180, 40)


def test_models_stand_in_sections(services: Services, drive: Drive) -> None:
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
            "on this disk", "maker/tiny-gguf  2 quants", "mine  q5_0", "✗ ~/.ollama", "twins: no download",
            "synth:small-0.6b  1 made", "synth:large-72b", "synth:unpublished-1b", "catalog, on the Hub",
            "small-0.6b", "large-72b",
        ]  # fmt: skip
        shown = await press(app, pilot, "down", "down")
        assert "✗ ~/.ollama: it cannot be read" in shown

    drive(with_disk(services, *disk), steps, WIDE)


def test_the_highlighted_model_is_planned(app: App, planner: FakePlanner, drive: Drive) -> None:
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


def test_a_later_choice_wins(app: App, planner: FakePlanner, drive: Drive) -> None:
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
    row = msgspec.structs.replace(
        plan_row("x", "iq9_z", BUDGET), outcome=Outcome.FAILED, reason="no such\x1b[31m type", weight_bytes=None,
        fits=None,
    )  # fmt: skip
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
    def open_store() -> Store:
        raise error

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert message in shown
        assert "q8_0    8.50  1.66 GiB  ✓" in shown

    drive(App(msgspec.structs.replace(services, open_store=open_store)), steps)


def test_names_of_others_are_text(services: Services, planner: FakePlanner, drive: Drive) -> None:
    name = "maker/[bold red]x[/]"
    planner.rows_of[name] = [PlannedQuant("[b]q\x1b[2J", plan_row("x", "[b]q\x1b[2J", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "maker/[bold red]x[/]" in shown
        assert "[b]q[2J" in shown

    drive(with_disk(services, local(name, "q8_0")), steps, WIDE)


def test_what_was_measured_takes_the_place_of_what_was_planned(
    app: App, planner: FakePlanner, jobs: FakeServices, drive: Drive
) -> None:
    with Store.open(jobs.folder / "results.sqlite") as store:
        put_run(store, msgspec.structs.replace(start("synth:small-0.6b", "q8_0"), setup=LlamaConfig(type_k="q4_0")))
        put_run(store, start("synth:small-0.6b", "q4_k_m"), n_gen=9000)
        head = msgspec.structs.replace(start("synth:small-0.6b", "q4_k_m"), kind="maxctx", setup=LlamaConfig())
        head = msgspec.structs.replace(head, settings=MaxctxSettings())
        found = MaxctxResult(max_n_ctx=24_576, verified_by_decode=True)
        store.finish(store.begin(head), Run(head=head, outcome=Outcome.COMPLETED, result=found))

    async def steps(app: App, pilot: Page) -> None:
        lines = words_of(app).splitlines()
        measured, planned = (next(line for line in lines if f" {name} " in line) for name in ("q4_k_m", "q8_0"))
        assert " 32.8 " in measured  # 1000 / (8191 / 400 + 10)
        assert " 399.9 ±" in measured
        assert "24,576✓" in measured
        assert "≤" in planned and "≥" in planned and "✓ " in planned
        assert "max n_ctx ✓ found by maxctx" in words_of(app)
        shown = await press(app, pilot, "g", *"3060 ti", "enter")
        assert " 32.8 " not in shown
        assert "24,576✓" not in shown

    drive(app, steps, (120, 36))
