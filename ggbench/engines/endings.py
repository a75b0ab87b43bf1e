"""Endings of a request to an engine, as values: a crash is reported, not raised."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import ClassVar, Self, TypeVar

from ggbench.errors import GgbenchError
from ggbench.record import Record
from ggbench.text import signal_name

_E = TypeVar("_E")


class Outcome(enum.StrEnum):
    """The outcome of a run, a probe, or a request to an engine."""

    COMPLETED = "completed"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"
    """Only in stored `speed` runs: a case that would have taken too long."""

    @property
    def text(self) -> str:
        return self.value.replace("_", " ")

    def because(self, reason: str) -> str:
        """Return `failed: no such tensor`; the reason alone if it names the outcome, e.g. `out of memory in decode`."""
        if not reason:
            return self.text
        return reason if self.text in reason.partition(":")[0] else f"{self.text}: {reason}"


class Ending:
    """The ending of a request; there is exactly one, after all events."""

    __slots__ = ()
    outcome: ClassVar[Outcome]
    says: ClassVar[str] = ""
    """Template of the reason, over the ending."""

    @property
    def is_final(self) -> bool:
        """Whether the worker is gone and the next request needs another."""
        return self.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.CANCELLED)

    @property
    def reason(self) -> str:
        """One line for the user; empty if there is nothing to explain."""
        return self.says.format(self)

    @property
    def cause(self) -> GgbenchError | None:
        """The error that a front end raises for a single run; None if the reason is enough."""
        return None


class Completed(Ending, Record):
    outcome: ClassVar[Outcome] = Outcome.COMPLETED


class OutOfMemory(Ending, Record):
    """An allocation did not fit; the worker may have died of it."""

    outcome: ClassVar[Outcome] = Outcome.OUT_OF_MEMORY
    says: ClassVar[str] = "out of memory in {0.stage}: {0.message}"

    stage: str
    message: str
    alive: bool = True
    missing_bytes: int | None = None
    """Bytes that the first failed allocation lacked; None if unknown."""
    device: str = ""
    """The device that ran out of memory, if there are several, for display; empty for a single memory."""

    @property
    def is_final(self) -> bool:
        return not self.alive


class Failed(Ending, Record):
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


class Crashed(Ending, Record):
    """The worker exited by itself, or violated the protocol."""

    outcome: ClassVar[Outcome] = Outcome.CRASHED
    says: ClassVar[str] = "{0.message}"

    message: str
    returncode: int | None = None
    """The exit status, or minus the signal number; None if the worker was killed for violating the protocol."""
    log_tail: tuple[str, ...] = ()

    @classmethod
    def exited(cls, program: str, returncode: int, cause: str, log_tail: tuple[str, ...] = ()) -> Self:
        """Return the ending of a program that exited; `cause` is its log's, empty if unknown."""
        how = f"ended with exit status {returncode}"
        if returncode < 0:
            how = f"was killed by {signal_name(-returncode)}"
        return cls(f"{program} {how}: {cause}".removesuffix(": "), returncode, log_tail)


class ServerLost(Ending, Record):
    """Another machine of the computation was lost, and with it the worker."""

    outcome: ClassVar[Outcome] = Outcome.FAILED
    says: ClassVar[str] = "lost in {0.stage}: {0.message}"

    stage: str
    message: str

    @property
    def is_final(self) -> bool:
        return True


class TimedOut(Ending, Record):
    """The worker or the server sent no message for too long and was stopped."""

    outcome: ClassVar[Outcome] = Outcome.TIMED_OUT
    says: ClassVar[str] = "no output from the {0.silent} for {0.seconds:g} s"

    seconds: float
    silent: str = "worker"


class Cancelled(Ending, Record):
    outcome: ClassVar[Outcome] = Outcome.CANCELLED
    says: ClassVar[str] = "stopped before the end"


class EngineEnded(Exception):
    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def require_completed(ending: Ending) -> None:
    if not isinstance(ending, Completed):
        raise EngineEnded(ending)


def drained(items: Iterable[object]) -> tuple[list[object], Ending]:
    """Return the events of a request, and its ending."""
    *events, ending = items
    assert isinstance(ending, Ending)
    return events, ending


def only(kind: type[_E], events: Iterable[object], ending: Ending) -> _E:
    """Return the one event of that type. Raises EngineEnded."""
    require_completed(ending)
    (found,) = (event for event in events if isinstance(event, kind))
    return found
