"""The Library over a machine, a disk and plans that are the same everywhere."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ggbench.catalog.disk import LocalModel
from ggbench.errors import BadFile, GgbenchError, StoreError, UsageError
from ggbench.records import LoadConfig, Outcome
from ggbench.store.database import Store
from ggbench.tui.app import GgbenchApp
from ggbench.tui.messages import RunStored
from ggbench.tui.planner import PlannedQuant
from ggbench.tui.screens.library import LibraryScreen
from ggbench.tui.services import Services
from ggbench.tui.widgets.memory_bar import MemoryBar
from ggbench.tui.widgets.model_list import ModelList
from ggbench.tui.widgets.variants_table import VariantsTable
from tests.fakes.jobs import FakeServices
from tests.fakes.library import BUDGET, FakePlanner, WatchedQueue, local, plan_row, settle
from tests.fakes.measured import put_run, start
from tests.fakes.snapshots import words_of
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
WIDE = (180, 40)


async def press(app: App, pilot: Page, *keys: str) -> str:
    """What is in view when all has settled after these keys."""
    await pilot.press(*keys)
    await settle(app, pilot)
    return words_of(app)


async def choose(app: App, pilot: Page, model: str, n_before: int = 0) -> str:
    """Type the model's name and choose it, after those that match too."""
    return await press(app, pilot, "slash", *model, "enter", *["j"] * n_before, "enter")


def table(app: App) -> VariantsTable:
    return app.screen.query_one(VariantsTable)


def names(app: App) -> list[str]:
    """The quants in the table, in order."""
    return [str(table(app).get_row_at(row)[0]).strip("● ") for row in range(table(app).row_count)]


def keys(app: App) -> list[str]:
    return [each.binding.description for each in app.screen.active_bindings.values() if each.binding.show]


def with_disk(services: Services, *models: LocalModel) -> App:
    def local_models() -> Sequence[LocalModel]:
        return models

    return App(dataclasses.replace(services, local_models=local_models), n_gen=200)


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
    """Every quant has a line with a verdict in a glyph and words, and the bar tells of the chosen one."""

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "q4_k_m  ✓ 19.6 GiB left   222,208*" in shown
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
        header = next(line for line in shown.splitlines() if "max n_ctx" in line)
        for word in (
            "quant",
            "fits",
            "tok/s 1k",
            "at 8k",
            "size",
            "file",
            "BPW",
            "weights",
            "KV/1k",
            "measured W",
            "B ms",
        ):
            assert word in header
        line = next(line for line in shown.splitlines() if " q4_k_m " in line)
        assert "↓ 364.2 MiB" in line
        assert "96.0 MiB" in line
        assert "—" not in line
        assert "on disk" in next(line for line in shown.splitlines() if " q8_0 " in line)
        assert next(line for line in shown.splitlines() if " q2_k " in line).count("—") == 3

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


def test_the_filter_takes_letters_and_gives_them_back(app: App, drive: Drive) -> None:
    """In the input every letter is typed, q too; enter goes to what is left, escape back to all."""

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "slash", *"qb l")
        assert isinstance(app.screen.focused, Input)
        assert app.screen.focused.value == "qb l"
        assert "Quit" not in keys(app)
        assert "Run" not in keys(app)
        await press(app, pilot, *["backspace"] * 4, *"LARGE", "enter")
        assert app.screen.query_one(ModelList).n_models == 2
        assert "synth:large-72b · 8 quants" in words_of(app)
        await press(app, pilot, "escape")
        assert app.screen.query_one(ModelList).n_models == 5

    drive(app, steps)


def test_quants_are_filtered_and_those_that_fit_kept(app: App, drive: Drive) -> None:
    """What is hidden because it does not fit is counted; escape ends the filter."""

    async def steps(app: App, pilot: Page) -> None:
        await choose(app, pilot, "synth:large-72b")
        assert len(names(app)) == 8
        shown = await press(app, pilot, "f")
        assert names(app) == []
        assert "8 hidden that do not fit (f)" in shown
        await press(app, pilot, "f", "slash", *"Q4_")
        assert names(app) == ["q4_k_m", "q4_0"]
        shown = await press(app, pilot, "z")
        assert "at n_ctx" not in shown
        assert shown.count("8 hidden by the filter") == 2
        assert "hidden by" not in await press(app, pilot, "escape")
        assert len(names(app)) == 8
        assert table(app).has_focus

    drive(app, steps)


