"""Ollama, by its own API: a JSON object a line, and its own times of the prompt and of the generation as wholes.

Source: Ollama's docs/api.md and api/types.go (`Metrics`). `prompt_eval_count` includes tokens from its cache,
`prompt_eval_duration` does not: the words are new each time. It has no way to keep a model from ending its text, and
ends one itself that repeats. Which steps `eval_duration` covers differs by version, so only its rate is comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.contract import Ended, Generate, OfferedModel, Prompt, ServerInfo, Tokens
from ggbench.engines.server.failures import error_text
from ggbench.engines.server.kind import (
    Progress,
    ServerKind,
    ServerReported,
    count,
    decode_as,
    nanoseconds,
    positive,
    request_mismatches,
    worded,
)
from ggbench.text import shorten

_LEAST_N_CTX = 4096
"""Its default; another size than a loaded model's makes it load the model again."""
_MOST_SHOWN = 50
"""Models that are asked for their details, which takes a request each."""


class _Version(msgspec.Struct):
    version: str


class _Details(msgspec.Struct):
    family: str = ""
    quantization_level: str = ""


class _Tag(msgspec.Struct):
    name: str
    size: int | None = None
    digest: str = ""
    details: _Details | None = None


class _Tags(msgspec.Struct):
    models: list[_Tag]


class _Running(msgspec.Struct):
    name: str
    context_length: int | None = None


class _AllRunning(msgspec.Struct):
    models: list[_Running] = []


class _Shown(msgspec.Struct):
    model_info: dict[str, object] = {}


class _Chunk(msgspec.Struct):
    response: str = ""
    done: bool = False
    done_reason: str = ""
    load_duration: float | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: float | None = None
    eval_count: int | None = None
    eval_duration: float | None = None
    error: object = None


def _recognize(client: Client) -> ServerInfo | None:
    """Recognize it by `/api/version` and `/api/tags`, which llama-server has in part."""
    version = client.get("/api/version").read_as(_Version)
    tags = client.get("/api/tags").read_as(_Tags) if version is not None else None
    if version is None or tags is None:
        return None
    running = client.get("/api/ps").read_as(_AllRunning) or _AllRunning()
    loaded = {each.name: positive(each.context_length) for each in running.models}
    models = {
        tag.name: _offered(client, tag, loaded, is_asked=number < _MOST_SHOWN) for number, tag in enumerate(tags.models)
    }
    return ServerInfo(
        kind="ollama",
        title="Ollama",
        base_url=client.address.base_url,
        models=tuple(models.values()),
        clock="totals",
        takes_tokens=False,
        version=shorten(version.version, 60),
    )


def _offered(client: Client, tag: _Tag, loaded: dict[str, int | None], *, is_asked: bool) -> OfferedModel:
    details = tag.details or _Details()
    shown = client.post(Post("/api/show", {"model": tag.name})).read_as(_Shown) if is_asked else None
    about = shown.model_info if shown is not None else {}
    architecture = about.get("general.architecture")
    digest = tag.digest.removeprefix("sha256:")
    return OfferedModel(
        name=shorten(tag.name, 200),
        quant=shorten(details.quantization_level, 40) or None,
        architecture=shorten(architecture if isinstance(architecture, str) else details.family, 40) or None,
        n_ctx=loaded.get(tag.name),
        n_ctx_train=_whole(about.get(f"{architecture}.context_length")),
        n_params=_whole(about.get("general.parameter_count")),
        file_bytes=positive(tag.size),
        is_loaded=tag.name in loaded,
        digest=digest if len(digest) == 64 and set(digest) <= set("0123456789abcdef") else None,
    )


def _whole(value: object) -> int | None:
    return positive(value) if isinstance(value, int | float) else None


def _prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return a text of common words."""
    return worded(n_tokens, added())


def _request(generate: Generate) -> Post:
    """Ask `/api/generate`, without the model's template."""
    n_tokens = generate.prompt.n_tokens + generate.n_gen
    return Post(
        "/api/generate",
        {
            "model": generate.model,
            "prompt": generate.prompt.text,
            "raw": True,
            "stream": True,
            "options": {
                "num_predict": generate.n_gen,
                "num_ctx": max(_LEAST_N_CTX, 1 << n_tokens.bit_length()),
                "temperature": 0.0,
                "stop": [],
            },
        },
    )


class _Reader:
    def __init__(self, asked: Generate) -> None:
        self._asked = asked

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        if not line.strip():
            return ()
        chunk = decode_as(line, _Chunk)
        if chunk.error is not None:
            raise ServerReported(error_text({"error": chunk.error}) or "no message")
        items: list[Progress] = [Tokens(at_ns, None, None, chunk.response)] if chunk.response else []
        if chunk.done:
            items.append(self._ended(chunk, at_ns))
        return items

    def finish(self, at_ns: int) -> Ended | None:
        return None

    def _ended(self, chunk: _Chunk, at_ns: int) -> Ended:
        n_prompt, n_gen = count(chunk.prompt_eval_count), count(chunk.eval_count)
        return Ended(
            at_ns=at_ns,
            n_prompt=n_prompt,
            n_cached=None,
            n_gen=n_gen,
            finish_reason=shorten(chunk.done_reason, 20),
            prompt_ns=nanoseconds(chunk.prompt_eval_duration, 1),
            decode_ns=nanoseconds(chunk.eval_duration, 1),
            load_ns=nanoseconds(chunk.load_duration, 1),
            request_mismatches=request_mismatches(
                self._asked, n_prompt=n_prompt, n_cached=None, n_gen=n_gen, finish_reason=chunk.done_reason
            ),
        )


KIND = ServerKind("/api/version", _recognize, _prompt, _request, _Reader)
