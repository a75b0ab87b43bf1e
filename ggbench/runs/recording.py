"""What was recorded of one run so far: samples in series, and observations. The same live and read from the store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from ggbench.machine.records import GpuUse, MachineReading
from ggbench.runs.machine_use import Span, machine_changes, summarize_gpus
from ggbench.runs.run import RunHead
from ggbench.runs.store.runs import WARMUP
from ggbench.stats.decode_timing import RequestTiming, TimedSeries, TokenChunks, TokenTimes

PAUSE_NS = 1_000_000_000
"""A gap of this length between timed steps is no part of what was timed."""

_T = TypeVar("_T")


def kind_of(observed: type) -> str:
    """`prompt_timing` for PromptTiming: what the store calls a record; renaming one needs a new store version."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", observed.__name__).lower()


@dataclass(slots=True)
class Series:
    """Steps in the order in which they were timed."""

    position: list[int] = field(default_factory=list)
    """Tokens in the KV cache of a sequence, the one being decoded included."""
    step_ns: list[int] = field(default_factory=list)
    sample_ns: list[int] = field(default_factory=list)
    """As long as `step_ns`, or empty where the sampler was not timed."""

    def extend(self, first_position: int, step_ns: Sequence[int], sample_ns: Sequence[int]) -> None:
        self.position.extend(range(first_position, first_position + len(step_ns)))
        self.step_ns.extend(step_ns)
        self.sample_ns.extend(sample_ns)


class Observation(msgspec.Struct, frozen=True):
    """One record with the moment at which it was made."""

    at_ns: int
    """Since the epoch."""
    body: object


@dataclass(slots=True)
class Recording:
    """One run as far as it came."""

    head: RunHead
    series: dict[str, Series] = field(default_factory=dict)
    """By name, such as `decode/p25/b1/r0`, in the order in which they began."""
    observations: list[Observation] = field(default_factory=list)
    chunk_spans: list[tuple[str, Span]] = field(default_factory=list)
    """When the steps of each series ran, a span for each chunk that was stored."""

    def settings(self, kind: type[_T]) -> _T:
        settings = self.head.settings
        assert isinstance(settings, kind)
        return settings

    def of(self, kind: type[_T]) -> tuple[_T, ...]:
        return tuple(each.body for each in self.observations if isinstance(each.body, kind))

    def last(self, kind: type[_T]) -> _T | None:
        return next((each.body for each in reversed(self.observations) if isinstance(each.body, kind)), None)

    @property
    def timed_series(self) -> tuple[str, ...]:
        """Names of the series that count, of single steps or of chunks, in the order in which they began."""
        names = (*self.series, *(each.series for each in self.of(TokenChunks)))
        return tuple(dict.fromkeys(name for name in names if not name.startswith(WARMUP)))

    @property
    def requests(self) -> tuple[RequestTiming, ...]:
        """Every request to a server that counts, warm-up left out."""
        return tuple(each for each in self.of(RequestTiming) if not each.series.startswith(WARMUP))

    def series_of(self, name: str) -> tuple[str, ...]:
        """Names of the series of that name, and of its single sequences."""
        names = (*self.series, *(each.series for each in self.of(TokenChunks)))
        return tuple(dict.fromkeys(each for each in names if each == name or each.startswith(f"{name}/s")))

    def timed(self, names: Iterable[str]) -> list[TimedSeries]:
        """What was timed in each of these series; of one whose tokens were not counted, only the whole."""
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
                parts.append(TimedSeries(series.position, series.step_ns, series.sample_ns, chunks.get(name, ())))
        return parts

    def token_times(self, names: Iterable[str]) -> TokenTimes:
        return TokenTimes.of(self.timed(names))

    @property
    def n_steps(self) -> int:
        """Timed steps so far, warm-up left out, those in chunks among them."""
        chunks = sum(sum(each.n_tokens) for each in self.of(TokenChunks) if not each.series.startswith(WARMUP))
        steps = (len(series.step_ns) for name, series in self.series.items() if not name.startswith(WARMUP))
        return sum(steps) + chunks

    @property
    def spans(self) -> list[Span]:
        """When timed steps ran; a pause separates two of them."""
        return _join_spans(span for name, span in self.chunk_spans if not name.startswith(WARMUP))

    @property
    def prompt_ns(self) -> dict[int, list[int]]:
        """Nanoseconds of every prompt that was read from an empty cache, by the length that was asked for."""
        by_length: dict[int, list[int]] = {}
        for each in self.of(PromptTiming):
            if not each.n_depth:
                by_length.setdefault(each.n_asked or each.n_prompt, []).append(each.elapsed_ns)
        return by_length

    @property
    def prompt_counts(self) -> dict[int, int]:
        """Tokens that a prompt had, by the length that was asked for."""
        return {each.n_asked or each.n_prompt: each.n_prompt for each in self.of(PromptTiming)}

    @property
    def machine_changes(self) -> tuple[str, ...]:
        return machine_changes(self.of(MachineReading))

    @property
    def gpu_use(self) -> GpuUse | None:
        """What the GPUs that hold buffers did while steps were timed, or prompts where no step was; None without any.

        A prompt is recorded when it has just been read.
        """
        in_use, worker = self.last(GpusInUse), self.last(WorkerStarted)
        if in_use is None:
            return None
        prompts = [
            (each.at_ns - each.body.elapsed_ns, each.at_ns)
            for each in self.observations
            if isinstance(each.body, PromptTiming)
        ]
        spans, pid = self.spans or _join_spans(prompts), worker.pid if worker else None
        return summarize_gpus(self.of(MachineReading), in_use.indices, spans, self.n_steps, pid)


def _join_spans(spans: Iterable[Span]) -> list[Span]:
    """Spans in the order of time, those joined that follow each other closely."""
    joined: list[Span] = []
    for begin, end in spans:
        if joined and begin - joined[-1][1] < PAUSE_NS:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


class WorkerStarted(msgspec.Struct, frozen=True):
    """The engine's process, to find it among those that hold a GPU's memory."""

    pid: int


class WorkerPeak(msgspec.Struct, frozen=True):
    """The most memory that the engine's process has had resident so far."""

    peak_bytes: int


class GpusInUse(msgspec.Struct, frozen=True):
    """The GPUs that hold any of the model's buffers."""

    indices: tuple[int, ...]
    """NVML's."""


class ModelDescribed(msgspec.Struct, frozen=True):
    """The engine's own words for what it loaded: llama.cpp's `llama 256M Q4_1`."""

    text: str


class PromptTiming(msgspec.Struct, frozen=True):
    """How long one prompt took to read."""

    n_prompt: int
    """Tokens of each sequence."""
    elapsed_ns: int
    n_seqs: int = 1
    sample_ns: int | None = None
    """Of sampling one first token from its logits; None where it was not timed."""
    n_depth: int = 0
    """Tokens in the cache before; 0 of every prompt that ggbench measures."""
    n_asked: int | None = None
    """Tokens that were asked for, where a server counts other than `n_prompt`; else None."""
