"""LM Studio, by its REST API v0.

Source: https://lmstudio.ai/docs/api/rest-api. Its final chunk may carry `stats` with the seconds to the first token and
of the generation. It has no way to keep a model from ending its text.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.completions import CompletionReader
from ggbench.engines.server.contract import Generate, OfferedModel, Prompt, ServerInfo
from ggbench.engines.server.numbers import positive
from ggbench.engines.server.prompts import worded
from ggbench.text import shorten

TITLE = "LM Studio"
RANK = 30
EMPTY_PATH = "/api/v0/models"


class _Model(msgspec.Struct):
    id: str
    type: str
    state: str
    arch: str = ""
    quantization: str = ""
    max_context_length: int | None = None
    loaded_context_length: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


def recognize(client: Client) -> ServerInfo | None:
    """Recognize it by `/api/v0/models`; embedding models are left out."""
    listed = client.get("/api/v0/models").read_as(_Models)
    if listed is None:
        return None
    return ServerInfo(
        kind="lm_studio",
        title=TITLE,
        base_url=client.address.base_url,
        models=tuple({each.id: _offered(each) for each in listed.data if each.type != "embeddings"}.values()),
        clock="totals",
        takes_tokens=False,
    )


def _offered(model: _Model) -> OfferedModel:
    return OfferedModel(
        name=shorten(model.id, 200),
        quant=shorten(model.quantization, 40) or None,
        architecture=shorten(model.arch, 40) or None,
        n_ctx=positive(model.loaded_context_length),
        n_ctx_train=positive(model.max_context_length),
        is_loaded=model.state == "loaded",
    )


def prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return a text of common words."""
    return worded(n_tokens, added())


def request(generate: Generate) -> Post:
    """Ask `/api/v0/completions`."""
    return Post(
        "/api/v0/completions",
        {
            "model": generate.model,
            "prompt": generate.prompt.text,
            "max_tokens": generate.n_gen,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )


def reader(generate: Generate) -> CompletionReader:
    """Return a reader of the chunks of `/api/v0/completions`."""
    return CompletionReader(generate)
