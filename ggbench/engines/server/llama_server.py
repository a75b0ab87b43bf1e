"""llama-server of llama.cpp: token ids as the prompt, and a clock of its own for every token.

Source: tools/server/README.md, server-task.cpp (`to_json_non_oaicompat`) and server-common.cpp (`server_slot_stats`) of
llama.cpp at commit 0c1e570. Its clock for the generation starts when the prompt is read, so the first token costs
nothing and `predicted_ms` of n tokens is the time of n - 1 decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.contract import Ended, Generate, OfferedModel, Prompt, PromptProgress, ServerInfo, Tokens
from ggbench.engines.server.failures import error_text
from ggbench.engines.server.kind import (
    DONE,
    InvalidStream,
    Progress,
    ServerKind,
    ServerReported,
    count,
    data_of,
    decode_as,
    nanoseconds,
    positive,
    repeated,
    request_mismatches,
)
from ggbench.engines.workloads import PROMPT
from ggbench.errors import ServerFailed
from ggbench.text import shorten

_MS = 1e6


class _Settings(msgspec.Struct):
    n_ctx: int | None = None


class _Props(msgspec.Struct):
    default_generation_settings: _Settings
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


class _Status(msgspec.Struct):
    value: str = ""


class _Model(msgspec.Struct):
    id: str
    meta: _Meta | None = None
    status: _Status | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Tokenized(msgspec.Struct):
    tokens: list[int]


class _Timings(msgspec.Struct):
    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Progress(msgspec.Struct):
    processed: int


class _Chunk(msgspec.Struct):
    content: str = ""
    stop: bool = False
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    stop_type: str = ""
    truncated: bool = False
    timings: _Timings | None = None
    prompt_progress: _Progress | None = None
    error: object = None


def _recognize(client: Client) -> ServerInfo | None:
    """Recognize it by `/props`, which no other server has."""
    props = client.get("/props").read_as(_Props)
    listed = client.get("/v1/models").read_as(_Models)
    if props is None or listed is None:
        return None
    models: dict[str, OfferedModel] = {}
    for model in listed.data:
        offered = _offered(model, props)
        models.setdefault(offered.name, offered)
    return ServerInfo(
        kind="llama_server",
        title="llama-server",
        base_url=client.address.base_url,
        models=tuple(models.values()),
        clock="each token",
        takes_tokens=True,
        version=shorten(props.build_info, 60) or None,
        n_parallel=positive(props.total_slots),
    )


def _offered(model: _Model, props: _Props) -> OfferedModel:
    """A model without an alias is named by its path, of which only the file's name is kept: one model needs no name."""
    meta = model.meta or _Meta()
    return OfferedModel(
        name=shorten(model.id.replace("\\", "/").rpartition("/")[2] if model.id.endswith(".gguf") else model.id, 200),
        quant=shorten(meta.ftype or props.model_ftype, 40) or None,
        n_ctx=positive(props.default_generation_settings.n_ctx) or positive(meta.n_ctx),
        n_ctx_train=positive(meta.n_ctx_train),
        n_params=positive(meta.n_params),
        n_vocab=positive(meta.n_vocab),
        tensor_bytes=positive(meta.size),
        is_loaded=model.status.value == "loaded" if model.status is not None else True,
    )


def _prompt(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return the same token ids as the engine that runs llama.cpp here."""
    answer = client.post(Post("/tokenize", {"model": model, "content": PROMPT, "add_special": True}))
    client.check_answer(answer, "the tokens of a text")
    found = answer.read_as(_Tokenized)
    if found is None or not found.tokens:
        raise ServerFailed("llama-server did not tokenize the prompt", "look at the server's log")
    return repeated(found.tokens, n_tokens, index)


def _request(generate: Generate) -> Post:
    """Ask `/completion`, whose chunks carry the server's clock."""
    return Post(
        "/completion",
        {
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
        },
    )


class _Reader:
    def __init__(self, asked: Generate) -> None:
        self._asked = asked
        self._n_gen = 0
        self._decode_ns = 0
        self._has_clock = True

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        data = data_of(line)
        if data is None or data == DONE:
            return ()
        chunk = decode_as(data, _Chunk)
        if chunk.error is not None:
            raise ServerReported(error_text({"error": chunk.error}) or "no message")
        if chunk.prompt_progress is not None and not chunk.stop:
            return (PromptProgress(at_ns, max(0, chunk.prompt_progress.processed)),)
        if chunk.tokens_predicted is None:
            raise InvalidStream("a chunk without tokens_predicted")
        tokens = self._tokens(chunk, at_ns)
        if not chunk.stop:
            return () if tokens is None else (tokens,)
        return (self._ended(chunk, at_ns),) if tokens is None else (tokens, self._ended(chunk, at_ns))

    def finish(self, at_ns: int) -> Ended | None:
        return None

    def _tokens(self, chunk: _Chunk, at_ns: int) -> Tokens | None:
        n_gen = chunk.tokens_predicted or 0
        n_new = n_gen - self._n_gen
        if n_new < 0:
            raise InvalidStream(f"a count of tokens that went from {self._n_gen} to {n_gen}")
        if n_new == 0 and not chunk.content:
            return None
        self._n_gen = n_gen
        return Tokens(at_ns, n_new, self._clock(chunk.timings), chunk.content)

    def _clock(self, timings: _Timings | None) -> int | None:
        """A clock that is impossible once is not trusted again."""
        decode_ns = nanoseconds(timings.predicted_ms, _MS) if timings is not None else None
        if decode_ns is None or decode_ns < self._decode_ns:
            self._has_clock = False
        else:
            self._decode_ns = decode_ns
        return decode_ns if self._has_clock else None

    def _ended(self, chunk: _Chunk, at_ns: int) -> Ended:
        timings = chunk.timings or _Timings()
        n_prompt, n_cached = count(chunk.tokens_evaluated), count(timings.cache_n)
        lines = request_mismatches(
            self._asked, n_prompt=n_prompt, n_cached=n_cached, n_gen=self._n_gen, finish_reason=chunk.stop_type
        )
        if chunk.truncated:
            lines = (*lines, "cut the prompt to fit its context")
        if not self._has_clock:
            lines = (*lines, "its clock is missing or ran backwards")
        return Ended(
            at_ns=at_ns,
            n_prompt=n_prompt,
            n_cached=n_cached,
            n_gen=self._n_gen,
            finish_reason=shorten(chunk.stop_type, 20),
            prompt_ns=nanoseconds(timings.prompt_ms, _MS),
            decode_ns=nanoseconds(timings.predicted_ms, _MS),
            decode_n=max(0, self._n_gen - 1),
            n_drafted=count(timings.draft_n),
            n_accepted=count(timings.draft_n_accepted),
            request_mismatches=lines,
        )


KIND = ServerKind("/health", _recognize, _prompt, _request, _Reader)
