"""The recording of a run so far: samples in series, and observations. It is the same live and read from the store."""

from __future__ import annotations

import re
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ggbench.engines.events import Steps
from ggbench.errors import StoreError, UnknownName
from ggbench.machine.host import peak_rss_bytes
from ggbench.machine.readings import moment_ns
from ggbench.machine.records import GpuUse, MachineReading
from ggbench.record import Record
from ggbench.runs.machine_use import Span, gpu_spills, machine_changes, others_share, summarize_gpus
from ggbench.runs.reading_log import ReadingLog
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.connection import BUSY_TIMEOUT_S, is_of_record
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import WARMUP
from ggbench.stats.decode_timing import RequestTiming, TimedSeries, TokenChunks, TokenTimes
from ggbench.stats.requests import BatchSteps, ServedRequest, shared_steps

PAUSE_NS = 1_000_000_000
"""A gap of this length between timed steps does not count as timed."""

_BATCH = re.compile(r"/b(\d{1,9})(?:/|$)")
_ONE_OF_BATCH = re.compile(r"/s\d+$")
"""End of the name of a series of a single sequence of a batch, as a server times it."""

_T = TypeVar("_T")


def kind_of(observed: type) -> str:
    """Return the store's name of a record: `prompt_timing` for PromptTiming; renaming a type needs a new store
    version.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", observed.__name__).lower()


def batch_size(series: str) -> int:
    """Return the sequences decoded at once, from the name of the batch's series or of one of its sequences."""
    found = _BATCH.search(series)
    return int(found[1]) if found else 1


@dataclass(slots=True)
class Series:
    """Steps in the order of timing, in arrays of 64-bit integers."""

    position: array[int] = field(default_factory=lambda: array("q"))
    """Tokens in the KV cache of a sequence, including the one being decoded."""
    step_ns: array[int] = field(default_factory=lambda: array("q"))
    sampler_ns: array[int] = field(default_factory=lambda: array("q"))
    """The sampler's time in each step; none if not timed."""

    def extend(self, first_position: int, step_ns: Sequence[int], sampler_ns: Sequence[int]) -> None:
        self.position.extend(range(first_position, first_position + len(step_ns)))
        self.step_ns.extend(step_ns)
        self.sampler_ns.extend(sampler_ns)


class Observation(Record):
    """A record and its time."""

    at_ns: int
    """Since the epoch."""
    body: object


