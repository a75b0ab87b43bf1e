"""vLLM: token ids as the prompt, a usage and the token ids in every chunk.

Source: vLLM 0.32, `entrypoints/openai/completion/protocol.py`, `entrypoints/serve/tokenize` and
`entrypoints/generate/base/serving.py`. Its own times of a request are sent where the server runs with
`--enable-per-request-metrics`, and its speculative decoding where it has any. A salt keeps its prefix cache out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from ggbench.engines.prompt import PROMPT
from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.completions import CompletionReader, listed_models
from ggbench.engines.server.contract import Generate, OfferedModel, Prompt, ServerInfo
from ggbench.engines.server.numbers import positive
from ggbench.engines.server.prompts import repeated, worded
from ggbench.text import shorten

TITLE = "vLLM"
RANK = 40
EMPTY_PATH = "/health"


class _Version(msgspec.Struct):
    version: str


class _Tokenized(msgspec.Struct):
    tokens: list[int]


def recognize(client: Client) -> ServerInfo | None:
    """Recognize it by the owner of its models and by `/version`."""
    listed = listed_models(client)
    if not listed or any(model.owned_by != "vllm" for model in listed):
        return None
    version = client.get("/version").read_as(_Version)
    if version is None:
        return None
    models = tuple(
        OfferedModel(shorten(model.id, 200), n_ctx=positive(model.max_model_len), is_loaded=True) for model in listed
    )
    return ServerInfo(
        kind="vllm",
        title=TITLE,
        base_url=client.address.base_url,
        models=models,
        clock="none",
        takes_tokens=True,
        version=shorten(version.version, 60),
    )


def prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return the ids of the text that the engine of llama.cpp reads; a text where `/tokenize` is switched off."""
    found = client.post(Post("/tokenize", {"model": model, "prompt": PROMPT})).read_as(_Tokenized)
    if found is None or not found.tokens:
        return worded(n_tokens, added())
    return repeated(found.tokens, n_tokens, index)


def request(generate: Generate) -> Post:
    """Ask `/v1/completions`."""
    return Post(
        "/v1/completions",
        {
            "model": generate.model,
            "prompt": list(generate.prompt.tokens) or generate.prompt.text,
            "max_tokens": generate.n_gen,
            "min_tokens": generate.n_gen,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "return_token_ids": True,
            "cache_salt": secrets.token_urlsafe(32),
        },
    )


def reader(generate: Generate) -> CompletionReader:
    """Return a reader of the chunks of `/v1/completions`."""
    return CompletionReader(generate)
