"""The state of one running job: written by the queue's thread, read by the screen when it draws.

Watching a decode must not slow it down. So a batch of samples costs the writer only a copy into an array; the reader
computes everything else, only for what it draws.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.engines.events import Memory
from ggbench.experiments.maxctx.record import BracketEnds, Probe, ProofForeseen, Question
from ggbench.machine.records import MachineReading
from ggbench.runs.progress import Finished, ModelReady, PointMeasured, Progress, SamplesTimed, Working
from ggbench.runs.run import DecodeTiming, Settings
from ggbench.runs.summary import QuantSummary
from ggbench.show.figures import PlottedRun
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit
from ggbench.stats.linefit import RunningFit, fewest_samples
from ggbench.stats.speed import summarize

_RECENT_COUNTS = 8
_RECENT_READINGS = 5
_OTHER_DAY = 2.0
"""Factor by which W of another run may differ, by the load of the machine and by the quant."""
_FEW_STEPS = 32
"""Minimum number of the latest steps that show the present speed."""
_FEWEST_STEPS = 8
"""Steps before which the first, which is slow, decides the speed."""
_TEXT_TAIL = 4000
"""Maximum number of characters of decoded text to keep."""

Integers = npt.NDArray[np.int64]


class LiveNumbers(msgspec.Struct, frozen=True):
    """Numbers from the samples so far. None means unknown."""

    n_done: int
    n_for_line: int
    """Tokens needed to fit a line; 0 without tokens, and at given depths, where no line is fitted."""
    fit: LineFit | None
    latency: LatencySummary | None
    left_s: tuple[float, float] | None
    """Fewest and most seconds until the decode ends; the most is infinite if neither a line nor the memory's bandwidth
    bounds the growth of latency, unless the run is too short for it to matter. None for fewer than 8 tokens.
    """
    spent_s: float = 0.0
    """Seconds of the steps so far."""
    bandwidth_share: float | None = None
    """Share of the memory's bandwidth that the steps used, on average."""


