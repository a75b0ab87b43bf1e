"""Progress of experiments: a small set of records that a front end draws without knowing the experiment.

`text` is one line for people; what else a live view of a kind draws is in the records that a `PointMeasured` carries.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ggbench.engines.events import Memory
from ggbench.errors import GgbenchError, StoreError
from ggbench.runs.run import Run
from ggbench.stats.decode_timing import DecodeLimit

Stage = Literal["download", "write", "load", "prompt", "decode", "probe", "score"]
"""Stage of a job; the first two are counted in bytes."""


class Started(msgspec.Struct, frozen=True):
    """A job begins; its file may still have to be made."""

    kind: str
    model: str
    quant: str
    index: int
    """Among the jobs of this command, from 0."""
    n_jobs: int


class Working(msgspec.Struct, frozen=True):
    """Progress of a step that takes a while."""

    stage: Stage
    done: float | None = None
    """Part of `total`: bytes of a download or of a written twin, otherwise a share; None if it cannot be counted."""
    total: float | None = None
    text: str = ""
    """Details that the stage does not give."""
    subject: object = None
    """Object for a live view, such as the question that a probe asks."""
    left_s: float | None = None
    """Seconds that it still takes, estimated; None if unknown."""

    @property
    def is_bytes(self) -> bool:
        """Whether `done` and `total` are bytes."""
        return self.stage in ("download", "write")


class ModelReady(msgspec.Struct, frozen=True):
    """Model and context are in memory."""

    memory: Memory
    run_id: int | None
    """None if nothing is stored."""
    limit: DecodeLimit | None = None
    """Limit by the memory that the weights lie in; None if unknown."""


class SamplesTimed(msgspec.Struct, frozen=True):
    """Some consecutive timed steps."""

    series: str
    first_position: int
    step_ns: tuple[int, ...]
    n_done: int
    """Timed steps so far, over all series of the run."""
    n_total: int
    text: str


class PointMeasured(msgspec.Struct, frozen=True):
    """One thing was measured or answered: a prompt, a probe."""

    text: str
    """One line for the user; empty if too small to mention."""
    observation: object
    """The record of it."""
    context: object = None
    """Object for a live view, such as the bracket that an answer leaves."""


class Finished(msgspec.Struct, frozen=True):
    """One job is done, whatever its outcome."""

    run: Run
    error: GgbenchError | None = None
    """Error that left no result; a front end that runs only this job raises it."""
    store_error: StoreError | None = None
    """Reason that the store lacks part of the run; the record has all of it."""


Progress = Started | Working | ModelReady | SamplesTimed | PointMeasured | Finished
