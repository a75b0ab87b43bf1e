"""Moments that stay in order when the clock is set, and the time for which the machine was suspended."""

from __future__ import annotations

import sys
import time

_MOST_BETWEEN_NS = 10_000_000
"""Between two readings of one clock, else another is not of the same moment."""

if sys.platform == "linux":

    def elapsed_ns() -> int:
        """Return nanoseconds since some moment, those among them for which the machine was suspended."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def awake_ns() -> int:
        """Return nanoseconds since the same moment without those for which the machine was suspended."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

else:

    def elapsed_ns() -> int:
        """Return nanoseconds since some moment, those among them for which the machine was suspended."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def awake_ns() -> int:
        """Return nanoseconds since the same moment without those for which the machine was suspended."""
        return time.clock_gettime_ns(time.CLOCK_UPTIME_RAW)


_EPOCH_NS = time.time_ns() - elapsed_ns()
"""When `elapsed_ns` began, by the wall clock as this process began."""


def moment_ns() -> int:
    """Return nanoseconds since the epoch, by the wall clock as it was when this process began.

    The difference of two moments is the time between them, also where the clock was set meanwhile.
    """
    return _EPOCH_NS + elapsed_ns()


def suspended_ns() -> int:
    """Return for how long the machine was suspended so far; only differences mean anything."""
    while True:
        before, elapsed, after = awake_ns(), elapsed_ns(), awake_ns()
        if after - before <= _MOST_BETWEEN_NS:
            return elapsed - before
