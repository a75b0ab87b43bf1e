"""The server of llama-cpp-python: it counts no tokens of a stream, but `length` is exact.

Source: llama-cpp-python 0.3.36, `llama_cpp/server/app.py` and `types.py`. It takes texts only, which it tokenizes at
`/extras/tokenize/count`; `min_tokens` keeps the end-of-text token out. It answers one request at a time, and what a
prompt shares with the one before is not read again: the words are new each time.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.completions import CompletionReader, listed_models
from ggbench.engines.server.contract import Generate, OfferedModel, Prompt, ServerInfo
from ggbench.engines.server.prompts import probe_text, worded
from ggbench.errors import ServerFailed
from ggbench.text import shorten

TITLE = "llama-cpp-python"
RANK = 50
EMPTY_PATH = "/v1/models"
_DOCUMENT = "llama.cpp Python API"


class _About(msgspec.Struct):
    title: str
    version: str


class _OpenApi(msgspec.Struct):
    info: _About


class _Counted(msgspec.Struct):
    count: int


def recognize(client: Client) -> ServerInfo | None:
    """Recognize it by the title of its OpenAPI document, which also has its version."""
    about = client.get("/openapi.json").read_as(_OpenApi)
    if about is None or _DOCUMENT not in about.info.title:
        return None
    models = tuple(
        OfferedModel(shorten(each.id.replace("\\", "/").rpartition("/")[2], 200))
        for each in listed_models(client) or []
    )
    return ServerInfo(
        kind="llama_cpp_python",
        title=TITLE,
        base_url=client.address.base_url,
        models=models,
        clock="none",
        takes_tokens=False,
        version=shorten(about.info.version, 60),
        n_parallel=1,
    )


def prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return a text of common words, whose length its tokenizer confirms."""
    text, n_words = probe_text()
    return worded(n_tokens, _count(client, model, text) - n_words)


def _count(client: Client, model: str, text: str) -> int:
    answer = client.post(Post("/extras/tokenize/count", {"model": model, "input": text}))
    client.check_answer(answer, "the tokens of a text")
    counted = answer.read_as(_Counted)
    if counted is None:
        raise ServerFailed("llama-cpp-python's server did not count the tokens of a text", "look at the server's log")
    return counted.count


def request(generate: Generate) -> Post:
    """Ask `/v1/completions`."""
    return Post(
        "/v1/completions",
        {
            "model": generate.model,
            "prompt": generate.prompt.text,
            "max_tokens": generate.n_gen,
            "min_tokens": generate.n_gen,
            "temperature": 0.0,
            "stream": True,
        },
    )


def reader(generate: Generate) -> CompletionReader:
    """Return a reader of the chunks of `/v1/completions`."""
    return CompletionReader(generate, ends_exactly=True)
