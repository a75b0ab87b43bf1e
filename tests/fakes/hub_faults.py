"""Faults between a client and the test Hub; each applies to the first requests that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection closes after that many bytes of the body."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Hang:
    """The body stops after that many bytes, and nothing follows until the Hub is closed."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Corrupt:
    """One byte of the file, counted from its start, is flipped."""

    at_byte: int


@dataclass(frozen=True, slots=True)
class WrongLength:
    """The file is that many bytes longer than listed, or shorter."""

    delta: int


@dataclass(frozen=True, slots=True)
class IgnoresRanges:
    """Return the whole file with a 200, whatever range was requested."""


@dataclass(frozen=True, slots=True)
class WrongRange:
    """Return another range than requested: it begins that many bytes later."""

    later_bytes: int = 1


@dataclass(frozen=True, slots=True)
class TooMany:
    """A 429 with a retry delay."""

    retry_after_s: int = 0


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A 503, or another server error."""

    status: int = 503


@dataclass(frozen=True, slots=True)
class Gated:
    """The error for users who have not accepted the terms."""

    status: int = 403


@dataclass(frozen=True, slots=True)
class Says:
    """Any other response, such as a captive portal's page."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Fault = Cut | Hang | Corrupt | WrongLength | IgnoresRanges | WrongRange | TooMany | Unavailable | Gated | Says
OF_THE_ANSWER = (TooMany, Unavailable, Gated, Says)
OF_THE_FILE = (Corrupt, WrongLength, IgnoresRanges, WrongRange)
