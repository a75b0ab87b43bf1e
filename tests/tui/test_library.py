"""The Library: which models there are, and what is planned for the quants of one."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ggbench.commands.budget_options import BudgetOptions
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.order import check
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile, StoreError
from ggbench.models.catalog import load_catalog
from ggbench.models.disk import LocalModel
from ggbench.runs.experiment import Job
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import HOST_DEVICE, Budget
from ggbench.stats.intervals import Expected
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import ModelsChanged, Services
from ggbench.tui.library import Library
from ggbench.tui.model_list import ModelEntry, Section
from ggbench.tui.screens.library import LibraryScreen
from ggbench.tui.widgets.answer_pane import AnswerPane
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.models_pane import ModelTree
from ggbench.tui.widgets.quant_panels import memory_parts
from ggbench.tui.widgets.tables import QuantsTable
from tests.fakes.candidates import measured_loss
from tests.fakes.driving import NEED_16K, ask, choose, names, press, said, see, settle, table, with_disk, words_of
from tests.fakes.jobs import FakeServices
from tests.fakes.library import BUDGET, FakePlanner, budgets_of, local, plan_row, planned
from tests.fakes.measured import put_run, start
from tests.fakes.watched import WAIT_S, WatchedQueue
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
WIDE = (180, 40)


def expected(tok_s: float) -> Expected:
    return Expected(tok_s, tok_s * 0.9, tok_s * 1.1, "scaled", "this machine's other runs")


def tree(app: App) -> ModelTree:
    return app.screen.query_one(ModelTree)


def test_models_stand_in_sections(services: Services, drive: Drive) -> None:
    disk = (
        local("maker/tiny-gguf", "q8_0"),
        local("maker/tiny-gguf", "q4_k_m"),
        local("/models/mine.gguf", "q5_0", store="folder", name="mine"),
        local("twin:small-0.6b", "q8_0", store="twins"),
        local("", None, store="Ollama", name="~/.ollama", paths=(), file_bytes=None, reason="it cannot be read"),
    )

    async def steps(app: App, pilot: Page) -> None:
        lines = [f"{node.data.title} {node.data.note}".strip() for node in tree(app).lines.values() if node.data]
        assert lines == [
            "on this disk", "mine q5_0", "maker/tiny-gguf 2 quants", "✗ ~/.ollama", "catalog", "small-0.6b",
            "unpublished-1b", "vast-72b",
        ]  # fmt: skip
        shown = await see(app, pilot, "down", "down")
        assert "✗ ~/.ollama: it cannot be read" in shown

    drive(with_disk(services, *disk), steps, WIDE)


def test_the_highlighted_model_is_planned(app: App, planner: FakePlanner, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "★q8_0 ✓ " in " ".join(shown.split())
        assert "q8_0 at n_ctx 8,192: ✓ 19.3 GiB left" in shown
        assert "│ Run q8_0: " in shown
        assert "│ llama-server -hf maker/small-gguf:q8_0 " in shown
        shown = await see(app, pilot, "j")
        assert "unpublished-1b · 8 quants" in shown
        shown = await see(app, pilot, "j")
        assert "✗ " in shown
        assert "GiB short" in shown
        assert planner.asked == [
            ("small-0.6b", (), None), ("twin:unpublished-1b", (), None),
            ("vast-72b", ("q8_0", "q4_k_m", "q2_k"), None),
        ]  # fmt: skip
        assert sorted(names(app)) == ["q2_k", "q4_k_m", "q8_0"]

    drive(app, steps)


@pytest.mark.parametrize(
    ("device", "shown"),
    [
        ("Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz", "Xeon Gold 6248R · 22.0 GiB free · 1008 GB/s"),
        ("AMD EPYC 9554 64-Core Processor", "EPYC 9554 · 22.0 GiB free · 1008 GB/s"),
        ("EPYC of 1 GiB", "EPYC of 1 GiB · limit 1.00 GiB · 1008 GB/s"),
    ],
)
def test_the_machine_is_named_on_the_top_line(services: Services, drive: Drive, device: str, shown: str) -> None:
    """A limit is not called free."""
    memory = msgspec.structs.replace(BUDGET.devices[0], device=HOST_DEVICE, name=device)
    if "limit" in shown:
        memory = msgspec.structs.replace(memory, free_bytes=1 << 30, memory_source="given as --memory-limit")
    budget = Budget(host=memory)

    async def steps(app: App, pilot: Page) -> None:
        assert words_of(app).splitlines()[0].strip().endswith(shown)

    drive(App(msgspec.structs.replace(services, machine_budgets=budgets_of(budget))), steps, (120, 24))


def test_a_repo_that_is_on_this_disk_now_keeps_its_quants() -> None:
    library, entry = Library(), ModelEntry(Section.HUB, "maker/tiny-gguf", "maker/tiny-gguf")
    assert library.choose(entry, is_planning=False)
    library.add(check(planned("q8_0", plan_row("tiny", "q8_0", BUDGET)), Needs()))
    assert not library.choose(msgspec.structs.replace(entry, section=Section.DISK), is_planning=False)
    assert list(library.rows) == ["q8_0"]


def test_a_later_choice_wins(app: App, planner: FakePlanner, drive: Drive) -> None:
    planner.held = {"twin:unpublished-1b"}

    async def steps(app: App, pilot: Page) -> None:
        await pilot.press("j")
        await asyncio.to_thread(planner.reached.wait, 60)
        assert "unpublished-1b · planning…" in words_of(app)
        await pilot.press("j")
        planner.opened.set()
        await settle(app, pilot)
        assert "vast-72b · 3 quants" in words_of(app)

    drive(app, steps)


def test_a_quant_that_cannot_be_planned_is_a_row(app: App, planner: FakePlanner, drive: Drive) -> None:
    """Its reason is shown in place of the memory; the others are planned."""
    row = msgspec.structs.replace(
        plan_row("x", "iq9_z", BUDGET), outcome=Outcome.FAILED, reason="no such\x1b[31m type", weight_bytes=None,
        fits=None,
    )  # fmt: skip
    planner.rows_of["small-0.6b"] = [planned("iq9_z", row), planned("q8_0", plan_row("x", "q8_0", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "iq9_z  ✗ failed" in shown
        assert "★q8_0   ✓" in shown
        assert "no such[31m type" in await see(app, pilot, "enter", "end")
        planner.errors["small-0.6b"] = BadFile("gone.gguf cannot be read", "check the path")
        shown = await see(app, pilot, "r")
        assert "✗ gone.gguf cannot be read" in shown and "check the path" in shown
        assert planner.n_forgotten == 1
        shown = await see(app, pilot, *NEED_16K, "escape", "j")  # the other models still work
        assert "unpublished-1b · 8 quants" in shown and "gone" not in shown

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
        assert ("★q8_0" in shown) is isinstance(error, StoreError)

    drive(App(msgspec.structs.replace(services, open_store=open_store)), steps)


def test_names_of_others_are_text(services: Services, planner: FakePlanner, drive: Drive) -> None:
    name = "maker/[bold red]x[/]"
    planner.rows_of[name] = [
        planned("[b]q\x1b[2J", plan_row("x", "[b]q\x1b[2J", BUDGET)),
        *(planned(f"{file}-Q8_0.gguf", plan_row("x", "q8_0", BUDGET)) for file in "ab"),
        planned("b-Q4_0.gguf", plan_row("x", "q4_0", BUDGET)),
    ]

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert "maker/[bold red]x[/]" in shown
        assert "[b]q[2J" in shown
        # two files of one quant by their names, and where the quant says which is meant, the quant alone
        assert {"a-Q8_0.gguf", "b-Q8_0.gguf", "q4_0"} <= set(names(app))

    drive(with_disk(services, local(name, "q8_0")), steps, WIDE)


def test_how_a_number_is_known_is_seen(app: App, planner: FakePlanner, drive: Drive) -> None:
    """Measured is bare, estimated has ~, and a bound is no speed."""
    row = plan_row("x", "q8_0", BUDGET)
    timed = msgspec.structs.replace(row, expected=Expected(12.3, 12.0, 12.6, "measured", "run 3"))
    measured = planned("measured", timed, weights_loss=measured_loss(0.02), probed_by=3)
    forecast = Expected(31.2, 28.0, 34.4, "scaled", "this machine's other runs", is_steady=False)
    estimated = planned("estimated", msgspec.structs.replace(row, expected=forecast))
    bounded = planned("bounded", row, weights_loss=None)
    planner.rows_of["small-0.6b"] = (measured, estimated, bounded)

    async def steps(app: App, pilot: Page) -> None:
        tails = [line.rpartition("││")[2].split() for line in words_of(app).splitlines()]
        lines = {words[0].strip("★"): words for words in tails if words}
        assert lines["measured"][2:5] == ["12", "0.020", "↓634.0"]
        assert lines["estimated"][2:5] == ["~31", "~0.0011", "↓634.0"]
        assert lines["bounded"][2:5] == ["—", "—", "↓634.0"]

    drive(app, steps, (120, 30))


@pytest.mark.parametrize(("width", "last"), [(70, "file"), (80, "KV"), (100, "left")])
def test_a_wider_table_has_more_columns(app: App, drive: Drive, width: int, last: str) -> None:
    async def steps(app: App, pilot: Page) -> None:
        header = next(line for line in words_of(app).splitlines() if "loss" in line)
        assert header.rstrip(" │").endswith(last)

    drive(app, steps, (width, 24))


def test_rows_keep_their_place_until_the_pick_and_the_cursor_its_quant(
    app: App, planner: FakePlanner, drive: Drive
) -> None:
    async def steps(app: App, pilot: Page) -> None:
        assert names(app)[0] == "q8_0"
        await press(app, pilot, "enter", "end")
        quant = names(app)[-1]
        planner.held, order = {"small-0.6b"}, names(app)
        await press(app, pilot, *NEED_16K[:-1])
        await pilot.press("enter")
        await asyncio.to_thread(planner.reached.wait, WAIT_S)
        assert names(app) == order
        assert isinstance(app.screen, LibraryScreen)
        planner.opened.set()
        await settle(app, pilot)
        assert table(app).chosen_key == quant
        await press(app, pilot, "o", "down", "down", "right", "enter")
        assert planner.requests[-1].setup.type_k != "f16"
        assert table(app).chosen_key == quant

    drive(app, steps)


def keys(app: App) -> list[str]:
    return [each.binding.description for each in app.screen.active_bindings.values() if each.binding.show]


def test_the_filter_takes_letters_and_gives_them_back(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "slash", *"qb l")
        assert isinstance(app.screen.focused, Input)
        assert app.screen.focused.value == "qb l"
        assert "Quit" not in keys(app)
        assert "Run" not in keys(app)
        await press(app, pilot, *["backspace"] * 4, *"VAST", "enter")
        assert len(tree(app).entries) == 1
        assert "vast-72b · 3 quants" in words_of(app)
        await press(app, pilot, "escape")
        assert len(tree(app).entries) == 3
        shown = await see(app, pilot, "slash", *"llama", "enter")
        assert "the search failed" in shown and "offline mode" in shown
        shown = await see(app, pilot, "escape", "slash", *"transformers:org/name", "enter")
        assert "✗ this command needs a GGUF file, not a checkpoint of Transformers" in shown
        assert "decode, prefill, speed" in shown  # which the command line measures
        assert "checkpoint" not in await see(app, pilot, "escape", "escape", "j")

    drive(app, steps, (120, 30))


def test_clicks_choose_and_mark(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        words_of(app)  # a tree knows its lines once it is drawn
        await pilot.click(ModelTree, offset=(6, 3))
        await settle(app, pilot)
        assert "vast-72b · 3 quants" in words_of(app)
        await pilot.click(QuantsTable, offset=(5, 3))
        await settle(app, pilot)
        subtitle = next(line for line in words_of(app).splitlines() if "p pull" in line)
        place = subtitle.index("mark") - app.screen.query_one(QuantsTable).region.x
        await pilot.click(QuantsTable, offset=(place, app.screen.query_one(QuantsTable).region.height - 1))
        await settle(app, pilot)
        assert "1 marked" in words_of(app)
        assert not app.screen.query_one(AnswerPane).display
        assert table(app).chosen_key == names(app)[1]

    drive(app, steps)


def test_the_keys_move_the_focus_past_the_filter(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await choose(app, pilot, "small-0.6b")
        await press(app, pilot, "escape")
        models = tree(app)
        assert models.has_focus
        for key, part in (("tab", table(app)), ("tab", models), ("shift+tab", table(app))):
            await press(app, pilot, key)
            assert part.has_focus
        for keys in ([], ["g"]):  # a window that grows again has the focus where it was
            await press(app, pilot, *keys)
            await pilot.resize_terminal(50, 10)
            await settle(app, pilot)
            await press(app, pilot, *["escape"] * len(keys))
            await pilot.resize_terminal(80, 24)
            await settle(app, pilot)
            assert table(app).has_focus
        await press(app, pilot, "slash", "tab")
        assert models.has_focus

    drive(app, steps)


def test_an_answer_left_by_tab_closes_when_another_model_is_chosen(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await choose(app, pilot, "small-0.6b")
        await press(app, pilot, "escape", "w")
        assert app.screen.query_one(AnswerPane).has_focus
        await press(app, pilot, "tab", "down")
        assert not app.screen.query_one(AnswerPane).display
        assert table(app).display

    drive(app, steps)


def test_a_measurement_of_nothing_says_so(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "home", "b")
        assert "nothing to measure" in said(app)
        assert not app.screen.is_modal

    drive(app, steps)


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
def test_a_new_user_reads_what_to_do_next(services: Services, drive: Drive, size: tuple[int, int]) -> None:
    """On the first start nothing is planned before a model is chosen; families of the catalog are folded."""

    async def steps(app: App, pilot: Page) -> None:
        shown = words_of(app)
        assert size[0] < 80 or "Open a model with enter; the best here come first" in shown
        assert "for chat, 8,192 tokens" in shown
        models = tree(app)
        n_folded = models.last_line
        family = next(node for key, node in models.lines.items() if key.endswith(":llama"))
        models.move_cursor(family)
        await press(app, pilot, "enter")
        assert models.last_line == n_folded + len(family.children)
        await press(app, pilot, "down", "left")
        assert models.cursor_node is family
        await press(app, pilot, "enter")
        assert models.last_line == n_folded

    drive(App(msgspec.structs.replace(services, load_catalog=load_catalog)), steps, size)


def test_the_best_models_for_this_machine_are_first_and_renewed(
    services: Services, planner: FakePlanner, drive: Drive
) -> None:
    """A new user sees the first of them. They follow needs and, once shown, files."""
    speeds = {"vast-72b": 18.0, "small-0.6b": 31.0}
    rows = {name: msgspec.structs.replace(plan_row(name, "q4_k_m", BUDGET), expected=expected(speed))
            for name, speed in speeds.items()}  # fmt: skip
    planner.best = [msgspec.structs.replace(planned("q4_k_m", row), model_key=name) for name, row in rows.items()]
    disk: list[LocalModel] = []

    async def steps(app: App, pilot: Page) -> None:
        best = [each for each in tree(app).entries if each.section is Section.BEST]
        assert [(each.quant, each.about) for each in best] == [
            ("q4_k_m", f"q4_k_m ~{speeds[each.model]:g}") for each in best
        ]
        line = tree(app).chosen
        assert line is not None and line.entry == best[0]
        library = app.screen
        assert isinstance(library, LibraryScreen)
        await press(app, pilot, "up")
        shown = await see(app, pilot, "w")  # with its command, though no model is chosen
        assert "╭─ why" in shown and "│ llama-server " in shown
        await press(app, pilot, "escape")
        assert tree(app).has_focus
        await press(app, pilot, "down", "enter")
        assert table(app).has_focus
        planner.best = ()
        await press(app, pilot, *NEED_16K)
        assert planner.best_asked[-1].given_n_ctx == 16_384
        n_asked = len(planner.best_asked)
        await press(app, pilot, "r")
        assert len(planner.best_asked) == n_asked + 1
        disk.append(local("small-0.6b", "q4_k_m"))
        library.post_message(ModelsChanged())
        await settle(app, pilot)
        assert len(planner.best_asked) == n_asked + 2
        library.fail("best", BadFile("broken", "mend it"))
        library.replan()
        await settle(app, pilot)
        assert len(planner.best_asked) == n_asked + 3
        await press(app, pilot, "2")
        disk.append(local("small-0.6b", "q8_0"))
        library.post_message(ModelsChanged())
        await settle(app, pilot)
        assert len(planner.best_asked) == n_asked + 3
        await press(app, pilot, "1")
        assert len(planner.best_asked) == n_asked + 4
        assert any(each.section is Section.BEST for each in tree(app).entries)  # until others are found
        await press(app, pilot, "g", *"3060 ti", "enter")
        assert all(each.section is not Section.BEST for each in tree(app).entries)

    services = msgspec.structs.replace(services, load_catalog=load_catalog, local_models=lambda: tuple(disk))
    drive(App(services), steps, (120, 36))


def test_the_loss_of_each_quant_stands_over_its_speed(app: App, planner: FakePlanner, drive: Drive) -> None:
    """More loss is higher, more speed farther right, a letter for each; without two speeds there is no plot."""
    speeds = {"q8_0": 31.0, "q4_k_m": 51.0, "q2_k": 72.0}
    planner.rows_of["small-0.6b"] = [
        planned(quant, msgspec.structs.replace(plan_row("small", quant, BUDGET), expected=expected(speed)))
        for quant, speed in speeds.items()
    ]

    async def steps(app: App, pilot: Page) -> None:
        plot = app.screen.query_one(CurvesPlot)
        legend, *lines = str(plot.render()).splitlines()
        letters = {name.rstrip("★"): letter for letter, name in (each.split() for each in legend.split("   "))}
        places = [
            (row, line.index(letters[quant])) for quant in speeds for row, line in enumerate(lines[:-3])
            if letters[quant] in line
        ]  # fmt: skip
        q8_0, q4_k_m, q2_k = places
        assert q8_0[0] > q4_k_m[0] > q2_k[0] and q8_0[1] < q4_k_m[1] < q2_k[1]
        assert legend.count("★") == 1 and lines[-1].strip() == "speed [tok/s]"
        await press(app, pilot, "tab", "tab", "down")  # past the plot, which has no keys
        assert not plot.display

    drive(app, steps, (120, 36))


def test_no_key_acts_on_a_model_that_is_not_at_the_cursor(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        assert "b" in {each.binding.key for each in app.screen.active_bindings.values() if each.enabled}
        await press(app, pilot, "up")  # the line of the section
        assert names(app) == []
        await press(app, pilot, "b")
        assert not app.screen.is_modal

    drive(app, steps)


def test_another_card_is_planned_for(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = await see(app, pilot, "g", *"3060 ti", "enter")
        assert "planned for RTX 3060 Ti · 7.56 GiB" in shown
        assert "q8_0 ✓ ? 0.00" not in " ".join(shown.split())
        shown = await see(app, pilot, "g", *"no such card", "enter")
        assert "none of the" in shown
        shown = await see(app, pilot, "escape", "g", *"3090 + lots")
        assert "'lots'" in shown
        shown = await see(app, pilot, "escape", "g", *"3090 + 64")
        assert "planned for RTX 3090 · 23.6 GiB + 64.0 GiB · 936 GB/s" in shown
        assert "else 32 GiB are assumed" in shown
        shown = await see(app, pilot, *"GiB@60GB/s")
        assert "planned for RTX 3090 · 23.6 GiB + 64.0 GiB · 936 GB/s" in shown
        shown = await see(app, pilot, "enter")
        assert "planned for RTX 3090 · 23.6 GiB + 64.0 GiB" in shown
        shown = await see(app, pilot, "g", *"12gib", "enter")
        assert "planned for a GPU · 12.0 GiB + 32.0 GiB ass" in shown
        shown = await see(app, pilot, "g", "enter")
        assert "RTX 4090 · 22.0 GiB free" in shown

    drive(app, steps, (140, 36))


def test_marked_quants_are_measured(
    tiny_twin: Path, services: Services, planner: FakePlanner, jobs: FakeServices, drive: Drive
) -> None:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [planned("q8_0", plan_row("tiny", "q8_0", BUDGET))]

    async def steps(app: App, pilot: Page) -> None:
        queue = WatchedQueue(app.run_queue)
        await press(app, pilot, "enter", "space")
        assert "1 marked" in words_of(app)
        assert table(app).cursor_row == 0
        await press(app, pilot, "space")
        assert "marked" not in words_of(app)
        await press(app, pilot, "space", "b", "enter")
        assert app.current_mode == "run"
        assert [(item.subject.model, item.kind) for item in app.run_queue.items] == [(str(tiny_twin), "decode")]
        n_asked = len(planner.asked)
        await queue.idle()
        await press(app, pilot, "1")
        assert len(planner.asked) == n_asked + 1  # with the speed of the run
        line = next(line for line in words_of(app).splitlines() if "q8_0 " in line)
        assert "●" not in line
        await ask(app, pilot, "maxctx")
        await press(app, pilot, "enter")
        assert app.run_queue.items[-1].kind == "maxctx"

    drive(with_disk(services, model), steps, (200, 40))
    assert jobs.workers[0].closed


def in_dialog(words: str) -> str:
    return " ".join(words.replace("│", " ").split())


def test_a_run_of_another_ggbench_is_asked_about(
    tiny_twin: Path, services: Services, planner: FakePlanner, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [planned("q8_0", plan_row("tiny", "q8_0", BUDGET))]
    asked: list[Job] = []
    with services.open_store() as store:
        stored = store.load_run(put_run(store, start(), n_gen=30))
    monkeypatch.setattr(Store, "runs_elsewhere", lambda _self: ((stored, 4242),))

    async def steps(app: App, pilot: Page) -> None:
        monkeypatch.setattr(app.run_queue, "add", asked.extend)
        words = in_dialog(await see(app, pilot, "enter", "b", "enter"))
        assert "Another ggbench (process 4242) is measuring run 1" in words
        await press(app, pilot, "n")
        assert asked == []
        await press(app, pilot, "b", "enter", "y")
        assert len(asked) == 1

    drive(App(msgspec.structs.replace(services, local_models=lambda: (model,))), steps)


def test_a_plan_is_shown_before_the_bandwidth_is_measured(services: Services) -> None:
    """The first start measures the memory's bandwidth, which takes a second or two."""
    measured = threading.Event()

    def budgets(_memory: BudgetOptions, _setup: LlamaConfig) -> Iterator[Budget]:
        yield Budget((msgspec.structs.replace(BUDGET.devices[0], bandwidth=None),))
        assert measured.wait(WAIT_S)
        yield BUDGET

    async def in_app() -> None:
        app = App(msgspec.structs.replace(services, machine_budgets=budgets))
        async with app.run_test(size=(120, 24)) as pilot:
            while "GiB left" not in words_of(app):
                await pilot.pause()
            assert "? GB/s" in words_of(app)
            measured.set()
            await settle(app, pilot)
            assert "1008 GB/s" in words_of(app)
            assert "GiB left" in words_of(app)

    asyncio.run(in_app())


def test_the_memory_is_shown_by_its_parts() -> None:
    """They add up to the memory, or to what is needed of it and missing."""
    parts = memory_parts(plan_row("small", "q8_0", BUDGET))
    assert sum(n_bytes for _, n_bytes in parts) == pytest.approx(BUDGET.memory_bytes, rel=0.01)
    assert parts[-1][0] == "✓ left"
    missing = memory_parts(plan_row("vast-72b", "q8_0", BUDGET))
    assert missing[-1][0] == "✗ missing" and missing[-1][1] > 0
