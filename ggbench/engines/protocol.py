"""The worker's wire format: one JSON object a line, typed and checked at both ends.

Requests go down the worker's stdin, one at a time; only `Hold` and `Release` go down while one is carried out. Messages
come up a pipe of their own, because llama.cpp and the libraries below it may print to stdout. A request is over when
`Done` or `Refused` comes up. What the worker logs stays inside `ggbench.engines`.
"""

from __future__ import annotations

import importlib
from typing import ClassVar

import msgspec

from ggbench.engines.contract import Stage, Workload
from ggbench.engines.events import Event
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.memory import Place
from ggbench.engines.transformers.config import TransformersConfig


class LoadModel(msgspec.Struct, frozen=True, tag="load_model"):
    """Load a GGUF; replaces the model that is loaded. Answered by `Loaded`."""

    stage: ClassVar[Stage] = "load"

    path: str
    setup: LlamaConfig
    """Its memory limit is for model and contexts together, beyond what the worker holds before the load; on each GPU in
    use, if any is."""
    reserve_bytes: int = 0
    """Of each GPU in use, to leave free."""
    dry: bool = False
    """Read the header alone and allocate nothing; contexts only report what they would take. The file may be sparse."""
    n_threads: int = 0
    """With a memory limit: CPU threads that contexts will compute with, to be started before it holds."""


class MakeContext(msgspec.Struct, frozen=True, tag="make_context"):
    """Make a context; replaces the one that is there. Answered by `Opened`."""

    stage: ClassVar[Stage] = "context"

    setup: LlamaConfig
    """With `n_ctx` and `threads` given."""


class LoadCheckpoint(msgspec.Struct, frozen=True, tag="load_checkpoint"):
    """Load a checkpoint of Transformers; replaces the model that is loaded. Answered by `Allocated` and `Loaded`."""

    stage: ClassVar[Stage] = "load"

    folder: str
    """With a config.json; where it has no safetensors, weights of its shape are made."""
    setup: TransformersConfig
    """Its memory limit is for model and caches together, beyond what the worker holds before the load."""


class MakeCache(msgspec.Struct, frozen=True, tag="make_cache"):
    """Replace the cache; a static one is allocated. Answered by `Allocated` and `Opened`."""

    stage: ClassVar[Stage] = "context"

    setup: TransformersConfig
    """With `n_ctx` given."""


class RunWorkload(msgspec.Struct, frozen=True, tag="run_workload"):
    """Carry out a workload of `ggbench.engines.workloads`. Answered by the events that it names."""

    name: str
    request: msgspec.Raw


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Wait before the next step of a decode, or the next request, until `Release`. Not answered."""


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Continue. Not answered."""


Request = LoadModel | MakeContext | LoadCheckpoint | MakeCache | Workload
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
_Line = LoadModel | MakeContext | LoadCheckpoint | MakeCache | RunWorkload | Control
_request_decoder: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Request | Control | Message) -> bytes:
    """One line, newline included."""
    if isinstance(message, Workload):
        return _encoder.encode(RunWorkload(message.name, msgspec.Raw(_encoder.encode(message)))) + b"\n"
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request | Control:
    """Raises msgspec.DecodeError on anything that is neither a request nor a control."""
    request = _request_decoder.decode(line)
    if not isinstance(request, RunWorkload):
        return request
    try:
        module = importlib.import_module(f"ggbench.engines.workloads.{request.name}")
    except ModuleNotFoundError as error:
        raise msgspec.DecodeError(f"there is no workload {request.name!r}") from error
    workload: Workload = msgspec.json.decode(request.request, type=module.REQUEST)
    return workload


def decode_message(line: bytes) -> Message:
    """Raises msgspec.DecodeError on anything that is not a message of the worker."""
    return _message_decoder.decode(line)
