"""The state of one running job: written by the queue's thread, read by the screen when it draws.

Watching a decode must not slow it down. So a batch of samples costs the writer only a copy into an array; the reader
computes everything else, only for what it draws.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ggbench.machine.records import MachineReading
from ggbench.runs.progress import Finished, ModelReady, Pace, PointMeasured, Progress, SamplesTimed, Working
from ggbench.runs.run import DecodeTiming, Settings
from ggbench.show.charts import PlottedRun
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, LatencySummary, LineFit
from ggbench.stats.linefit import fit_line
from ggbench.stats.speed import summarize

Integers = npt.NDArray[np.int64]


class LiveJob:
    """One job since its start. One thread writes and one reads."""

    def __init__(self, item_id: int, *, settings: Settings | None = None) -> None:
        self.item_id, self.settings = item_id, settings
        self._decodes = () if settings is None else settings.decodes
        self.working: Working | None = None
        """The slow step in progress; None once the next one has started."""
        self.pace = Pace()
        """Progress of the slow step, or else of the steps to time."""
        self.limit: DecodeLimit | None = None
        self.reading: MachineReading | None = None
        """The machine's latest."""
        self.points: tuple[str, ...] = ()
        """What was measured other than samples, a line each; untrusted text."""
        self.doing = ""
        """The step in progress in one line; empty if its stage says all, and between two steps."""
        self.began_s = 0.0
        """Clock at which that began."""
        self.n_total = 0
        """Steps to decode; 0 before the first, and at the end."""
        self.observations: tuple[object, ...] = ()
        """Observations other than samples."""
        self._n_counted: int | None = None
        """Total count of the work in progress, such as chunks; None if it is not counted."""
        self._positions, self._step_ns = array("q"), array("q")
        self.n_done = 0
        self._result: DecodeTiming | None = None

    def take(self, record: Progress) -> None:
        match record:
            case SamplesTimed():
                self.n_total, self.working = record.n_total, None
                self.pace.update(record.n_done, record.n_total)
                self.append(record.first_position, record.step_ns)
            case Working():
                self._work(record)
            case ModelReady():
                self.limit, self.working, self.pace = record.limit, None, Pace()
            case PointMeasured():
                self.doing = ""
                if record.text and not self._decodes:  # of a decode, prompts
                    self.points = (*self.points, record.text)
                self.observations = (*self.observations, record.observation)
            case Finished():
                self.working, self.doing, self.pace = None, "", Pace()
                self.n_total, self._n_counted = 0, None
                self._result = record.run.decode

    def _work(self, record: Working) -> None:
        if record.text and not record.is_bytes and record.text != self.doing:
            self.doing, self.began_s = record.text, time.monotonic()
        if record.stage == "prompt" and self._decodes:
            return  # the steps are what is counted
        self.working = record
        self._n_counted = None if record.total is None or record.is_bytes else round(record.total)
        if record.done is not None and record.total:
            self.pace.update(record.done, record.total)
        else:
            self.pace = Pace()

    @property
    def share(self) -> float | None:
        """The fraction of the work in progress, or of all steps, that is done; None if it cannot be counted."""
        working = self.working
        if working is not None and working.done is not None and working.total:
            return working.done / working.total
        return self.n_done / self.n_total if self.n_total else None

    def append(self, first_position: int, step_ns: Sequence[int]) -> None:
        """Add consecutive steps; arrays held by a reader do not change."""
        self._positions.extend(range(first_position, first_position + len(step_ns)))
        self._step_ns.extend(step_ns)
        self.n_done += len(step_ns)  # last: a reader looks at this before it takes the arrays

    def plotted(self, name: str, *, behind: PlottedRun | None = None) -> PlottedRun:
        """Return what to plot, with the line through the samples so far; `name` is for the legend.

        Behind another run it is dimmed, with only the steps between the first and the last position of that.
        """
        positions, step_ns = self._samples()
        fit, end = self._line(positions, step_ns), self._last_position
        if behind is not None and len(behind.positions):
            last = max(behind.end or 0, behind.positions.max())
            end, kept = None, (positions >= behind.positions.min()) & (positions <= last)
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

    @property
    def _last_position(self) -> int | None:
        """The last x of a figure of the whole job; None if unknown or at the end."""
        if not self.n_done or not self.n_total:
            return self._n_counted
        if self._decodes:
            return max(start + n_gen for start, n_gen in self._decodes)
        return self._positions[0] - 1 + self.n_total

    def numbers(self) -> tuple[LineFit | None, LatencySummary | None]:
        """Compute the fit and the latency of all samples so far; for a finished decode, return the stored ones."""
        if self._result is not None:
            return self._result.fit, self._result.latency
        positions, step_ns = self._samples()
        # W and B of given depths are those of the whole run
        fit = None if getattr(self.settings, "depths", ()) else self._line(positions, step_ns)
        return fit, summarize(positions, step_ns)

    def _samples(self) -> tuple[Integers, Integers]:
        """Return the 1-based positions and the nanoseconds of every timed step so far."""
        n_done = self.n_done
        positions, step_ns = (np.asarray(each[:n_done]) for each in (self._positions, self._step_ns))
        return positions, step_ns

    def _line(self, positions: Integers, step_ns: Integers) -> LineFit | None:
        if self._result is not None:
            return self._result.fit
        again = [each for each in self.observations if isinstance(each, DecodeWindow)]
        breaks = () if self.limit is None else self.limit.breaks
        return fit_line(positions, step_ns, again, breaks=[each.n for each in breaks])
