"""The Run screen over a queue of fake workers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Footer, Static

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.memory import Memory
from ggbench.errors import StoreError
from ggbench.experiments.maxctx.record import BracketEnds, ContextResult, ContextSettings, Probe, Question, SearchPlan
from ggbench.machine.records import GpuReading, MachineReading
from ggbench.models.reference import parse_model
from ggbench.models.selector import Target, resolve
from ggbench.runs.outcome import Outcome
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.subject import Subject
from ggbench.tui.live_job import Answer, LiveJob
from ggbench.tui.run_queue import JobState, QueueItem, RunQueue
from ggbench.tui.screens.run import RunScreen
from ggbench.tui.widgets.bracket_plot import BracketPlot, bracket_lines
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.decoded_text import DecodedText
from ggbench.tui.widgets.gauges import Gauges, gauge_lines
from ggbench.tui.widgets.numbers import number_lines
from ggbench.tui.widgets.queue_list import QueueList, queue_lines
from tests.fakes.jobs import FakeServices, Gate, decodes, searches, small_context
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
    MODES = {"run": RunScreen, "other": Screen}  # noqa: RUF012 - as Textual has it

    def __init__(self, services: FakeServices) -> None:
        super().__init__()
        self.services = services
        self.watched = watched_runs(services)
        self.run_queue = self.watched.queue

    def on_mount(self) -> None:
        self.switch_mode("run")

    @property
    def run_screen(self) -> RunScreen:
        screen = self.screen
        assert isinstance(screen, RunScreen)
        return screen


@pytest.fixture
def target(tiny_twin: Path) -> Target:
    return resolve(parse_model(str(tiny_twin)))[0]


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
    """Wait for the queue in a thread, then for what is drawn of it."""
    await host.watched.reach(reached)
    host.run_screen._look()
    await pilot.pause()


def lines_of(host: Host) -> list[str]:
    return [str(option.prompt) for option in host.screen.query_one(QueueList).options]


def keys_of(host: Host) -> list[str]:
    return [binding.binding.description for binding in host.screen.active_bindings.values() if binding.enabled]


def test_an_empty_queue_says_how_to_fill_it(tmp_path: Path) -> None:

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        assert host.screen.query_one("#nothing", Static).display
        assert "Library" in str(host.screen.query_one("#nothing", Static).content)
        assert "Pause" not in keys_of(host)

    drive(FakeServices(tmp_path), steps)


def test_a_run_is_drawn_from_start_to_end(target: Target, tmp_path: Path) -> None:
    gate = Gate()
    services = FakeServices(tmp_path, [gate.answer, crash])

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target] * 3, 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        await reach(host, pilot, lambda queue: queue.items[0].state is JobState.DECODING)
        assert [line[0] for line in lines_of(host)] == ["▶", "·", "·"]
        assert {"Pause", "Skip", "Cancel all"} <= set(keys_of(host))
        (series,) = host.screen.query_one(CurvesPlot).figures[0].curves
        assert len(series.x) == 200
        assert series.limit is not None
        gate.opened.set()
        await reach(host, pilot, lambda queue: not queue.is_busy)
        first, second, third = lines_of(host)
        assert first.startswith("✓ a")
        assert "W 2" in first
        assert second.startswith("✗")
        assert "GGML_ASSERT" in second
        assert third.startswith("✓ b")
        assert [one.dimmed for one in host.screen.query_one(CurvesPlot).figures[0].curves] == [True, False]
        host.screen.query_one(QueueList).highlighted = 1
        await pilot.pause()
        assert "GGML_ASSERT" in str(host.screen.query_one("#reason", Static).content)

    drive(services, steps)


def test_keys_pause_skip_and_cancel(target: Target, tmp_path: Path) -> None:
    gates = Gate(), Gate()
    services = FakeServices(tmp_path, [gate.answer for gate in gates])

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target] * 3, 1000))
        await asyncio.to_thread(gates[0].reached.wait, 60)
        await pilot.press("p")
        assert services.rigs[0].hold.is_set()
        assert lines_of(host)[0].startswith("‖")
        assert "Resume" in keys_of(host)
        assert "Pause" not in keys_of(host)
        await pilot.press("p")
        assert "Pause" in keys_of(host)
        assert not services.rigs[0].hold.is_set()
        await pilot.press("s")
        gates[0].opened.set()
        await asyncio.to_thread(gates[1].reached.wait, 60)
        await pilot.press("c")
        gates[1].opened.set()
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert [line[0] for line in lines_of(host)] == ["–", "–", "–"]
        assert "  skipped, 9" in lines_of(host)[0]
        assert "  cancelled, 9" in lines_of(host)[1]
        assert "Pause" not in keys_of(host)

    drive(services, steps)


def test_a_run_goes_on_behind_another_screen(target: Target, tmp_path: Path) -> None:
    gate = Gate()

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target], 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        await reach(host, pilot, lambda queue: queue.items[0].state is JobState.DECODING)
        run_screen = host.run_screen
        await host.switch_mode("other")
        gate.opened.set()
        await host.watched.reach(lambda queue: not queue.is_busy)
        run_screen._look()
        assert not str(run_screen.query_one(QueueList).options[0].prompt).startswith("✓")
        await host.switch_mode("run")
        await pilot.pause()
        assert lines_of(host)[0].startswith("✓")

    drive(FakeServices(tmp_path, [gate.answer]), steps)


def test_a_search_shows_its_bracket(target: Target, tmp_path: Path) -> None:

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(searches([target], LlamaConfig(n_ctx=4096)))
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert "n_ctx 2,048, proven by a decode" in lines_of(host)[0]
        drawn = host.screen.query_one(BracketPlot).render().plain
        assert "2,048 works, 2,304 does not" in drawn
        assert host.screen.query_one(BracketPlot).display
        assert not host.screen.query_one(CurvesPlot).display
        await pilot.press("t")
        assert not host.screen.query_one(DecodedText).display
        assert "Text" not in keys_of(host)

    drive(FakeServices(tmp_path, [small_context]), steps)


def test_a_store_that_fails_is_reported_and_the_run_continues(target: Target, tmp_path: Path) -> None:

    class NoStore(FakeServices):
        def open_store(self) -> Store:
            raise StoreError("the results file is newer than this ggbench", "update ggbench")

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target], 100))
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert lines_of(host)[0].startswith("✓")
        reason = str(host.screen.query_one("#reason", Static).content)
        assert "newer than this ggbench; update ggbench" in reason

    drive(NoStore(tmp_path), steps)


def test_the_machine_is_read_while_something_runs(target: Target, tmp_path: Path) -> None:
    gate = Gate()
    services = FakeServices(tmp_path, [gate.answer])

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_screen._read_machine()
        await host.workers.wait_for_complete()
        idle = services.n_readings
        assert idle == 0
        host.run_queue.add(decodes([target], 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        host.run_screen._read_machine()
        await host.workers.wait_for_complete()
        await pilot.pause()
        assert services.n_readings > idle
        assert "CPU 50 %" in host.screen.query_one(Gauges).render().plain
        assert "last reading" not in host.screen.query_one(Gauges).render().plain
        gate.opened.set()
        await reach(host, pilot, lambda queue: not queue.is_busy)
        assert host.screen.query_one(Gauges).render().plain.startswith("last reading\nCPU 50 %")

    services.reading = READING
    drive(services, steps)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60)])
def test_a_window_may_be_resized_in_mid_run(target: Target, tmp_path: Path, size: tuple[int, int]) -> None:
    gate = Gate()

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.run_queue.add(decodes([target], 1000))
        await asyncio.to_thread(gate.reached.wait, 60)
        await reach(host, pilot, lambda queue: queue.items[0].state is JobState.DECODING)
        await pilot.resize_terminal(*size)
        await pilot.pause()
        await pilot.press("t")
        await pilot.pause()
        assert host.screen.query_one(Footer).region.bottom <= size[1]
        if size >= (80, 24):
            assert host.screen.query_one(CurvesPlot).region.height >= 8
            assert host.screen.query_one(DecodedText).display
        gate.opened.set()

    drive(FakeServices(tmp_path, [gate.answer]), steps)


def test_text_of_a_model_cannot_steer_the_terminal(tmp_path: Path) -> None:

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.screen.add_class("-busy", "-text")
        widget = host.screen.query_one(DecodedText)
        while widget.size.area < 20:  # until it has its place
            await pilot.pause()
        widget.show("[bold]a\x1b[31mb\n\x07c")
        assert widget.render().plain == "[bold]a[31mb c"
        widget.show("")
        assert widget.render().plain == "no text yet"
        for mute in ({"n_done": 100}, {"is_twin": True}):
            widget.show("", **mute)
            assert widget.render().plain == "this file has no tokenizer, so there is no text"
        widget.show("x" * 100_000 + "end")
        assert widget.render().plain.endswith("xend")
        assert len(widget.render().plain) <= widget.size.area

    drive(FakeServices(tmp_path), steps)
    item = QueueItem(
        0, Subject(model="a\x1b[2Jb", quant="q8_0", source="file"), "decode", JobState.FAILED, "no\x1b]0;title\x07 luck"
    )
    assert queue_lines([item], {}, paused=False) == ["✗   a[2Jb q8_0  no]0;title luck"]


def test_kv_types_tell_the_rows_of_one_quant_apart() -> None:
    subject, other = (Subject(model="m", quant=quant, source="file") for quant in ("q4_1", "q2_k"))
    quantized = LlamaConfig(type_k="q8_0", type_v="q8_0")
    items = [
        QueueItem(0, subject, "quality"),
        QueueItem(1, subject, "quality", setup=quantized),
        QueueItem(2, other, "quality", setup=quantized),
    ]
    names = [line[4:].split("  ")[0] for line in queue_lines(items, {}, paused=False)]
    assert names == ["m q4_1", "m q4_1, KV q8_0", "m q2_k"]


def test_two_files_of_a_queue_have_two_names() -> None:
    """Also where the width would cut off what distinguishes them."""
    paths = ("/m/a.gguf", "/m/b.gguf", f"/m/{'long' * 20}1.gguf", f"/m/{'long' * 20}2.gguf")
    subjects = [Subject(model="/m", quant="q4_1", source="file", file=path) for path in paths]
    items = [QueueItem(index, subject, "decode") for index, subject in enumerate(subjects)]
    for some in (items[:2], items):
        lines = queue_lines(some, {}, paused=False)
        assert lines[0].startswith("·   a.gguf q4_1 ")
        assert len(set(lines)) == len(some)


def test_numbers_of_every_state_fit_their_column() -> None:
    live = LiveJob(0)
    live.n_total, live.memory, live.point = 10_000, Memory(n_ctx=1_048_576), "prompt of 1,048,576: 123,456.00 ms"
    live.append(26, [2_345_678_901 + 300_000_000 * step for step in range(100)], "")
    plan = SearchPlan(theory_n_ctx=12_345_678, planned_n_ctx=131_328, budget_bytes=24 << 30)
    subject = Subject(model="m", quant="q", source="file", n_ctx_train=1_048_576)
    head = RunHead(kind="maxctx", subject=subject, setup=LlamaConfig(), settings=ContextSettings())
    run = Run(head=head, outcome=Outcome.COMPLETED, result=ContextResult(plan=plan, max_n_ctx=131_072))
    for state in JobState:
        item = QueueItem(0, subject, "maxctx", state, run=run)
        assert all(len(line) <= 28 for line in number_lines(live, live.numbers(), item, paused=True))
    assert all(len(line) <= 28 for line in gauge_lines(READING))
    assert "  throttled: sw_power_cap" in gauge_lines(READING)


def test_the_bracket_closes_in() -> None:
    ends = BracketEnds(12_288, 16_384)
    answers = [
        Answer(Probe(8192, "alloc", Outcome.COMPLETED, 0.3), BracketEnds(8192, None)),
        Answer(Probe(16_384, "alloc", Outcome.OUT_OF_MEMORY, 0.1), BracketEnds(8192, 16_384)),
        Answer(Probe(12_288, "alloc", Outcome.COMPLETED, 0.4), ends),
    ]
    _, first, second, third, gap = bracket_lines(answers, None, 80)
    assert "╳" not in first
    gaps = [line.count("·") for line in (second, third)]
    assert gaps[0] > gaps[1]
    assert third.count("━") > second.count("━") == first.count("━")
    assert gap == "12,288 works, 16,384 does not, 4,096 between"
    assert all(len(line) <= 80 for line in (first, second, third))
    for outcome, words in ((Outcome.CANCELLED, "cancelled"), (Outcome.TIMED_OUT, "timed out")):
        unanswered = Answer(Probe(14_336, "alloc", outcome, 9.0), ends)
        *_, unknown, same_gap = bracket_lines([*answers, unanswered], None, 80)
        assert unknown == f"context    14,336 – not known ({words})"
        assert same_gap == gap
    question = Question(8192, "alloc", BracketEnds(None, None), 8 << 30)
    *_, asking, gap, warning = bracket_lines([], question, 80, 75)
    assert "8,192 ? asking 1:15" in asking
    assert gap == "none known to work"
    assert warning == "it may take nearly all of 8.00 GiB of memory"
    later = dataclasses.replace(question, n_ctx=14_336, ends=ends)
    assert bracket_lines(answers, later, 80)[-1] == same_gap
    assert bracket_lines(answers, dataclasses.replace(later, kind="decode"), 80)[-1] == warning
    dry = Answer(Probe(512, "dry", Outcome.COMPLETED, 0.0), BracketEnds(None, None))
    assert bracket_lines([dry], None, 80) == ["planning with 1 dry context"]
