"""The queue: jobs one after another in a thread, with every way in which one can end."""

import threading
from collections.abc import Iterator
from pathlib import Path

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Crashed, Ending, Outcome, OutOfMemory
from ggbench.engines.llama.config import LlamaConfig, MakeContext
from ggbench.errors import StoreError
from ggbench.experiments.decode.record import DecodeResult
from ggbench.experiments.maxctx.record import MaxctxResult
from ggbench.models.targets import Target
from ggbench.runs.experiment import Experiment
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.tui.run_queue import QueueItem, RunQueue
from ggbench.tui.widgets.run_panels import queue_lines
from ggbench.tui.work_queue import WorkState
from tests.fakes.engine import obey
from tests.fakes.jobs import FakeServices, Gate, decodes, searches
from tests.fakes.watched import watched_runs


def result_of(item: QueueItem) -> MaxctxResult:
    assert item.run is not None
    assert isinstance(item.run.result, MaxctxResult)
    return item.run.result


def is_done(queue: RunQueue) -> bool:
    return not queue.is_busy


def crash(request: Request) -> Iterator[protocol.Message | Ending]:
    yield Crashed.exited("llama.cpp", -6, "GGML_ASSERT(something) failed")


def run_out(request: Request) -> Iterator[protocol.Message | Ending]:
    yield OutOfMemory("load", "failed to allocate")


def test_a_crash_and_too_little_memory_are_items_with_their_reasons(target: Target, tmp_path: Path) -> None:
    with watched_runs(FakeServices(tmp_path, [crash, run_out])) as watched:
        watched.queue.add(decodes([target] * 3, 100))
        watched.wait(is_done)
        crashed, full, done = watched.queue.items
    assert (crashed.state, full.state, done.state) == (WorkState.FAILED, WorkState.FAILED, WorkState.DONE)
    assert "GGML_ASSERT" in crashed.reason
    assert crashed.run is not None
    assert crashed.run.outcome is Outcome.CRASHED
    assert full.reason == "out of memory in load: failed to allocate"


def test_a_stop_keeps_what_was_measured_and_the_next_one_runs(target: Target, tmp_path: Path) -> None:
    gate = Gate()
    with watched_runs(FakeServices(tmp_path, [gate.answer])) as watched:
        watched.queue.add(decodes([target, target], 1000))
        assert gate.reached.wait(60)
        watched.queue.stop(0)
        gate.opened.set()
        watched.wait(is_done)
        stopped, done = watched.queue.items
    assert (stopped.state, done.state) == (WorkState.STOPPED, WorkState.DONE)
    assert stopped.run is not None
    assert isinstance(stopped.run.result, DecodeResult)
    assert stopped.run.result.n_gen == 200


def test_all_are_stopped(target: Target, tmp_path: Path) -> None:
    gate, services = Gate(), FakeServices(tmp_path)
    services.answers.append(gate.answer)
    with watched_runs(services) as watched:
        watched.queue.add(decodes([target, target], 1000))
        assert gate.reached.wait(60)
        watched.queue.stop(0, 1)
        gate.opened.set()
        watched.wait(is_done)
        assert [item.state for item in watched.queue.items] == [WorkState.STOPPED] * 2
        assert len(services.workers) == 1
        watched.queue.add(decodes([target], 100))
        watched.wait(is_done)
        assert watched.queue.items[2].state is WorkState.DONE


def test_a_search_that_is_stopped_knows_nothing_of_what_it_was_asking(target: Target, tmp_path: Path) -> None:
    asked, stopped = threading.Event(), threading.Event()

    def die_of_it(request: Request) -> Iterator[protocol.Message | Ending]:
        live = watched.queue.live
        if isinstance(request, MakeContext) and live is not None and live.doing:
            asked.set()
            assert stopped.wait(60)
            yield Crashed("it died")
        else:
            yield from obey(request)

    with watched_runs(FakeServices(tmp_path, [die_of_it])) as watched:
        watched.queue.add(searches([target], LlamaConfig(n_ctx=4096)))
        assert asked.wait(60)
        live = watched.queue.live
        assert live is not None
        doing = live.doing
        watched.queue.stop(0)
        stopped.set()
        watched.wait(is_done)
        (item,) = watched.queue.items
    assert item.state is WorkState.STOPPED
    found = result_of(item)
    assert found.max_n_ctx is found.first_fail_n_ctx is None
    assert found.probes[-1].outcome is Outcome.CANCELLED
    assert doing == "n_ctx 4,096: allocating" and not live.doing
    assert live.points[-1].startswith("n_ctx 4,096")
    assert queue_lines([item], {})[0].endswith("  stopped")


