"""The Library over other contexts and other cards, and the bar of their memory."""

import pytest
from textual.pilot import Pilot

from ggbench.tui.app import GgbenchApp
from ggbench.tui.services import Services
from tests.fakes.driving import press, words_of
from tests.fakes.library import FakePlanner
from tests.tui.conftest import Drive

App = GgbenchApp
Page = Pilot[None]


def test_left_and_right_change_the_context(app: App, planner: FakePlanner, drive: Drive) -> None:
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
        assert "missing; fits with n_ctx " in words_of(app)

    drive(app, steps)


def test_another_card_is_planned_for(app: App, drive: Drive) -> None:
    async def steps(app: App, pilot: Page) -> None:
        shown = await press(app, pilot, "g", *"3060 ti", "enter")
        assert "plan for RTX 3060 Ti · 8.00 GiB, 1.25 GiB kept free · 448 GB/s" in shown
        assert "q8_0 8.50 1.66 GiB ✓ 63,744*" in " ".join(shown.split())
        shown = await press(app, pilot, "g", *"no such card", "enter")
        assert "no such card" in shown
        shown = await press(app, pilot, "escape", "g", *"12gib", "enter")
        assert "plan for a GPU" in shown
        assert " · 12.0 GiB, 1.25 GiB kept free · ? GB/s · " in shown
        shown = await press(app, pilot, "g")
        assert "● a GPU of the given size 12.0 GiB" in " ".join(shown.split())
        shown = await press(app, pilot, "enter")
        assert " · 12.0 GiB, 1.25 GiB kept free" in shown
        shown = await press(app, pilot, "g", *"this", "enter")
        assert "RTX 4090 · 22.0 GiB free of 24.0 GiB" in shown
        assert "● this machine" in await press(app, pilot, "g")

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