def test_any_column_sorts(app: App, planner: FakePlanner, drive: Drive) -> None:
    """By a key, column after column and the other way round, or by a click; what is unknown stays last."""
    broken = dataclasses.replace(plan_row("x", "q6_k", BUDGET), left_bytes=None, fits=None, planned_n_ctx=None)
    rows = [PlannedQuant("q6_k", broken)]
    rows += [PlannedQuant(quant, plan_row("x", quant, BUDGET)) for quant in ("q8_0", "q2_k", "q4_0")]
    planner.rows_of["synth:small-0.6b"] = rows

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter")
        assert names(app) == ["q6_k", "q8_0", "q2_k", "q4_0"]
        await press(app, pilot, "s")
        assert names(app) == ["q2_k", "q4_0", "q6_k", "q8_0"]
        shown = await press(app, pilot, "s")
        assert names(app) == ["q2_k", "q4_0", "q8_0", "q6_k"]
        assert "fits ↓" in shown
        assert "? unknown" in shown
        await press(app, pilot, "S")
        assert names(app) == ["q8_0", "q4_0", "q2_k", "q6_k"]
        await pilot.click(VariantsTable, offset=(3, 0))
        await settle(app, pilot)
        assert names(app) == ["q2_k", "q4_0", "q6_k", "q8_0"]

    drive(app, steps)


def test_left_and_right_change_the_context(app: App, planner: FakePlanner, drive: Drive) -> None:
    """By half or twice, with shift by 1,024; the chosen quant is planned first, its bar moves, and there are ends."""

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter", "j", "j")
        shown = await press(app, pilot, "right")
        assert "q5_k_m at n_ctx 16,384" in shown
        assert planner.asked[-1] == ("synth:small-0.6b", (), 16_384, "q5_k_m")
        assert "n_ctx 17,408" in await press(app, pilot, "shift+right")
        assert "n_ctx 8,704" in await press(app, pilot, "left")
        assert "n_ctx 256:" in await press(app, pilot, *["left"] * 9)
        assert "n_ctx 1,048,576: ✗" in await press(app, pilot, *["right"] * 14)
        assert "╳ missing" in words_of(app)

    drive(app, steps)


def test_another_card_is_planned_for(app: App, drive: Drive) -> None:
    """A known card by a part of its name, a size as it is typed, and back to this machine."""

    async def steps(app: App, pilot: Page) -> None:
        shown = await press(app, pilot, "g", *"3060 ti", "enter")
        assert "plan for RTX 3060 Ti · 8.00 GiB, 1.25 GiB kept free · 448 GB/s" in shown
        assert "q8_0    ✓ 5.09 GiB left" in shown
        shown = await press(app, pilot, "g", *"no such card", "enter")
        assert "no such card" in shown
        shown = await press(app, pilot, "escape", "g", *"12gib", "enter")
        assert "plan for a GPU" in shown
        assert " · 12.0 GiB, 1.25 GiB kept free · no bandwidth · " in shown
        shown = await press(app, pilot, "g")
        assert "● a GPU of the given size 12.0 GiB" in " ".join(shown.split())
        shown = await press(app, pilot, "enter")
        assert " · 12.0 GiB, 1.25 GiB kept free" in shown
        shown = await press(app, pilot, "g", *"this", "enter")
        assert "RTX 4090 · 22.0 GiB free of 24.0 GiB" in shown
        assert "● this machine" in await press(app, pilot, "g")

    drive(app, steps)


def test_a_card_smaller_than_its_reserve_is_refused(app: App, drive: Drive) -> None:
    """With a line that says so; enter then chooses nothing."""

    async def steps(app: App, pilot: Page) -> None:
        shown = await press(app, pilot, "g", *"512MiB", "enter")
        assert "too small: 1.25 GiB of a card are kept free" in shown
        assert "plan for a GPU" not in await press(app, pilot, "escape")

    drive(app, steps)


def test_enter_twice_chooses_a_card_once(app: App, drive: Drive) -> None:
    """However fast; the Library is in front with the focus where it was, and more keys work."""

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter")
        assert table(app).has_focus
        await press(app, pilot, "g", *"3060 ti")
        app.simulate_key("enter")
        app.simulate_key("enter")
        await settle(app, pilot)
        assert "plan for RTX 3060 Ti" in words_of(app)
        assert table(app).has_focus
        await press(app, pilot, "g", "escape", "escape")
        assert isinstance(app.screen, LibraryScreen)

    drive(app, steps)


def test_a_window_that_grows_again_has_the_focus_where_it_was(app: App, drive: Drive) -> None:
    """In the table, not in a filter that would take the keys, also after a sheet was over it."""

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter", "j")
        await pilot.resize_terminal(50, 10)
        await settle(app, pilot)
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert table(app).has_focus
        await press(app, pilot, "g")
        await pilot.resize_terminal(50, 10)
        await settle(app, pilot)
        await press(app, pilot, "escape")
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert table(app).has_focus

    drive(app, steps)


