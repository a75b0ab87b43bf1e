"""The Library: which models there are, and what is planned for the quants of one."""

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings
from ggbench.models.catalog import load_catalog
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run, Settings
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import Budget, PlannedForecast
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.model_list import grouped, list_models
from ggbench.tui.planner import PlannedQuant
from ggbench.tui.widgets.models_pane import ModelList
from ggbench.tui.widgets.quants_table import QuantsTable
from tests.fakes.driving import ask, check_snapshot, choose, names, press, settle, table, with_disk, words_of
from tests.fakes.jobs import FakeServices
from tests.fakes.library import BUDGET, FakePlanner, local, plan_row
from tests.fakes.measured import put_run, start
from tests.fakes.watched import WAIT_S, WatchedQueue
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
WIDE = (180, 40)


def test_models_stand_in_sections(services: Services, drive: Drive) -> None:
    disk = (
        local("maker/tiny-gguf", "q8_0"),
        local("maker/tiny-gguf", "q4_k_m"),
        local("/models/mine.gguf", "q5_0", store="folder", name="mine"),
        local("twin:small-0.6b", "q8_0", store="twins"),
        local("", None, store="Ollama", name="~/.ollama", paths=(), file_bytes=None, reason="it cannot be read"),
    )

    async def steps(app: App, pilot: Page) -> None:
        prompts = [str(option.prompt).strip() for option in app.screen.query_one(ModelList).options]
        assert prompts == [
            "on this disk", "maker/tiny-gguf  2 quants", "mine  q5_0", "✗ ~/.ollama", "twins: no download",
            "twin:small-0.6b  1 made", "twin:large-72b", "twin:unpublished-1b", "catalog, on the Hub",
            "small-0.6b", "large-72b",
        ]  # fmt: skip
        shown = await press(app, pilot, "down", "down")
        assert "✗ ~/.ollama: it cannot be read" in shown

    drive(with_disk(services, *disk), steps, WIDE)


