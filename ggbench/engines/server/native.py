"""Servers with their own API: llama-server and Ollama."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import PROMPT
from ggbench.engines.server.client import Client
from ggbench.engines.server.contract import (
    DONE,
    LOG_HINT,
    Ended,
    Generate,
    InvalidStream,
    Listed,
    OfferedModel,
    Post,
    Progress,
    Prompt,
    PromptProgress,
    ServerInfo,
    StreamReader,
    Tokens,
    count,
    data_of,
    decode_chunk,
    nanoseconds,
    positive,
)
from ggbench.engines.server.kind import ServerKind, TokenIds, Version, common_words, repeated
from ggbench.errors import ServerFailed
from ggbench.text import shorten

_T = TypeVar("_T")

# llama-server: token ids as the prompt, and its own clock for every token. Source: tools/server/README.md,
# server-task.cpp (`to_json_non_oaicompat`) and server-common.cpp (`server_slot_stats`) of llama.cpp at commit 0c1e570.
# Its generation clock starts when the prompt is read, so the first token takes no time and `predicted_ms` of n
# tokens is the time of n - 1 decodes.


class _Context(msgspec.Struct):
    n_ctx: int | None = None


class _Props(msgspec.Struct):
    default_generation_settings: _Context
    total_slots: int
    build_info: str = ""
    model_ftype: str = ""


class _Meta(msgspec.Struct):
    n_ctx: int | None = None
    n_ctx_train: int | None = None
    n_params: int | None = None
    n_vocab: int | None = None
    size: int | None = None
    ftype: str = ""


class _LlamaModel(msgspec.Struct):
    id: str
    meta: _Meta | None = None
    status: dict[str, object] | None = None


class _LlamaChunk(msgspec.Struct):
    content: str = ""
    stop: bool = False
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    stop_type: str = ""
    truncated: bool = False
    timings: dict[str, float | None] = {}
    prompt_progress: dict[str, float] | None = None
    error: object = None


def _recognize_llama_server(client: Client) -> ServerInfo | None:
    """Recognize it by `/props`, which no other server has."""
    props = client.get("/props").read_as(_Props)
    listed = client.get("/v1/models").read_as(Listed[_LlamaModel])
    if props is None or listed is None:
        return None
    models: dict[str, OfferedModel] = {}
    for model in listed.data:
        meta = model.meta or _Meta()
        # A model without an alias is named by its path; its file's name is enough, as a single model needs no name.
        name = model.id.replace("\\", "/").rpartition("/")[2] if model.id.endswith(".gguf") else model.id
        offered = OfferedModel(
            name=shorten(name, 200),
            quant=shorten(meta.ftype or props.model_ftype, 40) or None,
            n_ctx=positive(props.default_generation_settings.n_ctx) or positive(meta.n_ctx),
            n_ctx_train=positive(meta.n_ctx_train),
            n_params=positive(meta.n_params),
            n_vocab=positive(meta.n_vocab),
            tensor_bytes=positive(meta.size),
            is_loaded=model.status is None or model.status.get("value") == "loaded",
        )
        models.setdefault(offered.name, offered)
    return ServerInfo(
        kind="llama_server",
        title="llama-server",
        base_url=client.address.base_url,
        models=tuple(models.values()),
        clock="each token",
        version=shorten(props.build_info, 60) or None,
        n_parallel=positive(props.total_slots),
    )


def _llama_prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return the same token ids as the llama.cpp engine."""
    answer = client.post(Post("/tokenize", {"model": model, "content": PROMPT, "add_special": True}))
    if answer.status != 200:
        client.fail(answer.status, answer.body, "the tokens of a text")
    found = answer.read_as(TokenIds)
    if found is None or not found.tokens:
        raise ServerFailed("llama-server did not tokenize the prompt", LOG_HINT)
    return repeated(found.tokens, n_tokens, index)


def _llama_request(generate: Generate) -> Post:
    body = {
        "model": generate.model,
        "prompt": list(generate.prompt.tokens) or generate.prompt.text,
        "n_predict": generate.n_gen,
        "stream": True,
        "cache_prompt": False,
        "ignore_eos": True,
        "samplers": ["top_k"],
        "top_k": 1,
        "timings_per_token": True,
        "return_progress": True,
    }
    return Post("/completion", body)


class _LlamaReader(StreamReader):
    def __init__(self, asked: Generate) -> None:
        super().__init__(asked)
        self._n_gen = 0
        self._decode_ns = 0
        self._has_clock = True

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        data = data_of(line)
        if data is None or data == DONE:
            return
        chunk = decode_chunk(data, _LlamaChunk)
        if chunk.prompt_progress is not None and not chunk.stop:
            yield PromptProgress(at_ns, count(chunk.prompt_progress.get("processed")) or 0)
            return
        if chunk.tokens_predicted is None:
            raise InvalidStream("a chunk without tokens_predicted")
        n_new = chunk.tokens_predicted - self._n_gen
        if n_new < 0:
            raise InvalidStream(f"a count of tokens that went from {self._n_gen} to {chunk.tokens_predicted}")
        if n_new or chunk.content:
            self._n_gen = chunk.tokens_predicted
            yield Tokens(at_ns, n_new, self._clock(chunk.timings.get("predicted_ms")), chunk.content)
        if chunk.stop:
            yield self._end(chunk, at_ns)

    def _clock(self, predicted_ms: float | None) -> int | None:
        """Return the server's clock; after one impossible value it is no longer trusted."""
        decode_ns = nanoseconds(predicted_ms, 1e6)
        if decode_ns is None or decode_ns < self._decode_ns:
            self._has_clock = False
        else:
            self._decode_ns = decode_ns
        return decode_ns if self._has_clock else None

    def _end(self, chunk: _LlamaChunk, at_ns: int) -> Ended:
        timing = chunk.timings.get
        ended = self.ended(at_ns, count(chunk.tokens_evaluated), count(timing("cache_n")), self._n_gen, chunk.stop_type)
        lines = ended.request_mismatches
        if chunk.truncated:
            lines = (*lines, "cut the prompt to fit its context")
        if not self._has_clock:
            lines = (*lines, "its clock is missing or ran backwards")
        return replace(
            ended,
            prompt_ns=nanoseconds(timing("prompt_ms"), 1e6),
            decode_ns=nanoseconds(timing("predicted_ms"), 1e6),
            n_drafted=count(timing("draft_n")),
            n_accepted=count(timing("draft_n_accepted")),
            request_mismatches=lines,
        )


