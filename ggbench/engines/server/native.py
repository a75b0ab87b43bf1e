"""Servers with their own API: llama-server and Ollama."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    ModelData,
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
    listed = client.get("/v1/models").read_as(ModelData[_LlamaModel])
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
            tensor_bytes=positive(meta.size),
            is_loaded=model.status is None or model.status.get("value") == "loaded",
        )
        models.setdefault(offered.name, offered)
    return ServerInfo(
        title="llama-server",
        models=tuple(models.values()),
        clock="server",
        version=shorten(props.build_info, 60) or None,
        n_parallel=positive(props.total_slots),
    )


def _llama_prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return the same token ids as the llama.cpp engine."""
    answer = client.post(Post("/tokenize", {"model": model, "content": PROMPT, "add_special": True}))
    if answer.status != 200:
        client.fail(answer.status, answer.body)
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
        ended = self.ended(
            at_ns, count(chunk.tokens_evaluated), count(timing("cache_n")), self._n_gen, chunk.stop_type
        )
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


LLAMA_SERVER = ServerKind(_recognize_llama_server, _llama_prompt, _llama_request, _LlamaReader)

# Ollama: a JSON object a line, and its own time of the prompt. Source: Ollama's docs/api.md and api/types.go
# (`Metrics`). `prompt_eval_count` includes tokens from its cache, `prompt_eval_duration` does not: the words are new
# each time. It cannot ignore the end of the text, and it stops a repetitive one.

_LEAST_N_CTX = 4096
"""Ollama's default; a size other than the loaded model's makes it reload the model."""


class _TagDetails(msgspec.Struct):
    family: str = ""
    quantization_level: str = ""


class _Tag(msgspec.Struct):
    name: str
    size: int | None = None
    details: _TagDetails = msgspec.field(default_factory=_TagDetails)


class _Tags(msgspec.Struct):
    models: list[_Tag] = []


class _OllamaChunk(msgspec.Struct):
    response: str = ""
    done: bool = False
    done_reason: str = ""
    prompt_eval_count: int | None = None
    prompt_eval_duration: float | None = None
    eval_count: int | None = None
    error: object = None


def _recognize_ollama(client: Client) -> ServerInfo | None:
    """Recognize it by `/api/version` and `/api/tags`, of which llama-server has only some."""
    version = client.get("/api/version").read_as(Version)
    tags = client.get("/api/tags").read_as(_Tags)
    if version is None or tags is None:
        return None
    models = {
        tag.name: OfferedModel(
            name=shorten(tag.name, 200),
            quant=shorten(tag.details.quantization_level, 40) or None,
            architecture=shorten(tag.details.family, 40) or None,
            file_bytes=positive(tag.size),
            is_loaded=False,
        )
        for tag in tags.models
    }
    return ServerInfo("Ollama", tuple(models.values()), version=shorten(version.version, 60))


def _ollama_request(generate: Generate) -> Post:
    """Request `/api/generate`, without the model's template."""
    n_tokens = generate.prompt.n_tokens + generate.n_gen
    options = {
        "num_predict": generate.n_gen,
        "num_ctx": max(_LEAST_N_CTX, 1 << n_tokens.bit_length()),
        "temperature": 0.0,
        "stop": [],
    }
    body = {
        "model": generate.model,
        "prompt": generate.prompt.text,
        "raw": True,
        "stream": True,
        "options": options,
    }
    return Post("/api/generate", body)


class _OllamaReader(StreamReader):
    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        if not line.strip():
            return
        chunk = decode_chunk(line, _OllamaChunk)
        if chunk.response:
            yield Tokens(at_ns, None, None, chunk.response)
        if chunk.done:
            ended = self.ended(
                at_ns, count(chunk.prompt_eval_count), None, count(chunk.eval_count), chunk.done_reason
            )
            yield replace(ended, prompt_ns=nanoseconds(chunk.prompt_eval_duration, 1))


OLLAMA = ServerKind(_recognize_ollama, common_words, _ollama_request, _OllamaReader)
