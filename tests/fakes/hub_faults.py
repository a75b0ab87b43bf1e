"""Faults between a client and the test Hub; each applies to the first requests that match."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cut:
    after_bytes: int


@dataclass(frozen=True, slots=True)
class Hang:
    """The body stops after that many bytes, and nothing follows until the Hub is closed."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Corrupt:
    at_byte: int


@dataclass(frozen=True, slots=True)
class WrongLength:
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
    retry_after_s: int = 0


@dataclass(frozen=True, slots=True)
class Unavailable:
    status: int = 503


@dataclass(frozen=True, slots=True)
class Gated:
    status: int = 403


@dataclass(frozen=True, slots=True)
class Says:
    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Fault = Cut | Hang | Corrupt | WrongLength | IgnoresRanges | WrongRange | TooMany | Unavailable | Gated | Says
OF_THE_ANSWER = (TooMany, Unavailable, Gated, Says)
OF_THE_FILE = (Corrupt, WrongLength, IgnoresRanges, WrongRange)
