"""When the steps of a run ran, which decides the readings of the machine that count; and that all are stored."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines.endings import Outcome
from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.models.subject import Subject
from ggbench.runs.driver import run_of
from ggbench.runs.experiment import Concluded, experiment_of
from ggbench.runs.reading_log import ReadingLog
from ggbench.runs.recording import Recorder
from ggbench.runs.run import RunHead
from ggbench.runs.store.database import Store

S = 1_000_000_000
HEAD = RunHead(
    kind="decode", subject=Subject(model="m", quant="q4_0", source="file"), setup=LlamaConfig(),
    settings=DecodeSettings(10),
)  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1000 * S

    def moment_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("ggbench.runs.recording.time", clock)
    monkeypatch.setattr("ggbench.runs.recording.moment_ns", clock.moment_ns)
    return clock


def recorder_of(store: Store | None) -> Recorder:
    recorder = Recorder(HEAD, store, ReadingLog(None))
    recorder.begin(HEAD)
    return recorder


def half_a_second(recorder: Recorder, clock: Clock, position: int, series: str = "decode/p25/b1/r0") -> None:
    clock.now_ns += S // 2
    recorder.add_steps(series, Steps(position, [S // 4, S // 4], []))


def test_a_pause_is_no_part_of_what_was_timed(clock: Clock, store: Store) -> None:
    recorder = recorder_of(store)
    half_a_second(recorder, clock, 26)
    clock.now_ns += 60 * S
    half_a_second(recorder, clock, 28)
    recorder.flush()
    spans = [(1000 * S, 1000 * S + S // 2), (1060 * S + S // 2, 1061 * S)]
    assert recorder.recording.spans == spans
    assert recorder.run_id is not None
    assert [chunk.at_ns for chunk in store.load_chunks(recorder.run_id)] == [end for _, end in spans]


def test_steps_that_follow_each_other_are_one_span_and_warm_up_is_none(clock: Clock, store: Store) -> None:
    recorder = recorder_of(store)
    half_a_second(recorder, clock, 26, "warmup/p25/b1/r0")
    recorder.flush()
    for number in range(6):
        half_a_second(recorder, clock, 26 + 2 * number)
    recorder.flush()
    assert recorder.recording.spans == [(1000 * S + S // 2, 1003 * S + S // 2)]
    assert recorder.recording.n_tokens == 12
    assert recorder.run_id is not None
    lengths = [len(chunk.step_ns) for chunk in store.load_chunks(recorder.run_id)]
    assert (sum(lengths), max(lengths)) == (14, 4)


def test_a_step_of_a_batch_is_a_token_for_each_and_a_servers_requests_are_counted_singly(clock: Clock) -> None:
    recorder = recorder_of(None)
    for series in ("warmup/p25/b4/r0", "decode/p25/b4/r0", "decode/i64/b8", "decode/i64/b4/s0", "decode/d0/b1/r0"):
        half_a_second(recorder, clock, 26, series)
    assert recorder.recording.n_tokens == 2 * (4 + 8 + 1 + 1)


@contextlib.contextmanager
def held_by_another(path: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextlib.contextmanager
def full_disk(store: Store) -> Iterator[None]:
    store._connection.execute("PRAGMA max_page_count = 1")  # SQLite clips it to the size that the file has
    yield
    store._connection.execute("PRAGMA max_page_count = 1000000")


@pytest.mark.parametrize("from_the_start", [False, True])
@pytest.mark.parametrize("trouble", ["locked", "full"])
def test_what_a_store_did_not_take_for_a_while_is_stored_later(
    trouble: str, from_the_start: bool, clock: Clock, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that holds the file, or a full disk, costs no sample that is in memory."""
    monkeypatch.setattr("ggbench.runs.recording._STORE_WAIT_S", 0)
    recorder = Recorder(HEAD, store, ReadingLog(None))
    n_steps = 4000 if trouble == "full" else 4
    with contextlib.ExitStack() as stack:
        for is_in_trouble in (False, True) if not from_the_start else (True,):
            if is_in_trouble:
                stack.enter_context(held_by_another(store.path) if trouble == "locked" else full_disk(store))
            if not recorder.has_begun:
                recorder.begin(HEAD)
            for number in range(4):
                clock.now_ns += S
                recorder.add_steps(
                    f"decode/p25/b1/r{int(is_in_trouble)}", Steps(26 + n_steps * number, [7] * n_steps, [])
                )
        assert isinstance(recorder.store_error, StoreError)
    recorder.flush()
    recorder.finish(run_of(experiment_of("decode"), recorder.recording, Concluded(Outcome.COMPLETED)))
    error: object = recorder.store_error
    assert error is None and recorder.run_id is not None
    stored = store.load_run(recorder.run_id)
    assert (stored.state, stored.n_samples) == ("completed", 4 * n_steps * (1 if from_the_start else 2))


def test_a_record_that_sqlite_never_takes_keeps_no_other_from_the_store(clock: Clock, store: Store) -> None:
    recorder = recorder_of(store)
    assert recorder.run_id is not None
    store.append_samples(recorder.run_id, "decode/p25/b1/r0", 26, [7])
    for position, series in ((26, "decode/p25/b1/r0"), (26, "decode/p25/b1/r1")):
        half_a_second(recorder, clock, position, series)
    recorder.flush()
    recorder.finish(run_of(experiment_of("decode"), recorder.recording, Concluded(Outcome.COMPLETED)))
    assert store.load_run(recorder.run_id).state == "completed"
    assert isinstance(recorder.store_error, StoreError)


def test_a_run_that_was_deleted_while_it_was_measured_is_an_error(clock: Clock, store: Store) -> None:
    recorder = recorder_of(store)
    store._connection.execute("DELETE FROM runs")
    half_a_second(recorder, clock, 26)
    recorder.flush()
    assert recorder.store_error is not None and "was deleted while it was measured" in recorder.store_error.message
    assert recorder.run_id is None