def test_the_highlighted_model_is_planned(app: App, planner: FakePlanner, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "q4_k_m 4.85 1.39 GiB ✓ ≤ 853 222,208*" in " ".join(shown.split())
        assert "q8_0 at n_ctx 8,192: ✓ 19.3 GiB left" in shown
        shown = await press(app, pilot, "j")
        assert "✗ 70.8 GiB missing" in shown
        assert planner.asked == [("twin:small-0.6b", (), None, None), ("twin:large-72b", (), None, None)]
        shown = await press(app, pilot, "j", "j", "j")
        assert planner.asked[-1] == ("large-72b", ("q8_0", "q4_k_m", "q2_k"), None, None)
        assert names(app) == ["q8_0", "q4_k_m", "q2_k"]

    drive(app, steps)


def test_a_later_choice_wins(app: App, planner: FakePlanner, drive: Drive) -> None:
    planner.held = {"twin:large-72b"}

    async def steps(app: App, pilot: Page) -> None:
        await pilot.press("j")
        await asyncio.to_thread(planner.reached.wait, 60)
        assert "twin:large-72b · planning…" in words_of(app)
        await pilot.press("j")
        planner.opened.set()
        await settle(app, pilot)
        assert "twin:unpublished-1b · 8 quants" in words_of(app)
        assert "missing" not in words_of(app)

    drive(app, steps)


def test_a_quant_that_cannot_be_planned_is_a_row(app: App, planner: FakePlanner, drive: Drive) -> None:
    """Its reason is shown in place of the memory; the others are planned."""
    row = msgspec.structs.replace(
        plan_row("x", "iq9_z", BUDGET), outcome=Outcome.FAILED, reason="no such\x1b[31m type", weight_bytes=None,
        fits=None,
    )  # fmt: skip
    planner.rows_of["twin:small-0.6b"] = [
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
        put_run(store, msgspec.structs.replace(start("twin:small-0.6b", "q8_0"), setup=LlamaConfig(type_k="q4_0")))
        long = msgspec.structs.replace(start("twin:small-0.6b", "q4_k_m"), settings=DecodeSettings(9000))
        put_run(store, long, n_gen=9000)
        head = msgspec.structs.replace(start("twin:small-0.6b", "q4_k_m"), kind="maxctx", setup=LlamaConfig())
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
        assert len(app.screen.query_one(ModelList).entries) == 2
        assert "twin:large-72b · 8 quants" in words_of(app)
        await press(app, pilot, "escape")
        assert len(app.screen.query_one(ModelList).entries) == 5

    drive(app, steps)


def test_quants_are_filtered_and_those_that_fit_kept(app: App, drive: Drive) -> None:
    """Quants hidden because they do not fit are counted; escape ends the filter."""

    async def steps(app: App, pilot: Page) -> None:
        await choose(app, pilot, "twin:large-72b")
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
    planner.rows_of["twin:small-0.6b"] = rows

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
        assert "twin:large-72b" in words_of(app)
        await pilot.click(QuantsTable, offset=(5, 2))
        await pilot.click(QuantsTable, offset=(5, 2))
        await settle(app, pilot)
        assert "1 marked" in words_of(app)

    drive(app, steps)


def test_escape_clears_a_filter_before_it_leaves(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await choose(app, pilot, "twin:small-0.6b")
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
    planner.rows_of["twin:small-0.6b"] = [
        PlannedQuant(quant, msgspec.structs.replace(row, quant=quant, expected=each))
        for quant, each in zip(("q8_0", "q6_k", "q4_0"), expected, strict=True)
    ]

    async def steps(app: App, pilot: Page) -> None:
        app.animation_level = "none"
        await choose(app, pilot, "twin:small-0.6b")
        shown = words_of(app)
        assert "31 ±3" in shown
        assert "20–90" in shown
        assert "40 (" not in shown
        assert "  max  " in f"{next(line for line in shown.splitlines() if 'BPW' in line)} "
        assert "expected: from a forecast, from other models' runs" in " ".join(shown.split())
        check_snapshot(app, "library_expected")

    drive(app, steps)


def test_left_and_right_change_the_context(app: App, planner: FakePlanner, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter", "j", "j")
        shown = await press(app, pilot, "right")
        assert "q5_k_m at n_ctx 16,384" in shown
        assert planner.asked[-1] == ("twin:small-0.6b", (), 16_384, "q5_k_m")
        assert "n_ctx 17,408" in await press(app, pilot, "shift+right")
        assert "n_ctx 8,704" in await press(app, pilot, "left")
        assert "n_ctx 256:" in await press(app, pilot, *["left"] * 9)
        assert "n_ctx 1,048,576: ✗" in await press(app, pilot, *["right"] * 14)
        assert "╳ missing" in words_of(app)
        assert "missing; fits with n_ctx " in words_of(app)

    drive(app, steps)


def test_another_card_is_planned_for(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = await press(app, pilot, "g", *"3060 ti", "enter")
        assert "plan for RTX 3060 Ti · 8.00 GiB, 1.25 GiB kept free · 448 GB/s" in shown
        assert "q8_0 8.50 1.66 GiB ✓ ≤ 306 63,744*" in " ".join(shown.split())
        shown = await press(app, pilot, "g", *"no such card", "enter")
        assert "no such card" in shown
        shown = await press(app, pilot, "escape", "g", *"12gib", "enter")
        assert "plan for a GPU" in shown
        assert " · 12.0 GiB, 1.25 GiB kept free · ? GB/s · " in shown
        shown = await press(app, pilot, "g")
        assert "● a GPU with the given memory 12.0 GiB" in " ".join(shown.split())
        shown = await press(app, pilot, "enter")
        assert " · 12.0 GiB, 1.25 GiB kept free" in shown
        shown = await press(app, pilot, "g", *"this", "enter")
        assert "RTX 4090 · 22.0 GiB free of 24.0 GiB" in shown
        assert "● this machine" in await press(app, pilot, "g")

    drive(app, steps)


def test_cards_are_listed_by_family_below_the_current_one(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = await press(app, pilot, "g", *"m3 max 64gb", "enter")
        assert "plan for Apple M3 Max · 48.0 GiB" in shown
        shown = await press(app, pilot, "g")
        assert "● Apple M3 Max " in shown
        assert "GeForce GTX 16  " in shown
        assert "GeForce GTX 16  " not in await press(app, pilot, *"gtx")

    drive(app, steps)


def test_a_card_smaller_than_its_reserve_is_refused(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = await press(app, pilot, "g", *"512MiB", "enter")
        assert "more than the 1.25 GiB that are kept free" in shown
        assert "plan for a GPU" not in await press(app, pilot, "escape")

    drive(app, steps)


@pytest.mark.parametrize(("width", "has_reserve"), [(78, False), (118, True)])
def test_every_size_of_the_legend_has_its_name(services: Services, drive: Drive, width: int, has_reserve: bool) -> None:
    async def steps(app: App, pilot: Page) -> None:
        words = words_of(app)
        assert "free 19.3 GiB" in words
        assert ("reserve 1.00 GiB" in words) is has_reserve

    drive(App(services), steps, size=(width + 2, 24))


@pytest.mark.parametrize(("key", "n_ctx", "notice"), [("right", 16_384, ""), ("left", None, "needs n_ctx 10,240")])
def test_a_run_takes_the_context_that_was_planned(
    tiny_twin: Path,
    services: Services,
    planner: FakePlanner,
    monkeypatch: pytest.MonkeyPatch,
    drive: Drive,
    key: str,
    n_ctx: int | None,
    notice: str,
) -> None:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [PlannedQuant("q8_0", plan_row("tiny", "q8_0", BUDGET))]
    asked: list[int | None] = []

    def add(jobs: Sequence[Job]) -> None:
        asked.extend(job.setup.n_ctx for job in jobs if isinstance(job.setup, LlamaConfig))

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        await press(app, pilot, "enter", key, "g", *"3060 ti", "enter")
        await press(app, pilot, "b", "ctrl+r", "enter")
        assert asked == [n_ctx]
        shown = [each.message for each in app._notifications]
        assert any("runs on this machine" in each for each in shown)
        assert any(notice in each for each in shown)
        assert len(shown) == (2 if notice else 1)

    drive(App(msgspec.structs.replace(services, local_models=lambda: (model,))), steps)


def test_marked_quants_are_measured(
    tiny_twin: Path, services: Services, planner: FakePlanner, jobs: FakeServices, drive: Drive
) -> None:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [PlannedQuant("q8_0", plan_row("tiny", "q8_0", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        queue = WatchedQueue(app.run_queue)
        await press(app, pilot, "enter", "space")
        assert "1 marked" in words_of(app)
        await press(app, pilot, "space")
        assert "marked" not in words_of(app)
        await press(app, pilot, "space", "b", "enter")
        assert app.current_mode == "run"
        assert [(item.subject.model, item.kind) for item in app.run_queue.items] == [(str(tiny_twin), "decode")]
        await queue.idle()
        await press(app, pilot, "1")
        line = next(line for line in words_of(app).splitlines() if " q8_0 " in line)
        assert "< 10.6" in line
        assert " 94.1 " in line
        assert "●" not in line
        await ask(app, pilot, "maxctx")
        await press(app, pilot, "enter")
        assert app.run_queue.items[-1].kind == "maxctx"

    drive(with_disk(services, model), steps, (200, 40))
    assert jobs.workers[0].closed


def in_dialog(words: str) -> str:
    return " ".join(words.replace("│", " ").split())


def test_what_a_decode_takes_is_said_before_it_starts(
    tiny_twin: Path, services: Services, planner: FakePlanner, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count and the depths are in the dialog; b alone starts nothing, and the estimate follows what is typed."""
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    row = plan_row("tiny", "q8_0", BUDGET)
    expected = PlannedForecast(tok_s=0.02, tok_s_ci95=(0.01, 0.05), basis="run 1", speed_basis="other runs")
    planner.rows_of[str(tiny_twin)] = [
        PlannedQuant("q8_0", msgspec.structs.replace(row, expected=expected, decode=(), n_ctx=8192))
    ]
    asked: list[Settings] = []

    def add(jobs: Sequence[Job]) -> None:
        asked.extend(job.settings for job in jobs)

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", add)
        words = in_dialog(await press(app, pilot, "enter", "b"))
        assert asked == []
        assert "Measure q8_0" in words
        took = re.search(r"about (\d+:\d+)–(\d+:\d+:\d+) \((.*?)\)", words)
        assert took is not None
        assert took[3] == "from other models' runs"
        assert "MiB of memory at n_ctx 256, of 21.0 GiB" in words
        words = in_dialog(await press(app, pilot, *["down"] * 3, *"0,4k"))
        assert "(from other models' runs), and the prompts" in words
        assert "n_ctx 4,352" in words
        await press(app, pilot, "escape", "b")
        assert asked == []
        await press(app, pilot, "down", *["backspace"] * 3, "down", "down", *"0,4k", "enter")
        assert asked == [DecodeSettings(128, depths=(0, 4096))]
        await press(app, pilot, "1", "b", "enter")
        assert asked[1] == asked[0]

    drive(App(msgspec.structs.replace(services, local_models=lambda: (model,))), steps)


def test_the_speed_comes_before_the_longest_context_in_a_small_window(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        header = next(line for line in (await choose(app, pilot, "twin:small-0.6b")).splitlines() if "BPW" in line)
        assert "tok/s" in header

    drive(app, steps)


def test_a_run_of_another_ggbench_is_asked_about(
    tiny_twin: Path, services: Services, planner: FakePlanner, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [PlannedQuant("q8_0", plan_row("tiny", "q8_0", BUDGET))]
    asked: list[Job] = []
    with services.open_store() as store:
        stored = store.load_run(put_run(store, start(), n_gen=30))
    monkeypatch.setattr(Store, "runs_elsewhere", lambda _self: ((stored, 4242),))

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", asked.extend)
        words = in_dialog(await press(app, pilot, "enter", "b", "enter"))
        assert "Another ggbench (process 4242) is measuring run 1" in words
        await press(app, pilot, "n")
        assert asked == []
        await press(app, pilot, "b", "enter", "y")
        assert len(asked) == 1

    drive(App(msgspec.structs.replace(services, local_models=lambda: (model,))), steps)


def test_a_plan_is_shown_before_the_bandwidth_is_measured(services: Services) -> None:
    """The first start measures the memory's bandwidth, which takes a second or two."""
    measured = threading.Event()

    def budgets(_setup: LlamaConfig) -> Iterator[Budget]:
        yield msgspec.structs.replace(BUDGET, bandwidth=None)
        assert measured.wait(WAIT_S)
        yield BUDGET

    async def in_app() -> None:
        app = App(msgspec.structs.replace(services, machine_budgets=budgets))
        async with app.run_test(size=(80, 24)) as pilot:
            while "q4_k_m" not in words_of(app):
                await pilot.pause()
            assert "? GB/s" in words_of(app)
            assert "19.3 GiB left" in words_of(app)
            measured.set()
            await settle(app, pilot)
            assert "1008 GB/s" in words_of(app)
            assert "19.3 GiB left" in words_of(app)

    asyncio.run(in_app())


def test_a_long_catalog_is_grouped_by_family_until_a_filter_shortens_it() -> None:
    listed = list_models(load_catalog(), ())
    groups = list(grouped(listed))
    assert [headings for headings, _ in groups[:2]] == [("twins: no download", " qwen1.5"), (" qwen2",)]
    assert [entry for _, group in groups for entry in group] == list(listed)
    few = [entry for entry in listed if entry.matches("gemma 4")]
    assert [headings for headings, _ in grouped(few)] == [("twins: no download",), ("catalog, on the Hub",)]
