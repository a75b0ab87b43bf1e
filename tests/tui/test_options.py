"""The options panel: what it accepts, what follows for plans and runs, and how it is seen and reset."""

from collections.abc import Sequence
from pathlib import Path

import msgspec.structs
import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from ggbench.commands.budget_options import BudgetOptions
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.runs.experiment import Job
from ggbench.sizing.plan_record import Budget
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.screens.forms import SettingsDialog, options_form
from ggbench.tui.screens.library import LibraryScreen
from ggbench.units import GIB
from tests.fakes.driving import NEED_16K, ask, press, see, settle, words_of
from tests.fakes.library import BUDGET, FakePlanner, budgets_of, local, plan_row, planned
from tests.fakes.llama_server import install
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]
CHANGED = LlamaConfig(
    memory_limit_bytes=12 * GIB, n_ctx=16_384, type_k="q8_0", type_v="q8_0", flash_attn="on", n_gpu_layers=10,
    n_cpu_moe=4, threads=3, swa_full=True, rpc_servers=("10.0.0.7:50052", "box:1"),
)  # fmt: skip


@pytest.fixture
def setups(
    services: Services, planner: FakePlanner, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[App, list[LlamaConfig], list[Job]]:
    model = local(str(tiny_twin), "q8_0", store="folder", name="tiny", paths=(tiny_twin,))
    planner.rows_of[str(tiny_twin)] = [planned("q8_0", plan_row("tiny", "q8_0", BUDGET))]
    budgets: list[LlamaConfig] = []
    jobs: list[Job] = []

    def machine_budgets(memory: BudgetOptions, setup: LlamaConfig) -> Sequence[Budget]:
        budgets.append(setup)
        return [*budgets_of(BUDGET)(memory, setup)]

    def add(added: Sequence[Job]) -> None:
        jobs.extend(added)

    app = App(msgspec.structs.replace(services, local_models=lambda: (model,), machine_budgets=machine_budgets))
    monkeypatch.setattr(app.run_queue, "add", add)
    return app, budgets, jobs


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("memory_limit_bytes", "12GiB", 12 * GIB), ("memory_limit_bytes", " 8gb ", 8 * 10**9),
        ("memory_limit_bytes", "12", None), ("memory_limit_bytes", "much", None), ("n_ctx", "16k", 16_384),
        ("n_ctx", "16,384", 16_384), ("n_ctx", "0", 0), ("n_gpu_layers", "0", 0), ("n_gpu_layers", "-1", -1),
        ("n_gpu_layers", "-3", None), ("n_gpu_layers", "many", None), ("threads", "512", 512), ("threads", "513", None),
        ("threads", "1.5", None),
        ("rpc_servers", "10.0.0.7, box:1", ("10.0.0.7:50052", "box:1")), ("rpc_servers", "box:1,box:1", None),
    ],
)  # fmt: skip
def test_a_text_is_read_as_the_command_line_reads_it(name: str, text: str, value: object) -> None:
    (field,) = (each for each in options_form().fields if each.name == name)
    if value is None:
        with pytest.raises(UsageError) as caught:
            field.value_of(text.strip())
        assert caught.value.hint
    else:
        assert field.value_of(text.strip()) == value


def test_every_field_reads_what_it_shows() -> None:
    default = LlamaConfig()
    for record in (CHANGED, default):
        for field in options_form().fields[:-1]:
            text = field.text_of(record, default)
            value = field.value_of(text) if text else getattr(default, field.name)
            assert value == getattr(record, field.name), field.name


def test_options_decide_plans_and_runs(
    setups: tuple[App, list[LlamaConfig], list[Job]], planner: FakePlanner, drive: Drive
) -> None:
    app, budgets, jobs = setups

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter")
        assert "--memory-limit" not in words_of(app)
        shown = await see(app, pilot, "o", *"12gib", "down", *"16k", "down", "right", "tab", "right")
        shown = await see(app, pilot, "enter")
        assert isinstance(app.screen, LibraryScreen)
        assert app.setup == LlamaConfig(memory_limit_bytes=12 * GIB, n_ctx=16_384, type_k="bf16", type_v="bf16")
        assert "--n-ctx 16384 --type-k bf16 --type-v bf16 --memory-limit 12GiB" in shown
        assert budgets[-1] == app.setup
        assert planner.requests[-1].setup == app.setup
        await press(app, pilot, *NEED_16K[:2], *"32k", "enter", "b", "enter")
        assert jobs[-1].setup == app.setup  # and not the context of the needs
        await press(app, pilot, "1")
        await ask(app, pilot, "maxctx")
        await press(app, pilot, "enter")
        assert jobs[-1].setup == msgspec.structs.replace(app.setup, n_ctx=None)
        assert jobs[-1].experiment.kind == "maxctx"
        shown = await see(app, pilot, "1", "o", "ctrl+r", "enter")
        assert app.setup == LlamaConfig()
        assert "--memory-limit" not in shown
        assert planner.requests[-1].setup == LlamaConfig()

    drive(app, steps, (150, 30))


