"""What of the Library is in view, and where its keys go: filters, columns, focus, the mouse."""

import msgspec.structs
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ggbench.sizing.plan_record import PlannedForecast
from ggbench.tui.app import GgbenchApp
from ggbench.tui.planner import PlannedQuant
from ggbench.tui.services import Services
from ggbench.tui.widgets.models_pane import ModelList
from ggbench.tui.widgets.quants_table import QuantsTable
from tests.fakes.driving import check_snapshot, choose, names, press, settle, table, with_disk, words_of
from tests.fakes.library import BUDGET, FakePlanner, local, plan_row
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


def keys(app: App) -> list[str]:
    return [each.binding.description for each in app.screen.active_bindings.values() if each.binding.show]


def test_the_filter_takes_letters_and_gives_them_back(app: App, drive: Drive) -> None:
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
    broken = msgspec.structs.replace(plan_row("x", "q6_k", BUDGET), left_bytes=None, fits=None, planned_n_ctx=None)
    rows = [PlannedQuant("q6_k", broken)]
    rows += [PlannedQuant(quant, plan_row("x", quant, BUDGET)) for quant in ("q8_0", "q2_k", "q4_0")]
    planner.rows_of["synth:small-0.6b"] = rows

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter")
        assert names(app) == ["q6_k", "q8_0", "q2_k", "q4_0"]
        await press(app, pilot, "s")
        assert names(app) == ["q2_k", "q4_0", "q6_k", "q8_0"]
        shown = await press(app, pilot, "s", "s", "s")
        assert names(app) == ["q2_k", "q4_0", "q8_0", "q6_k"]
        assert "fits ↓" in shown
        assert " ? " in shown
        await press(app, pilot, "S")
        assert names(app) == ["q8_0", "q4_0", "q2_k", "q6_k"]
        await pilot.click(QuantsTable, offset=(3, 0))
        await settle(app, pilot)
        assert names(app) == ["q2_k", "q4_0", "q6_k", "q8_0"]

    drive(app, steps)


def test_a_click_chooses_and_marks(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await pilot.click(ModelList, offset=(3, 2))
        await settle(app, pilot)
        assert "synth:large-72b" in words_of(app)
        await pilot.click(QuantsTable, offset=(5, 2))
        await pilot.click(QuantsTable, offset=(5, 2))
        await settle(app, pilot)
        assert "1 marked" in words_of(app)

    drive(app, steps)


def test_escape_clears_a_filter_before_it_leaves(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await choose(app, pilot, "synth:small-0.6b")
        await press(app, pilot, "slash", *"Q4_", "enter")
        assert table(app).has_focus
        assert len(names(app)) == 2
        await press(app, pilot, "escape")
        assert table(app).has_focus
        assert len(names(app)) == 8
        await press(app, pilot, "escape")
        assert app.screen.query_one(ModelList).has_focus

    drive(app, steps)


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
def test_a_new_user_reads_what_to_do_next(services: Services, drive: Drive, size: tuple[int, int]) -> None:
    async def empty(app: App, pilot: Page) -> None:
        shown = " ".join(words_of(app).split())
        assert "No GGUF file found. Press / and type the path of a folder" in shown

    async def filled(app: App, pilot: Page) -> None:
        assert "No GGUF" not in words_of(app)

    drive(App(services), empty, size)
    drive(with_disk(services, local("maker/small-gguf", "q8_0")), filled, size)


def test_what_is_expected_stands_before_the_bound(app: App, planner: FakePlanner, drive: Drive) -> None:
    row = plan_row("small-0.6b", "q8_0", BUDGET, 16384)
    expected = (
        PlannedForecast(31.2, (28.0, 34.4), "twins of 2 and 6 of 24 layers", "forecast"),
        PlannedForecast(40.0, (20.0, 90.0), "this machine's other runs", "other runs"),
        None,
    )
    planner.rows_of["synth:small-0.6b"] = [
        PlannedQuant(quant, msgspec.structs.replace(row, quant=quant, expected=each))
        for quant, each in zip(("q8_0", "q6_k", "q4_0"), expected, strict=True)
    ]

    async def steps(app: App, pilot: Page) -> None:
        app.animation_level = "none"
        await choose(app, pilot, "synth:small-0.6b")
        shown = words_of(app)
        assert "31 ±3" in shown
        assert "40 (20–90)" in shown
        assert "expected: from a forecast, from other models' runs" in " ".join(shown.split())
        check_snapshot(app, "library_expected")

    drive(app, steps)
