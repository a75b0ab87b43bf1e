"""How a request to the worker ended, as values: a crash is something to report, not something to raise."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from ggbench.engine.logs import tells_cause
from ggbench.records import Outcome


@dataclass(frozen=True, slots=True)
class Completed:
    """The worker did what was asked."""

    @property
    def outcome(self) -> Outcome:
        """As a row says it."""
        return Outcome.COMPLETED

    @property
    def reason(self) -> str:
        """Nothing to explain."""
        return ""


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """An allocation did not fit; the worker lives, or died of it."""

    stage: str
    """What was being done: load, context, prefill, decode."""
    message: str
    """llama.cpp's own line."""
    alive: bool = True

    @property
    def outcome(self) -> Outcome:
        """As a row says it."""
        return Outcome.OUT_OF_MEMORY

    @property
    def reason(self) -> str:
        """One line for people."""
        return f"out of memory in {self.stage}: {self.message}"


@dataclass(frozen=True, slots=True)
class Failed:
    """llama.cpp refused and the worker lives."""

    stage: str
    message: str

    @property
    def outcome(self) -> Outcome:
        """As a row says it."""
        return Outcome.FAILED

    @property
    def reason(self) -> str:
        """One line for people."""
        return f"{self.stage} failed: {self.message}"


@dataclass(frozen=True, slots=True)
class Crashed:
    """The worker ended by itself, or wrote something that is not the protocol."""

    returncode: int | None
    """As subprocess has it: negative is a signal; None when it was ended for writing garbage."""
    log_tail: tuple[str, ...]
    """The last lines of llama.cpp's log and of the worker's stderr."""
    message: str = ""

    @property
    def outcome(self) -> Outcome:
        """As a row says it."""
        return Outcome.CRASHED

    @property
    def reason(self) -> str:
        """One line for people."""
        if self.returncode is None:
            what = self.message
        elif self.returncode < 0:
            what = f"the worker was ended by {_signal_name(-self.returncode)}"
        else:
            what = f"the worker left with exit status {self.returncode}"
        cause = tells_cause(self.log_tail)
        return f"{what}: {cause}" if cause else what


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The worker said nothing for too long and was ended."""

    seconds: float

    @property
    def outcome(self) -> Outcome:
        """As a row says it."""
        return Outcome.TIMED_OUT

    @property
    def reason(self) -> str:
        """One line for people."""
        return f"no sign of life from the worker for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The person stopped it."""

    @property
    def outcome(self) -> Outcome:
        """As a row says it."""
        return Outcome.CANCELLED

    @property
    def reason(self) -> str:
        """One line for people."""
        return "stopped before its end"


Ending = Completed | OutOfMemory | Failed | Crashed | TimedOut | Cancelled


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