@dataclass(slots=True)
class Recording:
    """A run so far."""

    head: RunHead
    series: dict[str, Series] = field(default_factory=dict)
    """Names such as `decode/p25/b1/r0`, in order of their start."""
    observations: list[Observation] = field(default_factory=list)
    """All records but the readings of the machine."""
    readings: list[MachineReading] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    """Time spans of timed steps, separated by pauses."""

    def settings(self, kind: type[_T]) -> _T:
        settings = self.head.settings
        assert isinstance(settings, kind)
        return settings

    def of(self, kind: type[_T]) -> tuple[_T, ...]:
        return tuple(each.body for each in self.observations if isinstance(each.body, kind))

    def last(self, kind: type[_T]) -> _T | None:
        return next((each.body for each in reversed(self.observations) if isinstance(each.body, kind)), None)

    @property
    def _names(self) -> dict[str, None]:
        """Return the names of all series, of single steps or of chunks, in order of their start."""
        return dict.fromkeys((*self.series, *(each.series for each in self.of(TokenChunks))))

    @property
    def timed_series(self) -> tuple[str, ...]:
        """Return the names of series that count."""
        return tuple(each for each in self._names if not each.startswith(WARMUP))

    @property
    def requests(self) -> tuple[RequestTiming, ...]:
        """Return the requests to a server, without warm-up."""
        return tuple(each for each in self.of(RequestTiming) if not each.series.startswith(WARMUP))

    def series_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the series with this name, and of its single sequences."""
        return tuple(each for each in self._names if each == name or each.startswith(f"{name}/s"))

    def timed(self, names: Iterable[str]) -> list[TimedSeries]:
        """Return the times in each of these series; only the total if its tokens were not counted."""
        chunks: dict[str, list[TokenChunks]] = {}
        for each in self.of(TokenChunks):
            chunks.setdefault(each.series, []).append(each)
        uncounted = {each.series: each.as_one_chunk for each in self.of(RequestTiming) if not each.is_exact}
        parts = []
        for name in names:
            series = self.series.get(name, Series())
            if name in uncounted:
                parts.append(TimedSeries((), (), chunks=uncounted[name]))
            else:
                parts.append(TimedSeries(series.position, series.step_ns, chunks.get(name, ())))
        return parts

    def token_times(self, names: Iterable[str]) -> TokenTimes:
        return TokenTimes.of(self.timed(names))

    def batch_steps(self, name: str) -> BatchSteps | None:
        """Return the decode of several sequences in the series with this name; None if nothing was timed."""
        names = self.series_of(name)
        timings = {each.series: each for each in self.requests}
        parts = zip(names, self.timed(names), strict=True)
        requests = [ServedRequest(timings[each], steps) for each, steps in parts if each in timings]
        if requests:
            return BatchSteps(shared_steps(requests), requests)
        return BatchSteps(self.token_times(names)) if names else None

    @property
    def n_tokens(self) -> int:
        """The tokens timed so far, without warm-up: a step of an engine's batch, as in `decode/p25/b4/r0`, gives each
        sequence one.
        """
        chunks = sum(sum(each.n_tokens) for each in self.of(TokenChunks) if not each.series.startswith(WARMUP))
        steps = (
            len(series.step_ns) * (1 if _ONE_OF_BATCH.search(name) else batch_size(name))
            for name, series in self.series.items()
            if not name.startswith(WARMUP)
        )
        return sum(steps) + chunks

    def add_span(self, series: str, span: Span) -> None:
        """Add the time span of the latest steps of a series."""
        if not series.startswith(WARMUP):
            self.spans[-1:] = _join_spans([*self.spans[-1:], span])

    @property
    def prompt_ns(self) -> dict[int, list[int]]:
        """Return the times in ns of prompts read from an empty cache, by requested length."""
        by_length: dict[int, list[int]] = {}
        for each in self.of(PromptTiming):
            if not each.n_depth:
                by_length.setdefault(each.n_asked or each.n_prompt, []).append(each.elapsed_ns)
        return by_length

    @property
    def machine_changes(self) -> tuple[str, ...]:
        in_use = self.last(GpusInUse)
        spills = gpu_spills(self.readings, in_use.indices if in_use else None)
        return *machine_changes(self.readings, self.timed_spans), *spills

    @property
    def others_share(self) -> float | None:
        """Return the share of all CPUs that other programs used while steps or prompts were timed; None if unknown."""
        return others_share(self.readings, self.timed_spans)

    @property
    def timed_spans(self) -> list[Span]:
        """Return the time spans of timed steps or, without any, of prompts."""
        prompts = [
            (each.at_ns - each.body.elapsed_ns, each.at_ns)
            for each in self.observations
            if isinstance(each.body, PromptTiming)
        ]
        return self.spans or _join_spans(prompts)

    @property
    def gpu_use(self) -> GpuUse | None:
        """Return the use of GPUs with buffers during the timed spans; None without GPUs."""
        in_use, worker = self.last(GpusInUse), self.last(WorkerStarted)
        if in_use is None:
            return None
        pid = worker.pid if worker else None
        return summarize_gpus(self.readings, in_use.indices, self.timed_spans, self.n_tokens, pid)


def _join_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order of time, joining those that follow each other closely."""
    joined: list[Span] = []
    for begin, end in spans:
        if joined and begin - joined[-1][1] < PAUSE_NS:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


class WorkerStarted(Record):
    """The engine's process, to find it among those using a GPU's memory."""

    pid: int


class WorkerPeak(Record):
    """The peak resident memory of the engine's process so far."""

    peak_bytes: int


class GpusInUse(Record):
    """The GPUs with any of the model's buffers."""

    indices: tuple[int, ...]
    """NVML's."""


class ModelDescribed(Record):
    """The engine's own name for the loaded model: llama.cpp's `llama 256M Q4_1`."""

    text: str


class PromptTiming(Record):
    """The time to read one prompt."""

    n_prompt: int
    """Tokens of each sequence."""
    elapsed_ns: int
    n_seqs: int = 1
    n_depth: int = 0
    """Tokens in the cache before; 0 for every prompt measured by ggbench."""
    n_asked: int | None = None
    """Requested tokens if a server's count `n_prompt` differs, otherwise None."""


_STORE_EVERY_S = 1.0
_STORE_WAIT_S = 0.25
"""How long storing waits for another program while something is measured; at the end it waits for longer."""