def test_a_waiting_job_is_taken_out_and_the_others_run(target: Target, tmp_path: Path) -> None:
    gate = Gate()
    with watched_runs(FakeServices(tmp_path, [gate.answer])) as watched:
        watched.queue.add(decodes([target] * 3, 1000))
        assert gate.reached.wait(60)
        watched.queue.stop(1)
        gate.opened.set()
        watched.wait(is_done)
        items = watched.queue.items
    assert [item.state for item in items] == [WorkState.DONE, WorkState.STOPPED, WorkState.DONE]


def test_a_fault_of_a_job_does_not_end_the_queue(target: Target, tmp_path: Path) -> None:
    class Faulty(FakeServices):
        def run_context(self, store: Store | None, experiment: Experiment) -> RunContext:
            if not self.rigs:
                self.rigs.append(super().run_context(store, experiment))
                raise RuntimeError("a fault")
            return super().run_context(store, experiment)

    with watched_runs(Faulty(tmp_path)) as watched:
        watched.queue.add(decodes([target, target], 100))
        watched.wait(is_done)
        first, second = watched.queue.items
    assert (first.state, second.state) == (WorkState.FAILED, WorkState.DONE)
    assert "a fault" in first.reason


def test_close_ends_the_worker_and_the_thread(target: Target, tmp_path: Path) -> None:
    gate, services = Gate(), FakeServices(tmp_path)
    services.answers.append(gate.answer)

    def open_when_cancelled(cancel: threading.Event) -> None:
        cancel.wait(60)
        gate.opened.set()

    before = threading.active_count()
    with watched_runs(services) as watched:
        watched.queue.add(decodes([target, target], 1000))
        assert gate.reached.wait(60)
        threading.Thread(target=open_when_cancelled, args=(watched.queue._cancel,)).start()
        watched.queue.close()
        assert services.workers[0].closed
        assert not any(item.state.is_at_work for item in watched.queue.items)
        watched.queue.close()
    assert len(services.workers) == 1
    assert threading.active_count() <= before + 1  # the one that opened the gate may still be ending
    with services.open_store() as store:
        assert store.load_run(watched.queue.items[0].run_id or 0).state == Outcome.CANCELLED


def test_jobs_run_one_after_another_and_are_kept(target: Target, tmp_path: Path) -> None:
    """Each ends in its run, which the store has."""
    services = FakeServices(tmp_path)
    with watched_runs(services) as watched:
        watched.queue.add(decodes([target, target], 500))
        watched.wait(is_done)
        items = watched.queue.items
    assert [item.state for item in items] == [WorkState.DONE] * 2
    with services.open_store() as store:
        kept = [read_run(store, store.load_run(item.run_id or 0)) for item in items]
    assert [run.result for run in kept] == [item.run.result for item in items if item.run is not None]


def test_without_a_store_the_run_goes_on(target: Target, tmp_path: Path) -> None:
    """A store of a newer ggbench costs the run its place there, and the queue says why."""

    class NoStore(FakeServices):
        def open_store(self) -> Store:
            raise StoreError("the results file is newer than this ggbench", "update ggbench")

    with watched_runs(NoStore(tmp_path)) as watched:
        watched.queue.add(decodes([target], 100))
        watched.wait(is_done)
        (item,), store_error = watched.queue.items, watched.queue.store_error
    assert (item.state, item.run_id) == (WorkState.DONE, None)
    assert store_error is not None
