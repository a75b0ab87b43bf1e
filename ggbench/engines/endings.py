"""How a request to an engine ended, as values: a crash is something to report, not something to raise."""

from __future__ import annotations

import enum
import signal
from typing import ClassVar

import msgspec

from ggbench.engines.llama.logs import crash_cause
from ggbench.errors import GgbenchError


class Outcome(enum.StrEnum):
    """The end of a run, of a probe, or of a request to an engine."""

    COMPLETED = "completed"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"

    @property
    def text(self) -> str:
        return self.value.replace("_", " ")

    def because(self, reason: str) -> str:
        """Return `failed: no such tensor`; the reason alone if it names the outcome, e.g. `out of memory in decode`."""
        if not reason:
            return self.text
        return reason if self.text in reason.partition(":")[0] else f"{self.text}: {reason}"


class Ending:
    """The end of a request; exactly one comes, after all events."""

    __slots__ = ()
    outcome: ClassVar[Outcome]

    @property
    def is_final(self) -> bool:
        """Whether the worker is gone and the next request needs another."""
        return self.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.CANCELLED)

    @property
    def reason(self) -> str:
        """One line for people; empty if there is nothing to explain."""
        return ""

    @property
    def cause(self) -> GgbenchError | None:
        """The error that a front end raises if it runs only this; None if the reason says it all."""
        return None


class Completed(Ending, msgspec.Struct, frozen=True):
    outcome: ClassVar[Outcome] = Outcome.COMPLETED


class OutOfMemory(Ending, msgspec.Struct, frozen=True):
    """An allocation did not fit; the worker is alive, or died of it."""

    outcome: ClassVar[Outcome] = Outcome.OUT_OF_MEMORY

    stage: str
    message: str
    alive: bool = True
    missing_bytes: int | None = None
    """Bytes that the first failed allocation lacked; None if that is unknown."""
    device: str = ""
    """Which of several machines' devices ran out, for people; empty if there is one memory."""

    @property
    def is_final(self) -> bool:
        return not self.alive

    @property
    def reason(self) -> str:
        return f"out of memory in {self.stage}: {self.message}"


class Failed(Ending, msgspec.Struct, frozen=True):
    """The engine refused, and is alive."""

    outcome: ClassVar[Outcome] = Outcome.FAILED

    stage: str
    message: str
    error: GgbenchError | None = None

    @property
    def reason(self) -> str:
        return f"{self.stage} failed: {self.message}" if self.error is None else self.message

    @property
    def cause(self) -> GgbenchError | None:
        return self.error


class Crashed(Ending, msgspec.Struct, frozen=True):
    """The worker ended by itself, or wrote something that is not the protocol."""

    outcome: ClassVar[Outcome] = Outcome.CRASHED

    returncode: int | None
    """The exit status, or minus the number of a signal; None if the worker was ended for writing garbage."""
    log_tail: tuple[str, ...]
    message: str = ""
    hint: str = ""
    """Known cause of such a crash; empty if unknown."""
    program: str = "llama.cpp"

    @property
    def reason(self) -> str:
        if self.returncode is None:
            what = self.message
        elif self.returncode < 0:
            number = -self.returncode
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            what = f"{self.program} was ended by {name}"
        else:
            what = f"{self.program} ended with exit status {self.returncode}"
        cause = crash_cause(self.log_tail)
        text = f"{what}: {cause}" if cause else what
        return f"{text} ({self.hint})" if self.hint else text


class ServerLost(Ending, msgspec.Struct, frozen=True):
    """A machine that computed with this one is gone, and the worker with it."""

    outcome: ClassVar[Outcome] = Outcome.FAILED

    stage: str
    message: str

    @property
    def is_final(self) -> bool:
        return True

    @property
    def reason(self) -> str:
        return f"lost in {self.stage}: {self.message}"


class TimedOut(Ending, msgspec.Struct, frozen=True):
    """The worker, or a server, reported nothing for too long and was ended."""

    outcome: ClassVar[Outcome] = Outcome.TIMED_OUT

    seconds: float
    silent: str = "worker"

    @property
    def reason(self) -> str:
        return f"no output from the {self.silent} for {self.seconds:g} s"


class Cancelled(Ending, msgspec.Struct, frozen=True):
    outcome: ClassVar[Outcome] = Outcome.CANCELLED

    @property
    def reason(self) -> str:
        return "stopped before the end"


class EngineEnded(Exception):
    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def require_completed(ending: Ending) -> None:
    if not isinstance(ending, Completed):
        raise EngineEnded(ending)
