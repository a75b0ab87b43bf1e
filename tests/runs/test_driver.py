"""However a job ends, it ends in a run: crashes, refusals, cancelling, a store that fails or that others change."""

import contextlib
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec.structs
import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Decode, EngineConfig, Prefill, Request
from ggbench.engines.endings import Crashed, Ending, Outcome, OutOfMemory
from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.process import WorkerProcess
from ggbench.errors import BadFile, StoreError
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve, resolve_one
from ggbench.runs.driver import run_job, run_jobs
from ggbench.runs.progress import Finished, ModelReady, PointMeasured, Progress, SamplesTimed, Started, Working
from ggbench.runs.recording import PromptTiming
from ggbench.runs.store.database import Store
from tests.fakes.engine import fake_rig, obey
from tests.fakes.recorded import decode_job, decoded, runs_of

FAKE_WORKER = Path(__file__).parent.parent / "fakes" / "worker.py"


def test_progress_comes_in_order_and_counts_what_is_timed(target: Target, store: Store) -> None:
    records = list(run_job(fake_rig(store)[0], decode_job(target, 250, repeat=2), index=1, n_jobs=3))
    assert records[0] == Started("decode", target.model, "q8_0", 1, 3)
    (ready,) = (record for record in records if isinstance(record, ModelReady))
    assert ready.memory.n_ctx == 512
    assert ready.limit is not None
    points = [record for record in records if isinstance(record, PointMeasured)]
    assert [point.observation for point in points[:2]] == [PromptTiming(25, 25_000_000), PromptTiming(25, 26_000_000)]
    assert [point.text for point in points[:2]] == ["prompt of 25: 25.00 ms", "prompt of 25: 25.50 ms, the median of 2"]
    samples = [record for record in records if isinstance(record, SamplesTimed)]
    assert [(record.n_done, record.n_total) for record in samples] == [(n, 500) for n in (100, 200, 250, 350, 450, 500)]
    assert {record.series for record in samples} == {"decode/p25/b1/r0", "decode/p25/b1/r1"}
    assert isinstance(records[-1], Finished)
    assert records[-1].run.run_id == ready.run_id


def test_a_file_that_is_made_first_is_progress_in_bytes(tmp_path: Path) -> None:
    records = list(run_job(fake_rig()[0], decode_job(resolve_one(parse_model("twin:qwen1.5-0.5b", "q2_k")), 10)))
    writing = [record for record in records if isinstance(record, Working) and record.stage == "write"]
    assert writing and all(record.is_bytes for record in writing)
    assert writing[-1].done == writing[-1].total
    assert isinstance(records[-1], Finished)
    assert records[-1].run.subject.n_ctx_train == 32768


def crash_in_decode(request: Request) -> Iterator[protocol.Message | Ending]:
    if isinstance(request, Decode) and request.n_gen > 8:
        yield Steps(26, [10_000_000] * 20, [1] * 20)
        yield Crashed.exited("llama.cpp", -11, "last words")
    else:
        yield from obey(request)


def refuse_context(request: Request) -> Iterator[protocol.Message | Ending]:
    if isinstance(request, MakeContext):
        yield OutOfMemory("context", "failed to allocate")
    else:
        yield from obey(request)


def test_a_crash_is_a_run_with_a_reason_and_the_rest_goes_on(target: Target, store: Store) -> None:
    rig, workers = fake_rig(store, {0: crash_in_decode, 1: refuse_context})
    crashed, refused, good = runs_of(rig, *[decode_job(target, 300)] * 3)
    assert crashed.outcome is Outcome.CRASHED
    assert crashed.reason == "llama.cpp was killed by SIGSEGV: last words"
    assert (decoded(crashed).n_gen, decoded(crashed).latency is not None) == (20, True)
    assert refused.outcome is Outcome.OUT_OF_MEMORY
    assert (refused.memory.kv_bytes, refused.memory.n_ctx, decoded(refused).fit) == (None, None, None)
    assert refused.memory.buffers[0].weight_bytes == 100 << 20
    assert decoded(refused).limit == decoded(good).limit is not None
    assert good.outcome is Outcome.COMPLETED
    assert [worker.closed for worker in workers] == [True] * 3
    assert {run.state for run in store.list_runs()} == {"crashed", "out_of_memory", "completed"}


@pytest.mark.parametrize("request_type", [LoadModel, MakeContext, Prefill, Decode])
def test_memory_that_runs_out_is_an_outcome_at_every_stage(target: Target, store: Store, request_type: type) -> None:
    def run_out(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, request_type):
            yield OutOfMemory(request.stage, "failed to allocate")
        else:
            yield from obey(request)

    (run,) = runs_of(fake_rig(store, {0: run_out})[0], decode_job(target, 300))
    stage = {"LoadModel": "load", "MakeContext": "context"}.get(request_type.__name__, request_type.__name__.lower())
    assert (run.outcome, run.reason) == (Outcome.OUT_OF_MEMORY, f"out of memory in {stage}: failed to allocate")
    assert run.run_id is not None
    assert store.load_run(run.run_id).state == "out_of_memory"