def test_tab_goes_past_the_filters(app: App, drive: Drive) -> None:
    """From the models to the table and back, from a filter to the other side; the footer of a filter says its keys."""

    async def steps(app: App, pilot: Page) -> None:
        models = app.screen.query_one(ModelList)
        await press(app, pilot, "tab")
        assert table(app).has_focus
        await press(app, pilot, "tab")
        assert models.has_focus
        await press(app, pilot, "shift+tab")
        assert table(app).has_focus
        footer = (await press(app, pilot, "slash")).splitlines()[-1]
        assert "⏎ To the list" in footer
        assert "Clear" in footer
        await press(app, pilot, "tab")
        assert models.has_focus

    drive(app, steps)


def test_a_length_of_runs_is_chosen_by_a_key(app: App, drive: Drive) -> None:
    """Through four of them and round; what is shown is what a run is asked for."""

    async def steps(app: App, pilot: Page) -> None:
        assert "n 200 tokens" in words_of(app)
        seen = []
        for _ in range(5):
            await press(app, pilot, "n")
            seen.append(app.n_gen)
        assert seen == [300, 1_000, 3_000, 10_000, 300]
        assert "n 300 tokens" in words_of(app)

    drive(app, steps)


@pytest.mark.parametrize(("key", "n_ctx", "told"), [("right", 16_384, ""), ("left", None, "take n_ctx 10,240")])
def test_a_run_takes_the_context_that_was_planned(
    tiny_twin: Path,
    services: Services,
    planner: FakePlanner,
    monkeypatch: pytest.MonkeyPatch,
    drive: Drive,
    key: str,
    n_ctx: int | None,
    told: str,
) -> None:
    """Where it holds the run; else what the run needs. Notices tell of that, and of a card that is not measured on."""
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [PlannedQuant("q8_0", plan_row("tiny", "q8_0", BUDGET))]
    asked: list[int | None] = []

    def add(_targets: object, _kind: str, config: LoadConfig, _n_gen: int) -> None:
        asked.append(config.n_ctx)

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        await press(app, pilot, "enter", key, "g", *"3060 ti", "enter")
        await press(app, pilot, "b")
        assert asked == [n_ctx]
        said = [notice.message for notice in app._notifications]
        assert any("measured on this machine" in each for each in said)
        assert any(told in each for each in said)
        assert len(said) == (2 if told else 1)

    drive(App(dataclasses.replace(services, local_models=lambda: (model,))), steps)


def test_marked_quants_are_measured(
    tiny_twin: Path, services: Services, planner: FakePlanner, jobs: FakeServices, drive: Drive
) -> None:
    """The Run screen comes to the front with the jobs; what they measured stands in the Library afterwards."""
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [PlannedQuant("q8_0", plan_row("tiny", "q8_0", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        queue = WatchedQueue(app.run_queue)
        await press(app, pilot, "enter", "space")
        assert "1 marked" in words_of(app)
        await press(app, pilot, "space")
        assert "marked" not in words_of(app)
        await press(app, pilot, "space", "b")
        assert app.current_mode == "run"
        assert [(item.model, item.kind) for item in app.run_queue.items] == [(str(tiny_twin), "bench")]
        await queue.idle()
        await press(app, pilot, "1")
        line = next(line for line in words_of(app).splitlines() if " q8_0 " in line)
        assert "10.63   94.1" in line
        assert "●" not in line
        await press(app, pilot, "m")
        assert app.run_queue.items[-1].kind == "maxctx"

    drive(with_disk(services, model), steps, (200, 40))
    assert jobs.engines[0].closed


def test_a_click_chooses_and_marks(app: App, drive: Drive) -> None:
    """A click on a model plans it, one on a quant chooses it, a second marks it."""

    async def steps(app: App, pilot: Page) -> None:
        await pilot.click(ModelList, offset=(3, 2))
        await settle(app, pilot)
        assert "synth:large-72b" in words_of(app)
        await pilot.click(VariantsTable, offset=(5, 2))
        await pilot.click(VariantsTable, offset=(5, 2))
        await settle(app, pilot)
        assert "1 marked" in words_of(app)

    drive(app, steps)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreError("the results are of a newer ggbench", "update ggbench"), "update ggbench"),
        (RuntimeError("boom"), "unexpected, RuntimeError: boom"),
    ],
)
def test_a_store_that_cannot_be_read_is_told(services: Services, drive: Drive, error: Exception, told: str) -> None:
    """The plans are there all the same, without what was measured."""

    def open_store() -> Store:
        raise error

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert told in shown
        assert "q8_0    ✓" in shown

    drive(App(dataclasses.replace(services, open_store=open_store)), steps)


