"""How a run ended."""

from __future__ import annotations

import enum


class Outcome(enum.StrEnum):
    """The end of a run, of a probe, or of a request to an engine."""

    COMPLETED = "completed"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    """The engine refused and is still alive; the reason is its own."""
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """ggbench itself was killed; what had been stored is kept."""
    SKIPPED = "skipped"
    """A part of a run that was left out, since it would have taken too long."""

    @property
    def text(self) -> str:
        """`out of memory` for `out_of_memory`."""
        return self.value.replace("_", " ")

    def because(self, reason: str) -> str:
        """`failed: no such tensor`; the reason alone where it begins with the outcome, as `out of memory in decode`."""
        if not reason:
            return self.text
        return reason if self.text in reason.partition(":")[0] else f"{self.text}: {reason}"
