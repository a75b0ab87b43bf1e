"""What a server is asked for and what comes back, the same for every kind of server.

Times are `time.perf_counter_ns` of this machine in `at_ns`, and the server's own clock in every other field of
nanoseconds. A server's count, clock or name that is missing or impossible is None, never a guess.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ggbench.errors import GgbenchError

ServerClock = Literal["each token", "totals", "none"]
"""What a server's own clock times: each token, the prompt and the generation as wholes, or nothing."""


class OfferedModel(msgspec.Struct, frozen=True):
    """A model that a server offers. Names are a server's text: one line, without control characters."""

    name: str
    """To request it by."""
    quant: str | None = None
    """As the server names it: `Q4_K - Medium`, `Q4_K_M`, `awq`."""
    architecture: str | None = None
    n_ctx: int | None = None
    """Tokens that one request may have, prompt and generation together."""
    n_ctx_train: int | None = None
    n_params: int | None = None
    n_vocab: int | None = None
    tensor_bytes: int | None = None
    """Of all tensors."""
    file_bytes: int | None = None
    is_loaded: bool | None = None
    """None where the server does not say."""
    digest: str | None = None
    """SHA-256 of what it runs, by the server's word; hexadecimal."""


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server said of itself."""

    kind: str
    """`llama_server`, `tgi`, `lm_studio`, `vllm`, `llama_cpp_python`, `ollama` or `openai`."""
    title: str
    """For people: `llama-server`, `vLLM`, `OpenAI-compatible server`."""
    base_url: str
    """Without credentials, query and trailing slash; the same server has the same base URL."""
    models: tuple[OfferedModel, ...]
    """In the server's order, each name once."""
    clock: ServerClock
    takes_tokens: bool
    """Whether a prompt may be token ids, so that its length is exact."""
    version: str | None = None
    n_parallel: int | None = None
    """Most requests that it computes at once; None where it does not say."""


class Prompt(msgspec.Struct, frozen=True):
    """A prompt of known length: token ids, or a text for servers that take nothing else."""

    n_tokens: int
    tokens: tuple[int, ...] = ()
    """Empty where the prompt is a text."""
    text: str = ""


class Generate(msgspec.Struct, frozen=True):
    """A request for exactly `n_gen` tokens after a prompt, none of it from a cache, greedy, past any end of text."""

    model: str
    """As the server offers it."""
    prompt: Prompt
    n_gen: int


class Sent(msgspec.Struct, frozen=True):
    """The whole request is on its way: the origin of the client's clock."""

    at_ns: int
    connect_ns: int | None
    """For TCP and TLS before it; None where a connection was reused."""


class FirstByte(msgspec.Struct, frozen=True):
    """The head of the response arrived: of many servers before the prompt is read, of others after."""

    at_ns: int


class PromptProgress(msgspec.Struct, frozen=True):
    """How much of the prompt the server says it has read."""

    at_ns: int
    n_tokens: int


class Tokens(msgspec.Struct, frozen=True):
    """Generated tokens that arrived together."""

    at_ns: int
    """When the line with them was complete here."""
    n_tokens: int | None
    """How many, by the server's count or its token ids; None where the server counts only at the end."""
    decode_ns: int | None = None
    """The server's clock at the last of them, counted from the first token; None where it has none for each token.

    Tokens that one speculative step gave have the same clock, also where each comes in a chunk of its own."""
    text: str = ""
    """As generated: not yet safe for a terminal."""


class Ended(msgspec.Struct, frozen=True):
    """The server ended the generation and said so."""

    at_ns: int
    n_prompt: int | None
    """Tokens of the prompt by the server's count; None where it has none."""
    n_cached: int | None
    """Of those, taken from a cache."""
    n_gen: int | None
    """Tokens generated, by the server's count."""
    finish_reason: str
    """The server's word: `length`, `stop`; empty where it gives none."""
    prompt_ns: int | None = None
    """The server's time for the prompt, without what came from a cache."""
    decode_ns: int | None = None
    """The server's time for the generation; of which tokens is the kind's affair, see `decode_n`."""
    decode_n: int | None = None
    """Decode steps in `decode_ns`: llama-server's clock starts at the first token, so it is one less than `n_gen`."""
    load_ns: int | None = None
    """The server's time for loading the model."""
    n_drafted: int | None = None
    """Tokens that speculative decoding drafted; None where the server reports none."""
    n_accepted: int | None = None
    request_mismatches: tuple[str, ...] = ()
    """What was asked and not done, one line each: `12 of 64 tokens generated (stop)`."""


class GenerationFailed(msgspec.Struct, frozen=True):
    """The request failed; what arrived before it stands."""

    at_ns: int
    error: GgbenchError


Item = Sent | FirstByte | PromptProgress | Tokens | Ended | GenerationFailed
"""A stream is Sent, FirstByte, any PromptProgress and Tokens, and last, exactly once, Ended or Failed. One that fails
may lack any of the first."""


class NetworkTimes(msgspec.Struct, frozen=True):
    """Time of requests that compute nothing; nanoseconds by the client's clock."""

    connect_ns: int
    """To open a connection, TLS included: the least of several."""
    empty_request_ns: tuple[int, ...]
    """From request sent to first byte, over an open connection, in the order they were made."""
