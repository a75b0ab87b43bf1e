"""OpenAI's `/v1/completions` as a stream, and the kinds of server that have it, with their extensions.

Tokens of a chunk are counted by its ids or, without ids, by the difference of two usages; otherwise not at all, as a
chunk may have several tokens or none. Sources: OpenAI's API reference, and those below each kind.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import PROMPT
from ggbench.engines.server.client import Client
from ggbench.engines.server.contract import (
    DONE,
    Ended,
    Generate,
    InvalidStream,
    Listed,
    MakePrompt,
    OfferedModel,
    Post,
    Progress,
    Prompt,
    ServerClock,
    ServerInfo,
    ServerKind,
    StreamReader,
    Tokens,
    count,
    data_of,
    decode_chunk,
    nanoseconds,
    positive,
    repeated,
    worded,
)
from ggbench.engines.server.native import TokenIds, Version, common_words
from ggbench.text import shorten

_IMPOSSIBLE = 1e300
"""A finite number of tokens, unlike the quotient by a tiny rate."""


class _ListedModel(msgspec.Struct):
    """A model of `/v1/models`; fields missing on some servers are None."""

    id: str
    owned_by: str | None = None
    max_model_len: int | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Speculation(msgspec.Struct):
    draft_acceptance_rate: float | None = None
    num_accepted_draft_tokens: int | None = None


class _Metrics(msgspec.Struct):
    """vLLM's metrics; the generation is timed from the first token to the last."""

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    speculative_decoding: _Speculation | None = None


class _Stats(msgspec.Struct):
    """LM Studio's."""

    time_to_first_token: float | None = None
    generation_time: float | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    stats: _Stats | None = None
    error: object = None


def _listed_models(client: Client) -> list[_ListedModel] | None:
    """Return the models of `/v1/models`, each name once; None without such a list."""
    listed = client.get("/v1/models").read_as(Listed[_ListedModel])
    return None if listed is None else list({shorten(model.id, 200): model for model in listed.data}.values())


class _CompletionReader(StreamReader):
    """Reads the chunks of one completion."""

    def __init__(self, asked: Generate) -> None:
        super().__init__(asked)
        self._n_gen: int | None = None
        """Counted by usage or token ids; None while the server counts nothing."""
        self._has_ids = False
        self._is_uncounted = False
        self._usage = _Usage()
        self._finish_reason: str | None = None
        self._metrics = _Metrics()
        self._stats = _Stats()

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
        self._metrics = chunk.metrics or self._metrics
        self._stats = chunk.stats or self._stats
        choice = chunk.choices[0] if chunk.choices else _Choice()
        self._finish_reason = choice.finish_reason or self._finish_reason
        text, n_new = choice.text or "", self._count(choice, chunk.usage)
        if text or n_new:
            yield Tokens(at_ns, n_new, None, text)

    def finish(self, at_ns: int) -> Ended | None:
        """Return the end; None if no chunk had a finish reason."""
        if self._finish_reason is None:
            return None
        usage, metrics = self._usage, self._metrics
        details = usage.prompt_tokens_details or _PromptDetails()
        n_gen = self._n_gen if self._n_gen is not None else count(usage.completion_tokens)
        speculation = metrics.speculative_decoding or _Speculation()
        n_accepted, rate = count(speculation.num_accepted_draft_tokens), speculation.draft_acceptance_rate
        prompt_ns = nanoseconds(metrics.time_to_first_token_ms, 1e6)
        decode_ns = nanoseconds(metrics.generation_time_ms, 1e6)
        return replace(
            self.ended(at_ns, count(usage.prompt_tokens), count(details.cached_tokens), n_gen, self._finish_reason),
            prompt_ns=nanoseconds(self._stats.time_to_first_token, 1e9) if prompt_ns is None else prompt_ns,
            decode_ns=nanoseconds(self._stats.generation_time, 1e9) if decode_ns is None else decode_ns,
            n_drafted=count(round(min(n_accepted / rate, _IMPOSSIBLE))) if n_accepted and rate and rate > 0 else None,
            n_accepted=n_accepted,
        )

    def _count(self, choice: _Choice, usage: _Usage | None) -> int | None:
        """Return the number of tokens in a chunk; None if the first one with text was not counted."""
        self._usage = usage or self._usage
        before = self._n_gen or 0
        if self._is_uncounted:
            return None
        if choice.token_ids is not None:
            self._n_gen = before + len(choice.token_ids)
        elif usage is not None and usage.completion_tokens is not None and not self._has_ids:
            if usage.completion_tokens < before:
                raise InvalidStream(f"a count of tokens that went from {before} to {usage.completion_tokens}")
            self._n_gen = usage.completion_tokens
        elif choice.text and self._n_gen is None:
            self._is_uncounted = True
            return None
        self._has_ids = self._has_ids or choice.token_ids is not None
        return (self._n_gen or 0) - before