def test_a_file_that_cannot_be_read_is_a_run(target: Target, tmp_path: Path, store: Store) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"")
    rig, workers = fake_rig(store)
    jobs = [decode_job(resolve(parse_model(str(broken)))[0], 10), decode_job(target, 10)]
    first, second = (record for record in run_jobs(rig, jobs) if isinstance(record, Finished))
    assert isinstance(first.error, BadFile)
    assert first.run.outcome is Outcome.FAILED
    assert (first.run.reason, first.run.run_id) == (first.error.message, None)
    assert second.run.outcome is Outcome.COMPLETED
    assert len(workers) == 1
    assert len(store.list_runs()) == 1


def test_cancelling_keeps_what_was_measured_and_starts_nothing_else(target: Target, store: Store) -> None:
    cancel = threading.Event()
    rig, workers = fake_rig(store, cancel=cancel)
    records: list[Progress] = []
    for record in run_jobs(rig, [decode_job(target, 1000)] * 2):
        records.append(record)
        if isinstance(record, SamplesTimed) and record.n_done == 500:
            cancel.set()
    (finished,) = (record for record in records if isinstance(record, Finished))
    assert finished.run.outcome is Outcome.CANCELLED
    assert decoded(finished.run).n_gen == 500
    assert sum(isinstance(record, Started) for record in records) == 1
    assert len(workers) == 1
    assert workers[0].closed


def test_dropping_the_generator_closes_the_worker_and_keeps_the_samples(target: Target, store: Store) -> None:
    rig, workers = fake_rig(store)
    with contextlib.closing(run_job(rig, decode_job(target, 1000))) as progress:
        next(record for record in progress if isinstance(record, SamplesTimed) and record.n_done == 500)
    assert workers[0].closed
    (run,) = store.list_runs()
    assert run.n_samples == 500


class FullDisk:
    def __init__(self, store: Store, n_writes: int) -> None:
        self._store, self._left = store, n_writes

    def __getattr__(self, name: str) -> object:
        if name != "wait_at_most":
            if self._left == 0:
                raise StoreError("the disk is full", "make room")
            self._left -= 1
        return getattr(self._store, name)


@pytest.mark.parametrize("n_writes", [0, 1, 3, 8])
def test_a_store_that_fails_costs_no_measurement(target: Target, store: Store, n_writes: int) -> None:
    rig, _ = fake_rig(FullDisk(store, n_writes))  # type: ignore[arg-type]
    records = list(run_jobs(rig, [decode_job(target, 500)] * 2))
    finished = [record for record in records if isinstance(record, Finished)]
    assert [record.run.outcome for record in finished] == [Outcome.COMPLETED] * 2
    assert [decoded(record.run).n_gen for record in finished] == [500, 500]
    assert any(record.store_error for record in finished)


@pytest.mark.parametrize(
    ("cue", "outcome", "reason"),
    [
        ("abort", Outcome.CRASHED, "SIGABRT: GGML_ASSERT(something) failed"),
        ("garbage", Outcome.CRASHED, "the worker wrote something that is not a message"),
        ("hang", Outcome.TIMED_OUT, "no output from the worker for 0.5 s"),
        ("exit", Outcome.CRASHED, "exit status 7"),
        ("refuse", Outcome.FAILED, "load failed: unknown architecture"),
    ],
)
def test_a_worker_that_misbehaves_is_a_run(
    target: Target, store: Store, cue: str, outcome: Outcome, reason: str
) -> None:
    def launch(_setup: EngineConfig, cancel: threading.Event) -> LlamaEngine:
        command = (sys.executable, str(FAKE_WORKER), cue)
        return LlamaEngine(lambda: WorkerProcess(cancel, timeout_s=0.5, command=command))

    rig, _ = fake_rig(store)
    (run,) = runs_of(msgspec.structs.replace(rig, launch=launch), decode_job(target, 10))
    assert run.outcome is outcome
    assert reason in run.reason
    assert [stored.state for stored in store.list_runs()] == [outcome.value]


def test_a_run_that_is_deleted_meanwhile_goes_on(target: Target, store: Store) -> None:
    """Someone may do it by hand; nothing more is kept, and that is said."""
    rig, _ = fake_rig(store)
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as raw:
        records = []
        for record in run_job(rig, decode_job(target, 500)):
            records.append(record)
            raw.execute("DELETE FROM runs")
    finished = records[-1]
    assert isinstance(finished, Finished)
    assert (decoded(finished.run).n_gen, finished.run.run_id) == (500, None)
    assert finished.store_error is not None and "was deleted" in finished.store_error.message
    assert store.list_runs() == ()


def test_cancelling_before_the_file_is_there_leaves_no_run(store: Store) -> None:
    cancel = threading.Event()
    rig, workers = fake_rig(store, cancel=cancel)
    records = []
    for record in run_job(rig, decode_job(resolve_one(parse_model("twin:qwen1.5-0.5b", "q4_0")), 10)):
        records.append(record)
        cancel.set()
    assert not any(isinstance(record, Finished) for record in records)
    assert (workers, store.list_runs()) == ([], ())
