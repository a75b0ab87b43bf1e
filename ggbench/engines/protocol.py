"""The worker's wire format: one JSON object a line, typed and checked at both ends.

Requests go down the worker's stdin, one at a time; only `Hold` and `Release` go down while one is carried out. Messages
come up a pipe of their own, because llama.cpp and the libraries below it may print to stdout. A request is over when
`Done` or `Refused` comes up. What the worker logs stays inside `ggbench.engines`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ggbench.engines.contract import Request, Stage
from ggbench.engines.events import Event, Place
from ggbench.engines.workloads import AnyWorkload


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Wait before the next step of a decode, or the next request, until `Release`. Not answered."""


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Continue. Not answered."""


Control = Hold | Release
"""What the worker receives while it carries out a request."""

LOG_WARN, LOG_ERROR = 3, 4
"""ggml's levels; below are debug 1 and info 2, which may quote a file's metadata."""


class Log(msgspec.Struct, frozen=True, tag="log"):
    """One line of llama.cpp's log."""

    level: int
    text: str


class Devices(msgspec.Struct, frozen=True, tag="devices"):
    """The kind of memory behind each name that ggml has for a device or a buffer type."""

    places: dict[str, Place]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The request was carried out."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The engine reported a failure; the worker is alive and takes the next request."""

    stage: Stage
    out_of_memory: bool
    message: str
    missing_bytes: int | None = None
    """What the failed allocation wanted beyond what was left; None where that is unknown."""


Message = Event | Log | Devices | Done | Refused

MAX_LINE_BYTES = 1 << 24
"""No line of either side comes near; a longer one is garbage."""

_encoder = msgspec.json.Encoder()
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Request | Control | Message) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def request_decoder(loads: Any) -> msgspec.json.Decoder[Request | Control]:  # noqa: ANN401 - a union of types
    """The decoder of a worker that takes these requests besides workloads; raises msgspec.DecodeError."""
    return msgspec.json.Decoder(loads | AnyWorkload | Control)


def decode_message(line: bytes) -> Message:
    """Raises msgspec.DecodeError on anything that is not a message of the worker."""
    return _message_decoder.decode(line)