_Found = tuple[tuple[OfferedModel, ...], str | None]
"""The models and the version."""


def _kind(
    name: str,
    title: str,
    find: Callable[[Client], _Found | None],
    *,
    empty_path: str = "/v1/models",
    path: str = "/v1/completions",
    prompt: MakePrompt | None = None,
    lengths: tuple[str, ...] = ("max_tokens",),
    is_salted: bool = False,
    clock: ServerClock = "none",
    **fields: object,
) -> ServerKind:
    """Return a kind of server. `lengths` are the fields that take the number of tokens, `fields` the others."""

    def recognize(client: Client) -> ServerInfo | None:
        found = find(client)
        if found is None:
            return None
        base_url = client.address.base_url
        return ServerInfo(name, title, base_url, found[0], clock, found[1])

    def request(generate: Generate) -> Post:
        asked: dict[str, object] = {
            "model": generate.model,
            "prompt": list(generate.prompt.tokens) or generate.prompt.text,
            **dict.fromkeys(lengths, generate.n_gen),
            "temperature": 0.0,
            "stream": True,
            **fields,
        }
        return Post(path, asked | ({"cache_salt": secrets.token_urlsafe(32)} if is_salted else {}))

    return ServerKind(empty_path, recognize, prompt or common_words, request, _CompletionReader)


def _find_any(client: Client) -> _Found | None:
    """Recognize any other server by a list of models that is not empty."""
    listed = _listed_models(client)
    if not listed:
        return None
    return tuple(OfferedModel(shorten(each.id, 200), n_ctx=positive(each.max_model_len)) for each in listed), None


OPENAI = _kind("openai", "OpenAI-compatible server", _find_any, ignore_eos=True, stream_options={"include_usage": True})
"""Any other server gives a count of prompt tokens, usage at the end, and arrival times.

It ignores unknown fields of the request (`ignore_eos`), which the count reveals.
"""


def _find_vllm(client: Client) -> _Found | None:
    """Recognize it by the owner of its models and by `/version`."""
    listed = _listed_models(client)
    if not listed or any(model.owned_by != "vllm" for model in listed):
        return None
    version = client.get("/version").read_as(Version)
    if version is None:
        return None
    return tuple(
        OfferedModel(shorten(model.id, 200), n_ctx=positive(model.max_model_len), is_loaded=True) for model in listed
    ), shorten(version.version, 60)


def _ids_of_vllm(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return the token ids of the llama.cpp engine's text, or a text if `/tokenize` is disabled."""
    found = client.post(Post("/tokenize", {"model": model, "prompt": PROMPT})).read_as(TokenIds)
    if found is None or not found.tokens:
        return worded(n_tokens, added())
    return repeated(found.tokens, n_tokens, index)


VLLM = _kind(
    "vllm",
    "vLLM",
    _find_vllm,
    empty_path="/health",
    prompt=_ids_of_vllm,
    lengths=("max_tokens", "min_tokens"),
    is_salted=True,
    ignore_eos=True,
    stream_options={"include_usage": True, "continuous_usage_stats": True},
    return_token_ids=True,
)
"""vLLM: token ids as the prompt, usage and token ids in every chunk; a salt avoids its prefix cache.

Source: vLLM 0.32, `entrypoints/openai/completion/protocol.py`, `entrypoints/serve/tokenize` and
`entrypoints/generate/base/serving.py`. It sends its own times if run with `--enable-per-request-metrics`, and data on
speculative decoding if it uses any.
"""


class _StudioModel(msgspec.Struct):
    id: str
    type: str
    state: str
    arch: str = ""
    quantization: str = ""
    max_context_length: int | None = None
    loaded_context_length: int | None = None


def _find_lm_studio(client: Client) -> _Found | None:
    """Recognize it by `/api/v0/models`; embedding models are ignored."""
    listed = client.get("/api/v0/models").read_as(Listed[_StudioModel])
    if listed is None:
        return None
    models = {
        each.id: OfferedModel(
            name=shorten(each.id, 200),
            quant=shorten(each.quantization, 40) or None,
            architecture=shorten(each.arch, 40) or None,
            n_ctx=positive(each.loaded_context_length),
            n_ctx_train=positive(each.max_context_length),
            is_loaded=each.state == "loaded",
        )
        for each in listed.data
        if each.type != "embeddings"
    }
    return tuple(models.values()), None


LM_STUDIO = _kind(
    "lm_studio",
    "LM Studio",
    _find_lm_studio,
    empty_path="/api/v0/models",
    path="/api/v0/completions",
    clock="totals",
    stream_options={"include_usage": True},
)
"""LM Studio's REST API v0; its last chunk may have `stats`: seconds to the first token and of the generation.

Source: https://lmstudio.ai/docs/api/rest-api. It cannot ignore the end of the text.
"""
