"""What the worker is asked and what it answers: one JSON object a line, typed and checked at both ends.

Requests go down the worker's stdin, one at a time; only `Hold` and `Release` go down while one is carried out. Events
come up a pipe of their own, because llama.cpp and the libraries below it may print to stdout. A request is over when
`Done` or `Refused` comes up.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Phase = Literal["warmup", "decode"]
Stage = Literal["start", "load", "context", "prefill", "decode"]
Fill = Literal["copied", "decoded", "none"]
"""How the cells before the far end were filled: copies of a few decoded ones, a real prompt, or there are none."""


class LoadModel(msgspec.Struct, frozen=True, tag="load_model"):
    """Load a GGUF; replaces the model that is loaded. Answered by `ModelLoaded`."""

    path: str
    n_gpu_layers: int = -1
    main_gpu: int | None = None
    """The one GPU to use; None spreads the model over all of them."""
    tensor_split: tuple[float, ...] = ()
    memory_limit_bytes: int | None = None
    """For model and contexts together, beyond what the worker holds before the load; on each GPU in use, if any is."""
    reserve_bytes: int = 0
    """Of each GPU in use, to leave alone."""
    dry: bool = False
    """Read the header alone and allocate nothing; contexts only tell what they would take. The file may be sparse."""


class MakeContext(msgspec.Struct, frozen=True, tag="make_context"):
    """Make a context; replaces the one that is there. Answered by `ContextMade`."""

    n_ctx: int
    n_batch: int
    n_ubatch: int
    type_k: str
    type_v: str
    flash_attn: Literal["auto", "on", "off"]
    threads: int


class Prefill(msgspec.Struct, frozen=True, tag="prefill"):
    """Time prompts from an empty cache, `warmup` of them unrecorded first. Answered by `Prefilled`, one each."""

    n_prompt: int
    repeat: int = 1
    warmup: int = 0


class Decode(msgspec.Struct, frozen=True, tag="decode"):
    """Clear the cache, prefill, then time `n_gen` tokens. Answered by `Prefilled` and any number of `Decoded`."""

    n_prompt: int
    n_gen: int
    phase: Phase = "decode"


class ProveContext(msgspec.Struct, frozen=True, tag="prove_context"):
    """Decode a full n_ubatch and one more token at the far end of the context. Uses the context up.

    Answered by any number of `Filling` and one `ContextProven`.
    """


Request = LoadModel | MakeContext | Prefill | Decode | ProveContext


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Wait before the next step of a decode, or the next request, until `Release`. Not answered."""


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Go on. Not answered."""


Control = Hold | Release
"""What the worker hears while it carries out a request."""


STAGES: dict[type[Request], Stage] = {
    LoadModel: "load",
    MakeContext: "context",
    Prefill: "prefill",
    Decode: "decode",
    ProveContext: "decode",
}
"""What a failure of each request is a failure of."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker runs and has llama.cpp in it."""

    pid: int
    llama_cpp_python: str
    llama_cpp: str
    system_info: str


LOG_WARN, LOG_ERROR = 3, 4
"""ggml's levels; below are debug 1 and info 2, which may quote a file's metadata."""


class Log(msgspec.Struct, frozen=True, tag="log"):
    """One line of llama.cpp's log."""

    level: int
    text: str


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """Share of the model that is loaded, 0 to 1."""

    progress: float


class ModelLoaded(msgspec.Struct, frozen=True, tag="model_loaded"):
    """The model is in memory."""

    seconds: float
    n_params: int
    size_bytes: int
    n_ctx_train: int
    n_vocab: int
    left_bytes: int | None = None
    """Of what may be taken: of the memory limit, or of the GPUs in use, each taken for the one with the least; None
    where nothing is limited."""


class ContextMade(msgspec.Struct, frozen=True, tag="context_made"):
    """A context is there; sizes as llama.cpp rounded them."""

    seconds: float
    n_ctx: int
    n_batch: int
    n_ubatch: int
    left_bytes: int | None = None
    """As `ModelLoaded.left_bytes`."""


class Filling(msgspec.Struct, frozen=True, tag="filling"):
    """Share of the context that is filled before its far end, 0 to 1."""

    progress: float


class ContextProven(msgspec.Struct, frozen=True, tag="context_proven"):
    """The far end of the context was computed with."""

    seconds: float
    n_batch_tokens: int
    """Decoded at once: n_ubatch, or what the context has room for."""
    batch_ns: int
    token_ns: int
    """The single token, at the last position."""
    fill: Fill
    full: bool
    """Whether llama.cpp had no cell left for one token more; always true for a state that does not grow."""
    left_bytes: int | None = None
    """As `ModelLoaded.left_bytes`, with all that the decodes took."""


class Prefilled(msgspec.Struct, frozen=True, tag="prefilled"):
    """One prompt was read from an empty cache."""

    n_prompt: int
    prefill_ns: int


class Decoded(msgspec.Struct, frozen=True, tag="decoded"):
    """Some consecutive decode steps."""

    phase: Phase
    first_position: int
    """Tokens in the KV cache at the first of these steps, the one being decoded included."""
    step_ns: list[int]
    """llama_decode and llama_synchronize, each step."""
    sample_ns: list[int]
    """The sampler, each step."""
    text: str = ""
    """The tokens as text; empty for a model without a tokenizer."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The request was carried out."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """llama.cpp would not; the worker lives and takes the next request."""

    stage: Stage
    out_of_memory: bool
    message: str


Event = (
    Ready | Log | Loading | ModelLoaded | ContextMade | Filling | ContextProven | Prefilled | Decoded | Done | Refused
)

MAX_LINE_BYTES = 1 << 24
"""No line of either side comes near; a longer one is garbage."""

_encoder = msgspec.json.Encoder()
_request_decoder: msgspec.json.Decoder[Request | Control] = msgspec.json.Decoder(Request | Control)
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(message: Request | Control | Event) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request | Control:
    """Raises msgspec.DecodeError on anything that is neither a request nor a control."""
    return _request_decoder.decode(line)


def decode_event(line: bytes) -> Event:
    """Raises msgspec.DecodeError on anything that is not an event."""
    return _event_decoder.decode(line)
