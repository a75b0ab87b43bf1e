"""The app over fakes: a machine, a disk and a catalog that are the same everywhere, and workers that replay one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec.structs
import pytest
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.screen import Screen

from ggbench.hub.access import HubAccess
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.planner import LibraryPlanner
from ggbench.tui.screens.planning import PlanScreen
from tests.fakes.driving import settle, wait_until_quiet
from tests.fakes.jobs import FakeServices
from tests.fakes.library import BUDGET, CATALOG, READING, FakePlanner, budgets_of
from tests.fakes.measured import fill
from tests.fakes.scores import trained_folder

Steps = Callable[[GgbenchApp, Pilot[None]], Awaitable[None]]
Drive = Callable[..., None]
Look = Callable[..., None]
Size = tuple[int, int]


@pytest.fixture(autouse=True)
def pilots_look_at_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the app and not for a clock, and draw where a test looks: a headless app draws for nobody else."""
    for module in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", wait_until_quiet)
    draw = Compositor.render_update

    def draw_seldom(
        compositor: Compositor,
        full: bool = False,
        screen_stack: list[Screen[Any]] | None = None,
        simplify: bool = False,
    ) -> RenderableType | None:
        if full:
            return draw(compositor, full, screen_stack, simplify)
        visible_screen_stack.set(screen_stack or [])
        compositor._dirty_regions.clear()
        return None

    monkeypatch.setattr(Compositor, "render_update", draw_seldom)


@pytest.fixture(autouse=True)
def styles_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the rules of each style sheet for the next app, as parsing them is a fifth of what an app computes."""
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)


_PARSED: dict[object, list[RuleSet]] = {}
_parse_rules = Stylesheet._parse_rules


def _parse_once(sheet: Stylesheet, css: str, **options: object) -> list[RuleSet]:
    key = (*sheet._variables.items(), css, *options.items())
    if key not in _PARSED:
        _PARSED[key] = _parse_rules(sheet, css, **cast("Any", options))
    return _PARSED[key]


@pytest.fixture(autouse=True)
def no_clock_looks_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test has no terminal to lose."""
    monkeypatch.setattr("ggbench.tui.app._WATCH_EVERY_S", 3600.0)


@pytest.fixture(autouse=True)
def few_tokens_were_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the dialog of a measurement begin with a decode of few tokens, as if they were the last choice."""
    monkeypatch.setattr(PlanScreen, "choices", {"decode": {"n_gen": "200"}})


@pytest.fixture
def planner() -> FakePlanner:
    return FakePlanner()


@pytest.fixture
def jobs(tmp_path: Path) -> FakeServices:
    return FakeServices(tmp_path, reading=READING)


@pytest.fixture
def services(planner: FakePlanner, jobs: FakeServices) -> Services:
    return Services(
        open_store=jobs.open_store, run_context=jobs.run_context, load_catalog=lambda: CATALOG,
        local_models=lambda: (), make_planner=lambda _services: cast("LibraryPlanner", planner),
        machine_budgets=budgets_of(BUDGET),
        hub=msgspec.structs.replace(HubAccess.from_environment(), offline=True),
    )  # fmt: skip


@pytest.fixture
def app(services: Services) -> GgbenchApp:
    return GgbenchApp(services)


@pytest.fixture
def drive() -> Drive:
    def run(app: GgbenchApp, steps: Steps, size: tuple[int, int] = (80, 24)) -> None:
        async def in_app() -> None:
            try:
                async with app.run_test(size=size, notifications=True) as pilot:
                    await settle(app, pilot)
                    await steps(app, pilot)
            finally:
                app.close_queues()

        asyncio.run(in_app())

    return run


@pytest.fixture
def start_with_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GgbenchApp, "DEFAULT_MODE", "results")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


@pytest.fixture
def filled(path: Path) -> Path:
    assert fill(path) == [1, 2, 3, 4]
    return path


@pytest.fixture
def look(services: Services, drive: Drive) -> Look:
    def run(steps: Steps, size: Size = (80, 24)) -> None:
        drive(GgbenchApp(services), steps, size)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return trained_folder(tmp_path)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text("some prose")
    return path
