"""The plot as it is drawn: characters and not colours distinguish the curves."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec.structs
import numpy as np
import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from ggbench.show.charts import Curve, LineChart, latency_figure
from ggbench.stats.decode_timing import LatencyLine
from ggbench.tui.widgets.curves_plot import CurvesPlot


class PlotApp(App[None]):
    def compose(self) -> ComposeResult:
        yield CurvesPlot()

    @property
    def plot(self) -> CurvesPlot:
        return self.query_one(CurvesPlot)

    @property
    def text(self) -> list[str]:
        """Return the rows inside the axes."""
        return re.findall("[│┤](.*)", self.plot.render().plain)

    @property
    def lines(self) -> list[str]:
        return self.plot.render().plain.splitlines()


def latencies(curves: Sequence[Curve], x_end: int | None = None) -> LineChart:
    return msgspec.structs.replace(latency_figure([]), curves=tuple(curves), x_end=x_end)


def drive(steps: Callable[[PlotApp, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        app = PlotApp()
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(run())


def series(name: str, b_ms: float, *, dimmed: bool = False, n: int = 5000) -> Curve:
    positions = np.arange(26, 26 + n)
    latency_ms = b_ms + (positions - 1) / 200 + 0.2 * (positions % 7)
    return Curve(
        name, positions, latency_ms, fit=LatencyLine(200.0, b_ms), limit=LatencyLine(400.0, b_ms / 2), dimmed=dimmed
    )


def test_a_curve_has_samples_fit_limit_and_a_letter() -> None:
    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        app.plot.show([latencies([series("q8_0", 20)])])
        await pilot.pause()
        drawn = "".join(app.text)
        assert all(character in drawn for character in "a╌·")
        assert any("\u2801" <= character <= "\u28ff" for character in drawn)
        assert str(app.plot.border_title).startswith("latency of one token")

    drive(steps)


def test_two_curves_have_a_legend_and_letters() -> None:
    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        app.plot.show([latencies([series("q8_0", 20, dimmed=True), series("[b]q2_k", 10)])])
        await pilot.pause()
        assert {"a", "b"} <= set("".join(app.text))
        assert app.lines[0] == "a q8_0   b [b]q2_k"
        app.plot.show([latencies([series("q8_0", 20, dimmed=True)])])
        await pilot.pause()
        assert "╌" not in "".join(app.text)

    drive(steps)


def test_a_run_without_samples_is_not_in_the_legend() -> None:
    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        nothing = msgspec.structs.replace(series("f16", 30), x=np.empty(0, np.int64), y=np.empty(0, np.float64))
        app.plot.show([latencies([series("q8_0", 20), nothing, series("q2_k", 10)])])
        await pilot.pause()
        assert app.lines[0] == "a q8_0   c q2_k"
        app.plot.show([latencies([series(f"name{index} " * 5, 20) for index in range(20)])])
        await pilot.pause()
        assert sum("name" in line for line in app.lines) <= 6

    drive(steps)


def test_several_outliers_of_a_short_run_flatten_nothing_and_are_counted() -> None:
    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        one = series("q8_0", 20, n=60)
        one.y[[3, 20, 41]] = 3000
        app.plot.show([latencies([one])])
        await pilot.pause()
        assert "▲ 3 slower" in str(app.plot.border_title)
        ends = app.plot._drawn.ends
        assert ends is not None and ends[1][1] < 100

    drive(steps)


def test_what_is_zoomed_fills_the_view() -> None:
    """However far in: the y axis is that of the values in view, and their slow steps are counted."""

    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        one = series("q8_0", 20, n=5000)
        one.y[:60] = 90.0
        app.plot.show([latencies([one])])
        for _ in range(12):
            app.plot.action_zoom(0.8)
        await pilot.pause()
        drawn = [any("\u2801" <= character <= "\u28ff" for character in line) for line in app.text]
        assert drawn.index(True) < 6 and not any(drawn[-1:])  # the limit is farther below
        assert "slower" not in str(app.plot.border_title)

    drive(steps)


def test_a_zoom_stays_while_more_samples_come() -> None:
    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        app.plot.show([latencies([series("q8_0", 20, n=2000)])])
        await pilot.pause()
        everything = app.text
        app.plot.action_zoom(0.8)
        app.plot.action_pan(0.05)
        zoomed = app.text
        assert zoomed != everything
        view = app.plot.view
        assert view is not None
        app.plot.show([latencies([series("q8_0", 20, n=2010)])])
        await pilot.pause()
        assert app.plot.view == view
        app.plot.action_show_all()
        app.plot.show([latencies([series("q8_0", 20, n=2000)])])
        await pilot.pause()
        assert app.text == everything

    drive(steps)


def test_a_zoom_shows_the_newest_steps_while_more_come_and_then_its_middle() -> None:
    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        app.plot.show([latencies([series("q8_0", 20, n=4)], x_end=625)])
        for expected in ([26, 29], [28, 29], [28.5, 29]):
            app.plot.action_zoom(0.5)  # from what is there, each shows half
            assert [*app.plot._ends] == expected
        assert "zoomed" in str(app.plot.border_title)
        app.plot.show([latencies([series("q8_0", 20, n=600)], x_end=1025)])
        app.plot._zoom_to((125, 625))
        assert [*app.plot._ends] == [125, 625]
        app.plot.action_pan(-0.5)
        app.plot.show([latencies([series("q8_0", 20, n=700)], x_end=1025)])
        assert [*app.plot._ends] == [-125, 375]
        app.plot.show([latencies([series("q8_0", 20, n=4)], x_end=1025)])
        assert app.plot.view is None  # a new run
        app.plot.show([latencies([series("q8_0", 20, n=1000)])])
        app.plot.action_zoom(0.8)
        assert sum(app.plot._ends) == pytest.approx(1025)
        await pilot.pause()

    drive(steps)


@pytest.mark.parametrize("size", [(20, 5), (12, 3), (200, 60)])
def test_any_size_can_be_drawn(size: tuple[int, int]) -> None:
    async def steps(app: PlotApp, pilot: Pilot[None]) -> None:
        app.plot.show([latencies([series("q8_0", 20)], 10_025)])
        await pilot.pause()
        await pilot.resize_terminal(81, 25)
        await pilot.pause()
        assert "a" in "".join(app.text)
        app.theme = "textual-light"
        await pilot.pause()

    drive(steps, size)
