"""Any other server with OpenAI's `/v1/models` and `/v1/completions`.

Only the prompt's length by the server's own count, its usage at the end and the times of arrival are to be had; what it
does not know of the request (`ignore_eos`) it ignores, and the count says so.
"""

from __future__ import annotations

from collections.abc import Callable

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.completions import CompletionReader, listed_models
from ggbench.engines.server.contract import Generate, OfferedModel, Prompt, ServerInfo
from ggbench.engines.server.numbers import positive
from ggbench.engines.server.prompts import worded
from ggbench.text import shorten

TITLE = "OpenAI-compatible server"
RANK = 100
EMPTY_PATH = "/v1/models"


def recognize(client: Client) -> ServerInfo | None:
    """Recognize it by a list of models that is not empty."""
    listed = listed_models(client)
    if not listed:
        return None
    return ServerInfo(
        kind="openai",
        title=TITLE,
        base_url=client.address.base_url,
        models=tuple(OfferedModel(shorten(each.id, 200), n_ctx=positive(each.max_model_len)) for each in listed),
        clock="none",
        takes_tokens=False,
    )


def prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return a text of common words."""
    return worded(n_tokens, added())


def request(generate: Generate) -> Post:
    """Ask `/v1/completions`."""
    return Post(
        "/v1/completions",
        {
            "model": generate.model,
            "prompt": generate.prompt.text,
            "max_tokens": generate.n_gen,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )


def reader(generate: Generate) -> CompletionReader:
    """Return a reader of the chunks of `/v1/completions`."""
    return CompletionReader(generate)
