"""Numbers of a server, which may be missing, negative or absurd."""

from __future__ import annotations

MOST_TOKENS = (1 << 31) - 1
_MOST_NS = 1 << 62


def count(value: float | None) -> int | None:
    """Return a number of tokens or bytes; None where it is missing, negative, broken or above 2^62."""
    if value is None or not 0 <= value < _MOST_NS or value != int(value):
        return None
    return int(value)


def positive(value: float | None) -> int | None:
    """Return a size that cannot be 0; None where it is missing or impossible."""
    return count(value) or None


def nanoseconds(value: float | None, unit_ns: float) -> int | None:
    """Return a time in nanoseconds from one in a unit of `unit_ns`; None where it is missing or impossible."""
    if value is None or not 0 <= value * unit_ns < _MOST_NS:
        return None
    return round(value * unit_ns)
