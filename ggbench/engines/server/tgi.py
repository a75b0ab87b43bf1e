"""Text Generation Inference: one token a line, and no clock of its own in the stream.

Source: huggingface/text-generation-inference, router/src/lib.rs (`Info`, `StreamResponse`), server.rs and
validation.rs, where `ignore_eos_token` is always false: it ends a text where the model does. TGI is in maintenance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.contract import Ended, Generate, OfferedModel, Prompt, ServerInfo, Tokens
from ggbench.engines.server.failures import error_text
from ggbench.engines.server.kind import (
    DONE,
    Progress,
    ServerKind,
    ServerReported,
    count,
    data_of,
    decode_as,
    positive,
    probe_text,
    request_mismatches,
    worded,
)
from ggbench.text import shorten


class _Info(msgspec.Struct):
    model_id: str
    max_total_tokens: int
    version: str
    model_dtype: str | None = None
    max_concurrent_requests: int | None = None


class _Token(msgspec.Struct):
    text: str = ""


class _Details(msgspec.Struct):
    finish_reason: str = ""
    generated_tokens: int | None = None
    input_length: int | None = None


class _Chunk(msgspec.Struct):
    token: _Token | None = None
    details: _Details | None = None
    error: object = None


def _recognize(client: Client) -> ServerInfo | None:
    """Recognize it by `/info`."""
    info = client.get("/info").read_as(_Info)
    if info is None:
        return None
    model = OfferedModel(
        name=shorten(
            info.model_id.rstrip("/").rpartition("/")[2] if info.model_id.startswith("/") else info.model_id, 200
        ),
        quant=shorten(info.model_dtype or "", 40) or None,
        n_ctx=positive(info.max_total_tokens),
        is_loaded=True,
    )
    return ServerInfo(
        kind="tgi",
        title="TGI",
        base_url=client.address.base_url,
        models=(model,),
        clock="none",
        takes_tokens=False,
        version=shorten(info.version, 60),
        n_parallel=positive(info.max_concurrent_requests),
    )


def _prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return a text of common words, counted by its tokenizer; by a generation where `/tokenize` is missing."""
    text, n_words = probe_text()
    tokens = client.post(Post("/tokenize", {"inputs": text})).read_as(list)
    return worded(n_tokens, len(tokens) - n_words if tokens else added())


def _request(generate: Generate) -> Post:
    """Ask `/generate_stream`."""
    return Post(
        "/generate_stream",
        {
            "inputs": generate.prompt.text,
            "parameters": {"max_new_tokens": generate.n_gen, "do_sample": False, "details": True},
        },
    )


class _Reader:
    def __init__(self, asked: Generate) -> None:
        self._asked = asked

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        data = data_of(line)
        if data is None or data == DONE:
            return ()
        chunk = decode_as(data, _Chunk)
        if chunk.error is not None:
            raise ServerReported(error_text({"error": chunk.error}) or "no message")
        items: list[Progress] = [Tokens(at_ns, 1, None, chunk.token.text)] if chunk.token is not None else []
        if chunk.details is not None:
            items.append(self._ended(chunk.details, at_ns))
        return items

    def finish(self, at_ns: int) -> Ended | None:
        return None

    def _ended(self, details: _Details, at_ns: int) -> Ended:
        n_prompt, n_gen = count(details.input_length), count(details.generated_tokens)
        return Ended(
            at_ns=at_ns,
            n_prompt=n_prompt,
            n_cached=None,
            n_gen=n_gen,
            finish_reason=shorten(details.finish_reason, 20),
            request_mismatches=request_mismatches(
                self._asked, n_prompt=n_prompt, n_cached=None, n_gen=n_gen, finish_reason=details.finish_reason
            ),
        )


KIND = ServerKind("/health", _recognize, _prompt, _request, _Reader)