class LiveJob:
    """One job since its start. One thread writes and one reads."""

    def __init__(
        self, item_id: int, *, is_twin: bool = False, settings: Settings | None = None, file_bytes: int | None = None
    ) -> None:
        self.item_id, self.settings, self.file_bytes = item_id, settings, file_bytes
        self.is_twin = is_twin
        """A twin has no tokenizer."""
        self.earlier_w: tuple[float, ...] = ()
        """W [tokens/ms] of earlier decodes of the model under this setup."""
        self.working: Working | None = None
        """The slow step in progress; None once the next one has started."""
        self.memory: Memory | None = None
        self.limit: DecodeLimit | None = None
        self.point = ""
        """The last measurement other than samples, in one line."""
        self.n_total = 0
        """Steps to time; 0 before the first."""
        self.text = ""
        """The last decoded characters, as returned by the model."""
        self._others: deque[float] = deque(maxlen=_RECENT_READINGS)
        self.answers: tuple[tuple[Probe, BracketEnds], ...] = ()
        """A search's probes, each with the resulting bracket."""
        self.observations: tuple[object, ...] = ()
        """Observations other than samples and probes."""
        self.question: Question | None = None
        """The n_ctx that a search is trying; None between trials."""
        self._asked_at_s = 0.0
        self._counted: list[tuple[float, float]] = []
        """The times of the counts of the work in progress, and the counts."""
        self._n_counted: int | None = None
        """Total count of the work in progress, such as chunks; None if it is not counted."""
        self._positions: Integers = np.empty(1024, np.int64)
        self._step_ns: Integers = np.empty(1024, np.int64)
        self.n_done = 0
        self._fit = RunningFit()
        self._result: DecodeTiming | None = None
        self._said: tuple[float, tuple[float, float]] | None = None
        """The seconds spent, and the estimate of those left, when that was last updated."""

    def take(self, record: Progress) -> None:
        match record:
            case SamplesTimed():
                self.n_total, self.working = record.n_total, None
                self.append(record.first_position, record.step_ns, record.text)
            case Working(subject=Question() as question):
                self._asked_at_s, self.question, self.working = time.monotonic(), question, record
            case Working():
                self._time(record)
                self.working = record
                self._n_counted = None if record.total is None or record.is_bytes else round(record.total)
            case ModelReady():
                self.memory, self.limit, self.working = record.memory, record.limit, None
            case PointMeasured(observation=Probe() as probe, context=BracketEnds() as ends):
                self.question, self.answers = None, (*self.answers, (probe, ends))
            case PointMeasured(observation=ProofForeseen()):
                pass  # the time left is drawn from `Working`, where it shrinks
            case PointMeasured():
                self.point = record.text or self.point
                self.observations = (*self.observations, record.observation)
            case Finished():
                self.question = self.working = None
                self._result = QuantSummary.of([record.run]).decode
            case _:
                pass

    def take_reading(self, reading: MachineReading) -> None:
        if reading.others_share is not None:
            self._others.append(reading.others_share)

    @property
    def others_share(self) -> float:
        """The share of all CPUs that other programs used lately; 0 if unknown, or if a GPU has the weights."""
        shares = () if self.memory is not None and self.memory.weights_on_gpu else tuple(self._others)
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def share(self) -> float | None:
        """The fraction of the work in progress, or of all steps, that is done; None if it cannot be counted."""
        working = self.working
        if working is not None and working.done is not None and working.total:
            return working.done / working.total
        return self.n_done / self.n_total if self.n_total else None

    @property
    def left_s(self) -> tuple[float, float] | None:
        """Fewest and most seconds left for the work in progress: by its own estimate, or by its pace since the start
        and its pace in the last counts; None if unknown.
        """
        working, counted = self.working, self._counted
        if working is not None and working.left_s is not None:
            return working.left_s, working.left_s
        if working is None or working.done is None or not counted:
            return None
        (end_s, done), left = counted[-1], (working.total or 0.0) - working.done
        starts = counted[0], counted[-_RECENT_COUNTS:][0]
        found = [left * (end_s - at_s) / (done - n) for at_s, n in starts if done > n]
        return (min(found), max(found)) if found else None

    def _time(self, record: Working) -> None:
        before = self.working
        if before is None or (before.stage, before.total) != (record.stage, record.total):
            self._counted = []
        if record.done is not None and record.total and not record.is_bytes:
            self._counted.append((time.monotonic(), record.done))

    @property
    def asked_s(self) -> int | None:
        """Whole seconds since the current trial began; None if there is none."""
        return None if self.question is None else int(time.monotonic() - self._asked_at_s)

    def append(self, first_position: int, step_ns: Sequence[int], text: str) -> None:
        """Add consecutive steps; arrays held by a reader do not change."""
        start, end = self.n_done, self.n_done + len(step_ns)
        if end > len(self._positions):
            room = max(end, 2 * len(self._positions))
            self._positions, self._step_ns = (
                np.concatenate([grown[:start], np.empty(room - start, np.int64)])
                for grown in (self._positions, self._step_ns)
            )
        self._positions[start:end] = np.arange(first_position, first_position + len(step_ns))
        self._step_ns[start:end] = step_ns
        self.text = (self.text + text)[-_TEXT_TAIL:]
        self.n_done = end  # last: a reader looks at this before it takes the arrays

    def plotted(self, name: str, *, behind: PlottedRun | None = None) -> PlottedRun:
        """Return what to plot, with the line through the samples so far; `name` is for the legend.

        Behind another run it is dimmed, with only the steps between the first and the last position of that.
        """
        positions, step_ns = self._samples()
        end = self._n_counted
        if decodes := self._decodes:
            end = max(start + n_gen for start, n_gen in decodes)
        elif len(positions):
            end = int(positions[0]) - 1 + self.n_total
        fit = self._line(positions, step_ns)
        if behind is not None and behind.end is not None and len(behind.positions):
            end, kept = None, (positions >= behind.positions.min()) & (positions <= behind.end)
            positions, step_ns = positions[kept], step_ns[kept]
        return PlottedRun(
            name=name,
            positions=positions,
            step_ns=step_ns,
            fit=fit,
            limit=self.limit,
            observations=self.observations,
            settings=self.settings,
            end=end,
            dimmed=behind is not None,
        )

    def numbers(self) -> LiveNumbers:
        """Compute the numbers of all samples so far; for a finished decode, the stored ones."""
        positions, step_ns = self._samples()
        n_done = len(positions)
        # W and B of given depths are those of the whole run
        has_line = self._result is not None or not getattr(self.settings, "depths", ())
        n_for_line = fewest_samples(int(positions[0])) if n_done and has_line else 0
        fit = self._line(positions, step_ns) if has_line else None
        latency = self._result.latency if self._result else summarize(positions, step_ns)
        spent_s = float(step_ns.sum()) / 1e9
        left_s = None
        if latency is not None and n_done >= min(_FEWEST_STEPS, self.n_total):
            left_s = self._settled(spent_s, self._decode_left_s(positions, step_ns, latency))
        share, limit = None, self.limit
        if n_done and limit is not None:
            kv_ms = (float(positions.mean()) - 1) / limit.w_tokens_per_ms if limit.w_tokens_per_ms else 0.0
            share = n_done * (limit.b_ms + getattr(self.settings, "n_seqs", 1) * kv_ms) / (spent_s * 1e3)
        return LiveNumbers(n_done, n_for_line, fit, latency, left_s, spent_s, share)

    def _decode_left_s(self, positions: Integers, step_ns: Integers, latency: LatencySummary) -> tuple[float, float]:
        """Return fewest and most seconds of the steps to come.

        From the mean and the median, which single slow steps do not raise, of all steps and of the latest, each in the
        middle of its positions, and the growth of latency from there on; and from the interval of the mean of all.
        """
        n_done, n_left = len(positions), max(0, self.n_total - len(positions))
        middle = float(positions[-1]) + (n_left + 1) / 2
        if n_left and (decodes := self._decodes):
            planned = [np.arange(start + 1, start + n_gen + 1) for start, n_gen in decodes]
            middle = float(np.concatenate(planned)[n_done:].mean())
        flattest, steepest = self._growth_ms(positions, step_ns)
        found: list[float] = []
        fastest_ms = float(step_ns.min()) / 1e6  # the interval of few disturbed steps may reach below
        ends_ms = [max(fastest_ms, 1e3 / end) for end in latency.tok_s_ci95 or () if end]
        for n_timed in (n_done, max(1, n_done // 4), min(n_done, max(_FEW_STEPS, n_done // 16))):
            latest = step_ns[-n_timed:] / 1e6
            levels_ms = [float(latest.mean()), float(np.median(latest)), *(ends_ms if n_timed == n_done else ())]
            distance = middle - float(positions[-n_timed:].mean())
            for growth in (flattest, steepest):
                climb_ms = distance * growth if distance else 0.0
                found += [n_left * max(0.0, each + climb_ms) / 1e3 for each in levels_ms]
        return min(found), max(found)

    @property
    def _decodes(self) -> tuple[tuple[int, int], ...]:
        """The tokens in the cache before each decode, and those that it times; empty if unknown."""
        decodes = self.settings.decodes if self.settings is not None else ()
        return decodes if sum(n_gen for _, n_gen in decodes) == self.n_total else ()

    def _growth_ms(self, positions: Integers, step_ns: Integers) -> tuple[float, float]:
        """Return the least and most ms by which a token of context lengthens a step: the interval of the line, within
        those of earlier runs or else between the limit and its least shares, the most scaled to the present speed. The
        most is infinite if nothing bounds it.
        """
        fit, limit, flattest, steepest = self._line(positions, step_ns), self.limit, 0.0, math.inf
        if limit is not None:
            n_seqs, on_gpu = getattr(self.settings, "n_seqs", 1), bool(self.memory and self.memory.weights_on_gpu)
            w, b_ms = limit.at_least_shares(on_gpu=on_gpu)
            flattest, steepest = (n_seqs / each if each else 0.0 for each in (limit.w_tokens_per_ms, w))
            usual_ms = b_ms + float(positions.mean()) * steepest
            steepest *= max(1.0, float(np.median(step_ns)) / 1e6 / usual_ms)
        if self.earlier_w:
            least, most = 1 / max(self.earlier_w) / _OTHER_DAY, _OTHER_DAY / min(self.earlier_w)
            flattest, steepest = max(flattest, least), max(flattest, most)
        if fit is not None and fit.w_ci95 is not None:
            low, high = fit.w_ci95
            least, most = 1 / high if high else 0.0, 1 / low
            both = max(flattest, least), min(steepest, most)
            flattest, steepest = both if both[0] <= both[1] else (least, most)
        is_short = math.isinf(steepest) and self.n_total <= fewest_samples(int(positions[0]))
        return flattest, flattest if is_short else steepest

    def _settled(self, spent_s: float, left_s: tuple[float, float]) -> tuple[float, float]:
        """Return the former estimate less the time since then, unless the new one is off by more than a fifth."""
        if self._said is not None:
            passed_s = spent_s - self._said[0]
            former = self._said[1][0] - passed_s, self._said[1][1] - passed_s
            if all(old == new or abs(old - new) <= new / 5 for old, new in zip(former, left_s, strict=True)):
                return former
        self._said = spent_s, left_s
        return left_s

    def _samples(self) -> tuple[Integers, Integers]:
        """Return the 1-based positions and the nanoseconds of every timed step so far."""
        n_done = self.n_done
        return self._positions[:n_done], self._step_ns[:n_done]

    def _line(self, positions: Integers, step_ns: Integers) -> LineFit | None:
        return self._result.fit if self._result else self._fit.of(positions, step_ns)