LLAMA_SERVER = ServerKind("/health", _recognize_llama_server, _llama_prompt, _llama_request, _LlamaReader)

# Ollama: a JSON object a line, and its own times of the prompt and of the generation as wholes. Source: Ollama's
# docs/api.md and api/types.go (`Metrics`). `prompt_eval_count` includes tokens from its cache, `prompt_eval_duration`
# does not: the words are new each time. It cannot ignore the end of the text, and it stops a repetitive one.
# Which steps `eval_duration` covers differs by version, so only its rate is comparable.

_LEAST_N_CTX = 4096
"""Ollama's default; a size other than the loaded model's makes it reload the model."""
_MOST_SHOWN = 50
"""Models whose details are queried, at one request each."""


class _TagDetails(msgspec.Struct):
    family: str = ""
    quantization_level: str = ""


class _Tag(msgspec.Struct):
    name: str
    size: int | None = None
    digest: str = ""
    details: _TagDetails | None = None


class _Models(msgspec.Struct, Generic[_T]):
    models: list[_T] = []


class _Running(msgspec.Struct):
    name: str
    context_length: int | None = None


class _Shown(msgspec.Struct):
    model_info: dict[str, object] = {}


class _OllamaChunk(msgspec.Struct):
    response: str = ""
    done: bool = False
    done_reason: str = ""
    prompt_eval_count: int | None = None
    prompt_eval_duration: float | None = None
    eval_count: int | None = None
    eval_duration: float | None = None
    error: object = None


def _recognize_ollama(client: Client) -> ServerInfo | None:
    """Recognize it by `/api/version` and `/api/tags`, of which llama-server has only some."""
    version = client.get("/api/version").read_as(Version)
    tags = client.get("/api/tags").read_as(_Models[_Tag]) if version is not None else None
    if version is None or tags is None:
        return None
    running = client.get("/api/ps").read_as(_Models[_Running])
    loaded = {each.name: positive(each.context_length) for each in (running.models if running else ())}
    models: dict[str, OfferedModel] = {}
    for number, tag in enumerate(tags.models):
        shown = client.post(Post("/api/show", {"model": tag.name})).read_as(_Shown) if number < _MOST_SHOWN else None
        models[tag.name] = _ollama_model(tag, loaded, {} if shown is None else shown.model_info)
    return ServerInfo(
        kind="ollama",
        title="Ollama",
        base_url=client.address.base_url,
        models=tuple(models.values()),
        clock="totals",
        version=shorten(version.version, 60),
    )


def _ollama_model(tag: _Tag, loaded: dict[str, int | None], about: dict[str, object]) -> OfferedModel:
    def whole(key: str) -> int | None:
        value = about.get(key)
        return positive(value) if isinstance(value, int | float) else None

    details = tag.details or _TagDetails()
    architecture = about.get("general.architecture")
    digest = tag.digest.removeprefix("sha256:")
    return OfferedModel(
        name=shorten(tag.name, 200),
        quant=shorten(details.quantization_level, 40) or None,
        architecture=shorten(architecture if isinstance(architecture, str) else details.family, 40) or None,
        n_ctx=loaded.get(tag.name),
        n_ctx_train=whole(f"{architecture}.context_length"),
        n_params=whole("general.parameter_count"),
        file_bytes=positive(tag.size),
        is_loaded=tag.name in loaded,
        digest=digest if len(digest) == 64 and set(digest) <= set("0123456789abcdef") else None,
    )


def _ollama_request(generate: Generate) -> Post:
    """Request `/api/generate`, without the model's template."""
    n_tokens = generate.prompt.n_tokens + generate.n_gen
    options = {
        "num_predict": generate.n_gen,
        "num_ctx": max(_LEAST_N_CTX, 1 << n_tokens.bit_length()),
        "temperature": 0.0,
        "stop": [],
    }
    body = {"model": generate.model, "prompt": generate.prompt.text, "raw": True, "stream": True, "options": options}
    return Post("/api/generate", body)


class _OllamaReader(StreamReader):
    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        if not line.strip():
            return
        chunk = decode_chunk(line, _OllamaChunk)
        if chunk.response:
            yield Tokens(at_ns, None, None, chunk.response)
        if chunk.done:
            ended = self.ended(at_ns, count(chunk.prompt_eval_count), None, count(chunk.eval_count), chunk.done_reason)
            prompt_ns, decode_ns = nanoseconds(chunk.prompt_eval_duration, 1), nanoseconds(chunk.eval_duration, 1)
            yield replace(ended, prompt_ns=prompt_ns, decode_ns=decode_ns)


OLLAMA = ServerKind("/api/version", _recognize_ollama, common_words, _ollama_request, _OllamaReader)
