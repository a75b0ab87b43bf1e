"""When the steps of a run ran, which decides the readings of the machine that count."""

import pytest

from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.models.subject import Subject
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
