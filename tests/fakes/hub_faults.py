"""Faults between a client and the test Hub; each applies to the first requests that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends after that many bytes of the body."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Hang:
    """The body stops after that many bytes, and nothing more comes until the Hub is closed."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Corrupt:
    """One byte of the file, counted from its beginning, is another."""

    at_byte: int


@dataclass(frozen=True, slots=True)
class WrongLength:
    """The file is longer by that many bytes than the listing says, or shorter."""

    delta: int


@dataclass(frozen=True, slots=True)
class IgnoresRanges:
    """The whole file comes with a 200, whatever was asked for."""


@dataclass(frozen=True, slots=True)
class WrongRange:
    """Another range comes than was asked for: it begins that many bytes later."""

    later_bytes: int = 1


@dataclass(frozen=True, slots=True)
class TooMany:
    """A 429 that asks to wait."""

    retry_after_s: int = 0


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A 503, or another status of a server in trouble."""

    status: int = 503


@dataclass(frozen=True, slots=True)
class Gated:
    """The refusal for those who have not accepted the terms."""

    status: int = 403


@dataclass(frozen=True, slots=True)
class Says:
    """Any other answer, such as the page of a hotel's network."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Fault = Cut | Hang | Corrupt | WrongLength | IgnoresRanges | WrongRange | TooMany | Unavailable | Gated | Says
OF_THE_ANSWER = (TooMany, Unavailable, Gated, Says)
OF_THE_FILE = (Corrupt, WrongLength, IgnoresRanges, WrongRange)