class Recorder:
    """The recorder of a run. What the store does not take is tried again with what follows, and at the end."""

    def __init__(self, head: RunHead, store: Store | None, readings: ReadingLog) -> None:
        self.recording = Recording(head)
        self.run_id: int | None = None
        """None if nothing is stored."""
        self.store_error: StoreError | None = None
        """Why the store lacks the run or part of it; None if it is complete."""
        self.has_begun = False
        self._store = store
        self._readings = readings
        self._waiting: deque[Callable[[Store, int], object]] = deque()
        """What is to be stored, in order."""
        self._lost: StoreError | None = None
        """Why something was left out."""
        self._tried_at = 0.0
        self._n_recorded: dict[str, int] = {}
        self._recorded_at = time.monotonic()
        self._arrived_ns = 0
        self._pid: int | None = None

    def begin(self, head: RunHead) -> None:
        """Open a run in the store, so that even a killed run is kept; earlier observations are stored with it."""
        self.has_begun, self.recording.head = True, head
        self._store_waiting(_STORE_WAIT_S)

    def observe(self, body: object) -> None:
        """Keep a record; its type determines its kind in the store."""
        if isinstance(body, WorkerStarted):
            self._pid = body.pid
            self._readings.watch(body.pid)
        observation = Observation(moment_ns(), body)
        self.recording.observations.append(observation)
        self._write_observations([observation])

    def add_steps(self, series: str, steps: Steps) -> None:
        """Add consecutive steps of a series; they are stored at least once a second."""
        now_ns = moment_ns()
        if now_ns - sum(steps.step_ns) - sum(steps.sampler_ns) - self._arrived_ns >= PAUSE_NS:
            self.flush()  # a chunk ends at a pause, so that its span is that of its steps
        self._arrived_ns = now_ns
        kept = self.recording.series.setdefault(series, Series())
        if kept.position and steps.first_position != kept.position[-1] + 1:
            self.flush()  # and it ends if positions are not consecutive
        kept.extend(steps.first_position, steps.step_ns, steps.sampler_ns)
        if time.monotonic() - self._recorded_at >= _STORE_EVERY_S:
            self.flush()
        self.keep_readings()

    def flush(self) -> None:
        self._recorded_at = time.monotonic()
        for name, series in self.recording.series.items():
            start, end = self._n_recorded.get(name, 0), len(series.step_ns)
            if start < end:
                self._n_recorded[name] = end
                step_ns, sampler_ns = series.step_ns[start:end], series.sampler_ns[start:end]
                self._write_chunk(name, series.position[start], step_ns, sampler_ns)

    def skip_readings(self) -> None:
        """Exclude the readings so far, except the last, which precedes the following events."""
        self._readings.skip()

    def keep_readings(self) -> None:
        """Store the machine readings since the last call, and the worker's peak memory if it has grown."""
        new = self._readings.take_new()
        if not new:
            return
        self.recording.readings.extend(new)
        self._write_observations([Observation(each.at_ns, each) for each in new])
        self.keep_peak()

    def end_readings(self) -> None:
        """Take the last reading, while the worker still runs, and store its peak memory."""
        self._readings.end()
        self.keep_peak()

    def keep_peak(self) -> None:
        """Store the worker's peak resident memory if it has grown."""
        if self._pid is None:
            return
        peak_bytes, known = peak_rss_bytes(self._pid), self.recording.last(WorkerPeak)
        if peak_bytes is not None and (known is None or peak_bytes > known.peak_bytes):
            self.observe(WorkerPeak(peak_bytes))

    def finish(self, run: Run) -> None:
        """Store how a run that has begun ended, and what waits."""
        if self.has_begun:
            self._waiting.append(lambda store, run_id: store.finish(run_id, run))
            self._store_waiting(BUSY_TIMEOUT_S)

    def _write_chunk(self, series: str, first: int, step_ns: array[int], sampler_ns: array[int]) -> None:
        at_ns = self._arrived_ns
        self.recording.add_span(series, (at_ns - sum(step_ns) - sum(sampler_ns), at_ns))
        self._write(
            lambda store, run_id: store.append_samples(run_id, series, first, step_ns, sampler_ns, at_ns=at_ns)
        )

    def _write_observations(self, observations: list[Observation]) -> None:
        rows = [(each.at_ns, kind_of(type(each.body)), each.body) for each in observations]
        self._write(lambda store, run_id: store.append_observations(run_id, rows))

    def _write(self, write: Callable[[Store, int], object]) -> None:
        """Store something after all that waits, but after a failure only once a second."""
        self._waiting.append(write)
        is_due = self.store_error is None or time.monotonic() - self._tried_at >= _STORE_EVERY_S
        if self.has_begun and is_due:
            self._store_waiting(_STORE_WAIT_S)

    def _store_waiting(self, wait_s: float) -> None:
        if self._store is None:
            self._waiting.clear()
            return
        self._store.wait_at_most(wait_s)
        try:
            if self.run_id is None:
                self.run_id = self._store.begin(self.recording.head)
            while self._waiting:
                self._store_first(self._store, self.run_id)
            self.store_error = self._lost
        except UnknownName:
            what = f"run {self.run_id} was deleted while it was measured"
            self.store_error = StoreError(what, "measure it again: nothing of it is stored")
            self._store = self.run_id = None
        except StoreError as error:
            self.store_error, self._tried_at = error, time.monotonic()

    def _store_first(self, store: Store, run_id: int) -> None:
        """Store what waits first, or leave it out if SQLite will never take it."""
        try:
            self._waiting[0](store, run_id)
        except StoreError as error:
            if not is_of_record(error):
                raise
            self._lost = error
        self._waiting.popleft()
