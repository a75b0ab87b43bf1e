"""OpenAI's `/v1/completions` as a stream, and the kinds of server that have it, with their extensions.

Tokens of a chunk are counted by the difference of two usages, otherwise not at all, as a chunk may have several tokens
or none. Sources: OpenAI's API reference, and those below each kind.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import msgspec

from ggbench.engines.contract import PROMPT
from ggbench.engines.server.client import Client
from ggbench.engines.server.contract import (
    DONE,
    Ended,
    Generate,
    InvalidStream,
    ModelData,
    OfferedModel,
    Post,
    Progress,
    Prompt,
    ServerInfo,
    StreamReader,
    Tokens,
    count,
    data_of,
    decode_chunk,
    positive,
)
from ggbench.engines.server.kind import ServerKind, TokenIds, Version, common_words, repeated, worded
from ggbench.text import shorten


class _ListedModel(msgspec.Struct):
    """A model of `/v1/models`; fields missing on some servers are None."""

    id: str
    owned_by: str | None = None
    max_model_len: int | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


class _CompletionReader(StreamReader):
    """Reads the chunks of one completion."""

    def __init__(self, asked: Generate) -> None:
        super().__init__(asked)
        self._n_gen: int | None = 0
        """Counted by usage; None once the first text came without a count."""
        self._usage = _Usage()
        self._finish_reason: str | None = None

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        data = data_of(line)
        if data is None:
            return
        if data == DONE:
            ended = self.finish(at_ns)
            if ended is None:
                raise InvalidStream("the end of a stream without a finish_reason")
            yield ended
            return
        chunk = decode_chunk(data, _Chunk)
        self._usage = chunk.usage or self._usage
        choice = chunk.choices[0] if chunk.choices else _Choice()
        self._finish_reason = choice.finish_reason or self._finish_reason
        text = choice.text or ""
        n_new = self._count(text, None if chunk.usage is None else chunk.usage.completion_tokens)
        if text or n_new:
            yield Tokens(at_ns, n_new, None, text)

    def finish(self, at_ns: int) -> Ended | None:
        """Return the end; None if no chunk had a finish reason."""
        if self._finish_reason is None:
            return None
        usage = self._usage
        cached = count(usage.prompt_tokens_details.cached_tokens) if usage.prompt_tokens_details else None
        n_prompt, n_gen = count(usage.prompt_tokens), count(usage.completion_tokens)
        return self.ended(at_ns, n_prompt, cached, n_gen, self._finish_reason)

    def _count(self, text: str, n_gen: int | None) -> int | None:
        """Return the tokens of a chunk after which usage counts `n_gen`; None if the first text was not counted."""
        if n_gen is None and text and self._n_gen == 0:
            self._n_gen = None
        if self._n_gen is None:
            return None
        if n_gen is None:
            return 0
        if n_gen < self._n_gen:
            raise InvalidStream(f"a count of tokens that went from {self._n_gen} to {n_gen}")
        n_new, self._n_gen = n_gen - self._n_gen, n_gen
        return n_new


def _listed_models(client: Client) -> list[_ListedModel]:
    """Return the models of `/v1/models`, each name once; none without such a list."""
    listed = client.get("/v1/models").read_as(ModelData[_ListedModel])
    return [] if listed is None else list({shorten(model.id, 200): model for model in listed.data}.values())


def _info(title: str, models: list[_ListedModel], version: str | None = None) -> ServerInfo:
    offered = tuple(OfferedModel(shorten(each.id, 200), n_ctx=positive(each.max_model_len)) for each in models)
    return ServerInfo(title, offered, version=version)


def _request(generate: Generate, **extensions: object) -> Post:
    body = {
        "model": generate.model,
        "prompt": list(generate.prompt.tokens) or generate.prompt.text,
        "max_tokens": generate.n_gen,
        "temperature": 0.0,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    return Post("/v1/completions", body | extensions)


def _recognize_any(client: Client) -> ServerInfo | None:
    """Recognize any other server by a list of models that is not empty."""
    models = _listed_models(client)
    return _info("OpenAI-compatible server", models) if models else None


OPENAI = ServerKind(_recognize_any, common_words, _request, _CompletionReader)
"""Any other server gives a count of prompt tokens, usage at the end, and arrival times.

It ignores unknown fields of the request (`ignore_eos`), which the count reveals.
"""


def _recognize_vllm(client: Client) -> ServerInfo | None:
    """Recognize it by the owner of its models and by `/version`."""
    models = _listed_models(client)
    if any(model.owned_by != "vllm" for model in models):
        return None
    version = client.get("/version").read_as(Version) if models else None
    return None if version is None else _info("vLLM", models, shorten(version.version, 60))


def _ids_of_vllm(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return the token ids of the llama.cpp engine's text, or a text if `/tokenize` is disabled."""
    found = client.post(Post("/tokenize", {"model": model, "prompt": PROMPT})).read_as(TokenIds)
    if found is None or not found.tokens:
        return worded(n_tokens, added())
    return repeated(found.tokens, n_tokens, index)


def _vllm_request(generate: Generate) -> Post:
    return _request(
        generate,
        min_tokens=generate.n_gen,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        cache_salt=secrets.token_urlsafe(32),
    )


VLLM = ServerKind(_recognize_vllm, _ids_of_vllm, _vllm_request, _CompletionReader)
"""vLLM: token ids as the prompt and usage in every chunk; a salt avoids its prefix cache.

Source: vLLM 0.32, `entrypoints/openai/completion/protocol.py`, `entrypoints/serve/tokenize` and
`entrypoints/generate/base/serving.py`.
"""
