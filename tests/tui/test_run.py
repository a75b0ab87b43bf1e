"""The Run screen over a queue of fake workers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec.structs
import numpy as np
import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Label, Static

import ggbench.tui
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.maxctx.record import MaxctxResult, SearchPlan
from ggbench.machine.records import GpuReading, MachineReading
from ggbench.models.subject import Subject
from ggbench.models.targets import Target
from ggbench.runs.progress import Finished, Pace, PointMeasured, SamplesTimed, Working
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.show.charts import latency_figure
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit
from ggbench.tui.live_job import LiveJob
from ggbench.tui.run_queue import QueueItem, RunQueue
from ggbench.tui.screens.run import RunScreen
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.run_panels import WorkList, number_lines, point_lines, queue_lines
from ggbench.tui.work_queue import PullQueue, WorkState
from tests.fakes.driving import said, settle
from tests.fakes.engine import obey
from tests.fakes.jobs import FakeServices, Gate, decodes, searches, small_context
from tests.fakes.measured import start, start_search
from tests.fakes.watched import watched_runs
from tests.tui.test_run_queue import crash

READING = MachineReading(
    at_ns=1,
    cpu_share=0.5,
    used_bytes=3 << 30,
    total_bytes=8 << 30,
    gpus=(GpuReading(0, "NVIDIA GeForce RTX 4090", sm_clock_mhz=2520, temperature_c=61, throttle=("sw_power_cap",)),),
)


class Host(App[None]):
    CSS_PATH = Path(ggbench.tui.__file__).with_name("app.tcss")
    MODES = {"run": RunScreen, "other": Screen}  # noqa: RUF012 - as Textual has it

    def __init__(self, services: FakeServices) -> None:
        super().__init__()
        self.services = services
        self.watched = watched_runs(services)
        self.run_queue = self.watched.queue
        self.pull_queue = PullQueue(lambda: None)

    def on_mount(self) -> None:
        self.switch_mode("run")

    @property
    def run_screen(self) -> RunScreen:
        screen = self.screen
        assert isinstance(screen, RunScreen)
        return screen


def drive(
    services: FakeServices, steps: Callable[[Host, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (100, 30)
) -> None:
    async def run() -> None:
        host = Host(services)
        try:
            async with host.run_test(size=size) as pilot:
                await pilot.pause()
                await steps(host, pilot)
        finally:
            host.run_queue.close()

    asyncio.run(run())


async def reach(host: Host, pilot: Pilot[None], reached: Callable[[RunQueue], bool]) -> None:
    """Wait for the queue in a thread, then until it is drawn."""
    await host.watched.reach(reached)
    host.run_screen._look()
    await pilot.pause()


def lines_of(host: Host) -> list[str]:
    return [str(option.prompt) for option in host.screen.query_one("#queue", WorkList).options]


def numbers_of(host: Host, name: str = "#numbers") -> list[str]:
    return str(host.screen.query_one(name, Static).content).splitlines()


def test_a_run_is_drawn_from_start_to_end(target: Target, tmp_path: Path) -> None:
    gate = Gate()
    services = FakeServices(tmp_path, [gate.answer, crash])

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target] * 3, 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        await reach(host, pilot, lambda queue: queue.items[0].state is WorkState.DECODING)
        assert [line[0] for line in lines_of(host)] == ["▶", "·", "·"]
        assert not host.screen.has_class("-plain")
        (series,) = host.screen.query_one(CurvesPlot).figures[0].curves
        assert len(series.x) == 200
        assert series.limit is not None
        assert numbers_of(host)[0] == "decoding"
        plot = host.screen.query_one(CurvesPlot)
        await pilot.press("+")
        assert bool(plot.view) and not plot.has_focus and "next" not in str(plot.border_subtitle)
        await pilot.press("0")
        assert not plot.view
        gate.opened.set()
        await reach(host, pilot, lambda queue: not queue.is_busy)
        first, second, third = lines_of(host)
        assert first.startswith("✓ a")
        assert "79.2 tok/s" in first
        assert second.startswith("✗")
        assert "GGML_ASSERT" in second
        assert third.startswith("✓ b")
        assert host.screen.query_one("#queue", WorkList).virtual_size.height == 3  # one line each
        assert [one.dimmed for one in host.screen.query_one(CurvesPlot).figures[0].curves] == [True, False]

    drive(services, steps)


def test_keys_stop(target: Target, tmp_path: Path) -> None:
    gates = Gate(), Gate()
    services = FakeServices(tmp_path, [gate.answer for gate in gates])

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target] * 4, 1000))
        await asyncio.to_thread(gates[0].reached.wait, 60)
        host.run_screen._look()
        await pilot.press("down", "x", "up")
        assert lines_of(host)[1].startswith("–")
        await pilot.press("x")
        gates[0].opened.set()
        await asyncio.to_thread(gates[1].reached.wait, 60)
        await pilot.press("X")
        question = str(host.screen.query_one(Label).content)
        assert question == "Stop 2 runs? Measurements are kept."
        await pilot.press("n")
        assert lines_of(host)[3].startswith("·")
        await pilot.press("X", "y")
        gates[1].opened.set()
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert [line[0] for line in lines_of(host)] == ["–"] * 4
        assert "  stopped, 9" in lines_of(host)[0]
        assert lines_of(host)[3].endswith("  stopped")

    drive(services, steps)


def test_a_run_goes_on_behind_another_screen(target: Target, tmp_path: Path) -> None:
    gate = Gate()

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target], 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        await reach(host, pilot, lambda queue: queue.items[0].state is WorkState.DECODING)
        run_screen = host.run_screen
        await host.switch_mode("other")
        gate.opened.set()
        await host.watched.reach(lambda queue: not queue.is_busy)
        run_screen._look()
        assert not str(run_screen.query_one("#queue", WorkList).options[0].prompt).startswith("✓")
        await host.switch_mode("run")
        await pilot.pause()
        assert lines_of(host)[0].startswith("✓")

    drive(FakeServices(tmp_path, [gate.answer]), steps)


def test_a_search_shows_its_bracket(target: Target, tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(searches([target], LlamaConfig(n_ctx=4096)))
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert "n_ctx 2,048 works: decoded at its end" in lines_of(host)[0]
        tried = numbers_of(host, "#points")
        assert any(line.startswith("n_ctx 2,048 decodes at its end (") for line in tried)
        assert not host.screen.query_one(CurvesPlot).display

    drive(FakeServices(tmp_path, [small_context]), steps)


def test_a_store_that_fails_is_reported_and_the_run_continues(target: Target, tmp_path: Path) -> None:
    class NoStore(FakeServices):
        def open_store(self) -> Store:
            raise StoreError("the results file is newer than this ggbench", "update ggbench")

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target] * 2, 100))
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert lines_of(host)[0].startswith("✓")
        assert "newer than this ggbench; update ggbench" in str(host.screen.query_one("#queue").border_title)
        host.screen.query_one("#queue", WorkList).highlighted = 1
        await pilot.press("enter")
        await settle(host, pilot)
        assert "GGML_ASSERT" in said(host)

    drive(NoStore(tmp_path, [obey, crash]), steps)


def test_the_readings_of_a_run_are_shown_until_it_ends(target: Target, tmp_path: Path) -> None:
    gate = Gate()
    services = FakeServices(tmp_path, [gate.answer], reading=READING)

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target], 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        await reach(host, pilot, lambda queue: queue.live is not None and queue.live.reading is not None)
        assert "CPU 50 %" in numbers_of(host)
        gate.opened.set()
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert "CPU 50 %" not in numbers_of(host)

    drive(services, steps)


def test_names_cannot_steer_the_terminal() -> None:
    item = QueueItem(
        Subject(model="a\x1b[2Jb", quant="q8_0", source="file"), "decode", id=0, state=WorkState.FAILED,
        reason="no\x1b]0;title\x07 luck",
    )  # fmt: skip
    assert queue_lines([item], {}) == ["✗   a[2Jb q8_0  decode  no]0;title luck"]


class _ListApp(App[None]):
    CSS = "WorkList { height: 5; border: none; }"

    def compose(self) -> ComposeResult:
        yield WorkList("queue", "d stop", id="queue")


def _items(current: int, n_jobs: int = 20) -> list[QueueItem]:
    """Return jobs: those before `current` are done, and `current` is decoding."""

    def state(index: int) -> WorkState:
        if index == current:
            return WorkState.DECODING
        return WorkState.STOPPED if index < current else WorkState.WAITING

    return [
        QueueItem(Subject(model="model", quant=f"q{index}", source="file"), "decode", id=index, state=state(index))
        for index in range(n_jobs)
    ]


def test_the_running_job_is_in_view_unless_another_was_chosen() -> None:
    async def steps() -> None:
        app = _ListApp()
        async with app.run_test(size=(60, 10)) as pilot:
            shown = app.query_one(WorkList)

            async def run(current: int) -> int | None:
                items = _items(current)
                shown.show(items, queue_lines(items, {}))
                await settle(app, pilot)
                return shown.highlighted

            def is_in_view(index: int) -> bool:
                return shown.scroll_offset.y <= index < shown.scroll_offset.y + 5

            for current in (0, 7, 19):
                assert await run(current) == current
                assert is_in_view(current)
            assert await run(12) == 12
            shown.highlighted = 3
            assert await run(13) == 3
            assert is_in_view(3)
            shown.highlighted = 13
            assert await run(13) == 13
            assert await run(14) == 14

    asyncio.run(steps())


def grown(n: int) -> LiveJob:
    """B 10 ms, W 200 tokens/ms, in batches as a worker sends them."""
    live = LiveJob(0)
    live.n_total = 10_000
    for first in range(26, 26 + n, 50):
        live.append(first, [10_000_000 + (position - 1) * 5_000 for position in range(first, first + 50)])
    return live


def test_the_numbers_are_those_of_the_samples() -> None:
    fit, latency = grown(5000).numbers()
    assert fit is not None and latency is not None
    assert fit.w_tokens_per_ms == pytest.approx(200)
    assert fit.b_ms == pytest.approx(10)
    assert latency.p50_ms == pytest.approx(10 + (25 + 2499.5) / 200)
    assert latency.tok_s == pytest.approx(1e3 / (10 + (25 + 2499.5) / 200))


def test_the_time_left_is_that_of_the_rest_at_the_rate_of_the_last_seconds() -> None:
    live = LiveJob(0, settings=DecodeSettings(1000, n_prompt=0, repeat=3))
    live.pace = Pace(iter((0.0, 10.0, 20.0, 30.0)).__next__)
    for n_done in (10, 20, 40, 60):
        live.take(SamplesTimed("decode", 1, (10_000_000,), n_done, 3000))
    assert live.pace.left_s == pytest.approx(2940 / 2)
    assert latency_figure([live.plotted("q8_0")]).x_end == 1000


def test_the_share_that_is_done_counts_what_follows_and_never_falls() -> None:
    live = LiveJob(0, settings=DecodeSettings(600))
    shares = []
    for record in (
        Working("prompt", 0.75, 1.0),
        SamplesTimed("decode", 26, (10_000_000,) * 600, 600, 800),
        Working("decode", 700, 800, "depth 372 again"),
        Working("prompt", 0.5, 1.0),
    ):
        live.take(record)
        shares.append(live.share)
    assert shares == [None, 0.75, 0.875, 0.875]


def test_an_earlier_run_is_drawn_as_far_as_the_new_one_goes() -> None:
    earlier, live = grown(1000), LiveJob(1)
    live.n_total = 200
    live.append(26, [10_000_000] * 40)
    newer = live.plotted("newer")
    figure = latency_figure([earlier.plotted("earlier", behind=newer), newer])
    assert (figure.x_end, len(figure.curves[0].x), figure.curves[0].dimmed) == (225, 200, True)


def test_no_line_is_drawn_where_w_is_only_a_bound() -> None:
    """Flat samples have no W; a line through them would look like a fit."""
    live = LiveJob(0)
    live.append(26, [10_000_000 + 100_000 * (position % 7) for position in range(1000)])
    fit, _ = live.numbers()
    assert fit is not None
    assert (fit.w_tokens_per_ms, fit.b_ms) == (None, None)
    assert latency_figure([live.plotted("q8_0")]).curves[0].fit is None


def test_a_series_has_the_fit_and_the_limit() -> None:
    live = grown(5000)
    live.limit = DecodeLimit(300.0, 8.0, bandwidth_bytes_per_s=20e9, bandwidth_source="given")
    (series,) = latency_figure([live.plotted("q8_0", behind=live.plotted("newer"))]).curves
    assert series.limit == live.limit
    assert series.fit is not None
    assert (series.fit.w_tokens_per_ms, series.fit.b_ms) == pytest.approx((200, 10))
    assert series.dimmed
    assert np.allclose(series.y[:2], [10.125, 10.13])


def test_a_live_job_keeps_what_a_reader_took() -> None:
    live = LiveJob(0)
    assert live.numbers() == (None, None)
    live = grown(1000)
    before = live.plotted("q8_0").step_ns
    kept = before.copy()
    live.append(1026, [1] * 5000)
    plotted = live.plotted("q8_0")
    assert plotted.positions.tolist() == list(range(26, 6026))
    assert (before == kept).all() and (plotted.step_ns[:1000] == kept).all()


def test_few_tokens_show_neither_w_nor_b() -> None:
    """One slow token must not look like B."""
    fit, latency = grown(200).numbers()
    assert latency is not None and fit is not None and fit.is_nothing


def test_a_job_that_ended_shows_what_is_stored() -> None:
    live, head = grown(1000), start()
    live.plotted("q8_0")
    fit = LineFit(1000, 201.0, (199.0, 203.0), 9.9, (9.8, 10.0))
    result = DecodeResult(n_prompt=25, n_gen=1000, fit=fit, latency=LatencySummary(11.0, 13.0, 90.0))
    live.take(Finished(Run(head=head, outcome=Outcome.COMPLETED, result=result)))
    assert live.numbers() == (fit, result.latency)


def test_files_and_kv_types_of_one_quant_are_told_apart_in_the_queue() -> None:
    def names(*items: QueueItem) -> list[str]:
        return [each[4:].split("  ")[0] for each in queue_lines(items, {})]

    subject, other = (Subject(model="m", quant=quant, source="file") for quant in ("q4_1", "q2_k"))
    quantized = LlamaConfig(type_k="q8_0", type_v="q8_0")
    setups = ((subject, LlamaConfig()), (subject, quantized), (other, quantized))
    items = [QueueItem(of, "quality", id=index, setup=setup) for index, (of, setup) in enumerate(setups)]
    assert names(*items) == ["m q4_1", "m q4_1, KV q8_0", "m q2_k"]
    files = [Subject(model="/m", quant="q4_1", source="file", file=path) for path in ("/m/a.gguf", "/m/b.gguf")]
    assert names(*(QueueItem(of, "decode", id=index) for index, of in enumerate(files))) == [
        "a.gguf q4_1",
        "b.gguf q4_1",
    ]


def test_numbers_of_every_state_fit_their_column() -> None:
    """No line is wider than the 30 characters beside the plot."""
    live = LiveJob(0)
    live.n_total, live.points = 10_000, ("prompt of 1,048,576: 123,456.00 ms",)
    live.append(26, [134_567_890 + 1_000_000 * step for step in range(100)])
    plan = SearchPlan(theory_n_ctx=12_345_678, planned_n_ctx=131_328, budget_bytes=24 << 30)
    subject = Subject(model="m", quant="q", source="file", n_ctx_train=1_048_576)
    head = msgspec.structs.replace(start_search(), subject=subject)
    run = Run(head=head, outcome=Outcome.COMPLETED, result=MaxctxResult(plan=plan, max_n_ctx=131_072))
    for state in WorkState:
        for kind in ("decode", "maxctx"):
            item = QueueItem(subject, kind, id=0, state=state, run=run)
            assert max(map(len, number_lines(live, item))) <= 30, state
    live.reading = msgspec.structs.replace(READING, others_share=0.7)
    item = QueueItem(subject, "decode", id=0, state=WorkState.DECODING)
    assert {"! others 70 % of CPU", "  throttled: sw_power_cap"} <= set(number_lines(live, item))


def test_what_was_measured_and_what_is_being_done_is_listed() -> None:
    live = LiveJob(0)
    assert point_lines(live) == []
    live.take(Working("probe", text="n_ctx 8,192: allocating"))
    live.take(PointMeasured("n_ctx 8,192 loads (0.30 s)", None))
    live.take(PointMeasured("", None))
    live.take(Working("probe", text="n_ctx 16,384:\x1b allocating"))
    live.began_s -= 75
    live.take(Working("load", 0.5, 1.0))
    assert point_lines(live) == ["n_ctx 8,192 loads (0.30 s)", "n_ctx 16,384: allocating … 1:15"]
    decode = LiveJob(1, settings=DecodeSettings(600))
    decode.take(PointMeasured("prompt of 25: 25.00 ms", None))
    assert point_lines(decode) == []