def test_a_reserve_is_of_plans_alone(
    setups: tuple[App, list[LlamaConfig], list[Job]], planner: FakePlanner, drive: Drive
) -> None:
    app, budgets, _jobs = setups

    async def steps(app: App, pilot: Page) -> None:
        n_plans = len(planner.asked)
        assert "'much' is not a size" in await see(app, pilot, "enter", "o", "up", *"much", "enter")
        await press(app, pilot, *["backspace"] * 4, *"2GiB", "enter")
        assert isinstance(app.screen, LibraryScreen)
        assert app.screen.memory.reserve == 2 * GIB and len(budgets) > 1 and len(planner.asked) > n_plans
        assert app.setup == LlamaConfig()
        await press(app, pilot, "g", *"3060", "enter")
        assert app.screen.memory.reserve == 2 * GIB and app.screen.budget is not None
        assert app.screen.budget.devices[0].reserve_bytes == 2 * GIB
        assert "2GiB" in await see(app, pilot, "o")
        await press(app, pilot, "ctrl+r", "enter")
        assert app.screen.memory.reserve is None

    drive(app, steps, (120, 36))


def test_a_bad_value_is_one_line_and_keeps_the_panel(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = await see(app, pilot, "o", "down", *"much", "enter")
        assert "✗ --n-ctx: 'much' is not a number of tokens" in shown
        assert isinstance(app.focused, Input)
        assert app.focused.id == "n_ctx"
        assert "✗" not in await see(app, pilot, *["backspace"] * 4)
        await press(app, pilot, "escape")
        assert app.setup == LlamaConfig()
        app.setup = msgspec.structs.replace(LlamaConfig(), flash_attn="off")
        shown = await see(app, pilot, "o", "down", "down", "down", "left", "left", "left", "left", "enter")
        assert "needs flash attention" in " ".join(shown.split())
        assert isinstance(app.screen, SettingsDialog)

    drive(app, steps)


def test_runs_of_a_kind_take_the_engine_of_their_dialog_until_another_is_given(
    setups: tuple[App, list[LlamaConfig], list[Job]], drive: Drive, tmp_path: Path
) -> None:
    app, _, jobs = setups
    engine = f"llama-server={install(tmp_path)}"

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter")
        await ask(app, pilot, "maxctx")
        app.screen.query_one("#engine", Input).value = "llama-server=/no"
        await settle(app, pilot)
        shown = await see(app, pilot, "enter")
        assert "✗ engine: --engine: /no was not found" in " ".join(shown.replace("│", " ").split())
        app.screen.query_one("#engine", Input).value = engine
        await press(app, pilot, "enter")
        assert jobs[-1].setup.engine_option == engine
        await press(app, pilot, "1")
        await ask(app, pilot, "speed")
        await press(app, pilot, "enter")
        assert (jobs[-1].experiment.kind, jobs[-1].setup) == ("speed", LlamaConfig())
        await press(app, pilot, "1")
        await ask(app, pilot, "maxctx")
        await press(app, pilot, "enter")
        assert jobs[-1].setup.engine_option == engine
        await press(app, pilot, "1", "b", "ctrl+r", "enter")
        assert jobs[-1].setup == LlamaConfig()

    drive(app, steps, (100, 30))


def test_a_search_says_that_it_fills_the_memory_and_takes_the_limit_of_the_options(
    setups: tuple[App, list[LlamaConfig], list[Job]], drive: Drive
) -> None:
    app, _, jobs = setups

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "enter", "o", *"4g?")
        assert "'4g?' is not a size" in await see(app, pilot, "enter")
        await press(app, pilot, "backspace", "enter")
        shown = " ".join((await ask(app, pilot, "maxctx")).replace("│", " ").split())
        assert "Without a memory limit it uses nearly all free memory" in shown
        await press(app, pilot, "enter")
        assert jobs[-1].setup == LlamaConfig(memory_limit_bytes=4 * GIB)

    drive(app, steps)


def test_a_pasted_command_fills_a_dialog(setups: tuple[App, list[LlamaConfig], list[Job]], drive: Drive) -> None:
    """Whatever has the focus, and with a terminal's ends of lines; another text goes into its field."""
    command = "llama-server -m a.gguf \\\r  -c 16384 -ctk q8_0 \\\r -ctv q8_0 -fa 1 --swa-full -np 1"

    async def paste(app: App, pilot: Page, text: str) -> None:
        app.post_message(events.Paste(text))
        await settle(app, pilot)

    async def steps(app: App, pilot: Page) -> None:
        await press(app, pilot, "o", "down")
        await paste(app, pilot, "8k\nand more")
        assert app.screen.query_one("#n_ctx", Input).value == "8k"
        await paste(app, pilot, command)
        assert "from the command: --n-ctx 16384, " in words_of(app)
        await press(app, pilot, "enter")
        wanted = LlamaConfig(n_ctx=16_384, type_k="q8_0", type_v="q8_0", flash_attn="on", swa_full=True)
        assert app.setup == wanted
        await press(app, pilot, "e")
        await paste(app, pilot, command.replace("16384", "32768"))
        await press(app, pilot, "enter")
        library = app.screen
        assert isinstance(library, LibraryScreen) and library.library.needs.given_n_ctx == 32_768

    drive(setups[0], steps)