def test_a_machine_that_cannot_be_asked_is_told(services: Services, drive: Drive) -> None:
    """Why, and that nothing is planned before it is known."""

    def machine_budget() -> Any:  # noqa: ANN401 - it returns nothing
        raise UsageError("there is no GPU 3 here", "there are 2, counted from 0")

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "✗ there is no GPU 3 here" in shown
        assert "there are 2, counted from 0" in shown
        assert "planned once this machine is known" in shown

    drive(App(dataclasses.replace(services, machine_budget=machine_budget)), steps)


def test_a_file_that_is_gone_is_told_where_it_was_listed(
    tmp_path: Path, services: Services, planner: FakePlanner, drive: Drive
) -> None:
    """When it is planned, and when it is to be measured; the other models still work."""
    path = tmp_path / "gone.gguf"
    model = local(str(path), "q8_0", store="folder", name="gone", paths=(path,))

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter", "b")
        assert app.current_mode == "library"
        assert "gone.gguf" in words_of(app)
        assert "✗" in words_of(app)
        planner.errors[str(path)] = BadFile("gone.gguf cannot be read", "check the path")
        shown = await press(app, pilot, "r", "right")
        assert "✗ gone.gguf cannot be read" in shown
        assert "check the path" in shown
        assert planner.n_forgotten == 1
        shown = await press(app, pilot, "escape", "j")
        assert "synth:small-0.6b · 8 quants" in shown
        assert "✗ gone" not in shown

    drive(with_disk(services, model), steps)


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
        assert "✓ 19.3 GiB left" in shown

    drive(app, steps)


def test_names_of_others_are_text(services: Services, planner: FakePlanner, drive: Drive) -> None:
    """Neither markup nor control characters of a model's or a quant's name do anything."""
    name = "maker/[bold red]x[/]"
    planner.rows_of[name] = [PlannedQuant("[b]q\x1b[2J", plan_row("x", "q8_0", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "maker/[bold red]x[/]" in shown
        assert "[b]q[2J" in shown

    drive(with_disk(services, local(name, "q8_0")), steps, WIDE)


def test_news_of_a_run_bring_its_measurement(app: App, jobs: FakeServices, drive: Drive) -> None:
    """A run that another screen or another ggbench stored shows once it is told."""

    async def steps(app: App, pilot: Page) -> None:
        with Store.open(jobs.folder / "results.sqlite") as store:
            put_run(store, start("synth:small-0.6b", "q8_0"))
        app.screen.post_message(RunStored(1))
        await settle(app, pilot)
        line = next(line for line in words_of(app).splitlines() if " q8_0 " in line)
        assert "—" not in line

    drive(app, steps, (200, 40))


def test_the_stack_fills_the_line_exactly() -> None:
    """Parts that are there have a character at least; what is missing covers the end of what is wanted."""
    from ggbench.tui.widgets.memory_bar import memory_parts, stack_widths

    fitting = plan_row("small", "q8_0", BUDGET)
    for width in (10, 78, 200):
        parts = memory_parts(fitting, BUDGET)
        widths = stack_widths(parts, width)
        assert sum(widths) == width
        assert all(widths)
    missing = plan_row("large", "q8_0", BUDGET)
    parts = memory_parts(missing, BUDGET)
    assert parts[-1].name == "missing"
    widths = stack_widths(parts, 100)
    assert sum(widths) == 100
    assert widths[-1] == pytest.approx(
        100 * -(missing.left_bytes or 0) / (72.3e9 * 8.5 / 8 + 8192 * 2_621_440 + 300 * 2**20), abs=1
    )


def test_the_planner_ends_with_the_app(app: App, planner: FakePlanner, drive: Drive) -> None:
    """Nothing is left behind."""

    async def steps(app: App, pilot: Page) -> None:
        assert app.screen.query_one(MemoryBar)

    drive(app, steps)
    assert planner.is_closed


def test_an_error_without_a_hint_is_one_line(app: App, planner: FakePlanner, drive: Drive) -> None:
    """It does not end in a stray semicolon or an empty line."""
    planner.errors["synth:small-0.6b"] = GgbenchError("llama.cpp said no")

    async def steps(app: App, pilot: Page) -> None:
        assert "✗ llama.cpp said no" in words_of(app)

    drive(app, steps)
