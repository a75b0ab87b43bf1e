"""What is known of one job so far: written by the queue's thread, read by the screen whenever it draws.

A decode that is watched has to run as fast as one that is not. So a batch of samples costs the writer a copy into an
array, and everything that is computed from them is computed by the reader, for what it draws and no more often.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.engines.events import Memory
from ggbench.experiments.maxctx.record import BracketEnds, Probe, ProofForeseen, Question
from ggbench.runs.progress import Finished, ModelReady, PointMeasured, Progress, SamplesTimed, Working
from ggbench.runs.run import DecodeTiming, Settings
from ggbench.runs.summary import QuantSummary
from ggbench.show.figures import PlottedRun
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit
from ggbench.stats.linefit import RunningFit, fewest_samples
from ggbench.stats.speed import summarize

_TEXT_TAIL = 4000
"""Characters of decoded text that are kept."""

Integers = npt.NDArray[np.int64]


class LiveNumbers(msgspec.Struct, frozen=True):
    """What the samples so far show. None is unknown."""

    n_done: int
    n_total: int
    n_for_line: int
    """Tokens that define a line."""
    fit: LineFit | None
    """Of the samples so far, as a table would show it; None while they are too few for a line."""
    latency: LatencySummary | None
    eta_s: float | None
    """Of the decode; None while it is unknown how latency climbs."""


class ProbeAnswer(msgspec.Struct, frozen=True):
    """A probe, and the bracket that it leaves."""

    probe: Probe
    ends: BracketEnds


class LiveJob:
    """One job from its start on. One thread writes and one reads."""

    def __init__(self, item_id: int, *, is_twin: bool = False, settings: Settings | None = None) -> None:
        self.item_id, self.settings = item_id, settings
        self.is_twin = is_twin
        """A twin has no tokenizer."""
        self.working: Working | None = None
        """What takes a while at the moment; None once what follows it has begun."""
        self.memory: Memory | None = None
        """Of the last context that was made."""
        self.limit: DecodeLimit | None = None
        self.point = ""
        """The last thing that was measured beside the samples, in one line."""
        self.n_total = 0
        """Steps to time; 0 before the first."""
        self.text = ""
        """The last characters that were decoded, as the model gave them."""
        self.answers: tuple[ProbeAnswer, ...] = ()
        """Of a search, in the order in which they came."""
        self.observations: tuple[object, ...] = ()
        """What was observed beside the samples and the answers of a search."""
        self.question: Question | None = None
        """What a search is trying; None while nothing is."""
        self._doing: object = None
        """What the last work was at that said so."""
        self._asked_at_s = self._counted_at_s = 0.0
        self._counted_from: tuple[float, float] | None = None
        """When the work in progress began to be counted, and from which count on; None where it is not counted."""
        self._n_counted: int | None = None
        """Chunks and the like that the work in progress will come to; None where it is not counted."""
        self._positions: Integers = np.empty(1024, np.int64)
        self._step_ns: Integers = np.empty(1024, np.int64)
        self._n_done = 0
        self._fit = RunningFit()
        self._result: DecodeTiming | None = None

    def take(self, record: Progress) -> None:
        """Take in what the job reports."""
        match record:
            case SamplesTimed():
                self.n_total, self.working = record.n_total, None
                self.append(record.first_position, record.step_ns, record.text)
            case Working(subject=Question() as question):
                self._asked_at_s, self.question, self.working = time.monotonic(), question, record
            case Working():
                self._time(record)
                self._doing = record.subject or self._doing
                self.working = record
                self._n_counted = None if record.total is None or record.is_bytes else round(record.total)
            case ModelReady():
                self.memory, self.limit, self.working = record.memory, record.limit, None
            case PointMeasured(observation=Probe() as probe, context=BracketEnds() as ends):
                self.question, self.answers = None, (*self.answers, ProbeAnswer(probe, ends))
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

    @property
    def share(self) -> float | None:
        """How far what takes a while has come, 0 to 1; None where it cannot be counted."""
        working = self.working
        if working is None or working.done is None or not working.total:
            return None
        return working.done / working.total

    @property
    def left_s(self) -> float | None:
        """Seconds that what takes a while still takes, by its own estimate or by its pace; None where unknown."""
        working = self.working
        if working is None or working.left_s is not None or working.done is None or self._counted_from is None:
            return None if working is None else working.left_s
        began_s, n_before = self._counted_from
        pace = (working.done - n_before) / max(self._counted_at_s - began_s, 1e-9)
        return ((working.total or 0.0) - working.done) / pace if pace > 0 else None

    def _time(self, record: Working) -> None:
        before = self.working
        self._counted_at_s = time.monotonic()
        is_same = before is not None and (before.stage, before.total) == (record.stage, record.total)
        if record.done is None or record.is_bytes or (record.total or 0) <= 1:
            self._counted_from = None
        elif not is_same or self._counted_from is None:
            self._counted_from = self._counted_at_s, record.done

    @property
    def asked_s(self) -> int | None:
        """Whole seconds since the open question was asked; None while none is open."""
        return None if self.question is None else int(time.monotonic() - self._asked_at_s)

    @property
    def n_done(self) -> int:
        """Timed steps so far."""
        return self._n_done

    def append(self, first_position: int, step_ns: Sequence[int], text: str) -> None:
        """Take in consecutive steps; the arrays that a reader holds stay as they are."""
        start, end = self._n_done, self._n_done + len(step_ns)
        if end > len(self._positions):
            room = max(end, 2 * len(self._positions))
            self._positions, self._step_ns = (
                np.concatenate([grown[:start], np.empty(room - start, np.int64)])
                for grown in (self._positions, self._step_ns)
            )
        self._positions[start:end] = np.arange(first_position, first_position + len(step_ns))
        self._step_ns[start:end] = step_ns
        self.text = (self.text + text)[-_TEXT_TAIL:]
        self._n_done = end  # last: a reader looks at this before it takes the arrays

    @property
    def positions(self) -> Integers:
        """1-based, of every timed step so far."""
        n_done = self._n_done
        return self._positions[:n_done]

    @property
    def step_ns(self) -> Integers:
        """Nanoseconds of every timed step so far; may be ahead of `positions` by a batch, where they are read apart."""
        n_done = self._n_done
        return self._step_ns[:n_done]

    @property
    def n_end(self) -> int:
        """The last position there will be, where each repetition starts from the same."""
        return int(self._positions[0]) - 1 + self.n_total if self._n_done else self.n_total

    def plotted(self, name: str, *, dimmed: bool = False) -> PlottedRun:
        """For the plot, with the line through the samples so far; `name` is for the legend."""
        positions = self.positions
        return PlottedRun(
            name=name,
            positions=positions,
            step_ns=self.step_ns[: len(positions)],
            fit=self._line(),
            limit=self.limit,
            observations=self.observations,
            settings=self.settings,
            doing=self._doing,
            end=self.n_end if self._n_done else self._n_counted,
            dimmed=dimmed,
        )

    def numbers(self) -> LiveNumbers:
        """Computed from all samples so far; of a decode that ended, those that it is stored with."""
        positions, result = self.positions, self._result
        n_done = len(positions)
        n_for_line = fewest_samples(int(positions[0])) if n_done else 0
        fit = self._line()
        latency = result.latency if result else summarize(positions, self.step_ns[:n_done])
        eta_s = None
        if latency is not None and (fit is not None or self.n_total <= n_for_line):
            eta_s = self._eta_s(n_done, latency, fit)
        return LiveNumbers(n_done, self.n_total, n_for_line, fit, latency, eta_s)

    def _line(self) -> LineFit | None:
        positions = self.positions
        return self._result.fit if self._result else self._fit.of(positions, self.step_ns[: len(positions)])

    def _eta_s(self, n_done: int, latency: LatencySummary, fit: LineFit | None) -> float:
        """What is left at the mean latency so far, and longer where latency climbs."""
        n_left = max(0, self.n_total - n_done)
        w_tokens_per_ms = fit.w_tokens_per_ms if fit else None
        # From the middle of what was timed to the middle of what is left lie half of all tokens.
        climb_s = (n_done + n_left) / 2 / w_tokens_per_ms / 1e3 if w_tokens_per_ms else 0.0
        return n_left * (1 / latency.tok_s + climb_s)
