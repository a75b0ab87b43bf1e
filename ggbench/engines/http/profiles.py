"""The protocols of servers: how each is recognized and asked for a generation. llama-server, Ollama and OpenAI's
`/v1/completions`, which vLLM, LM Studio, TGI, mlx-lm and KoboldCpp have.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from ggbench.engines.http.client import Client
from ggbench.engines.http.messages import Generate, OfferedModel, Post, ServerInfo, positive
from ggbench.record import Record
from ggbench.text import shorten


class Profile(Record):
    recognize: Callable[[Client], ServerInfo | None]
    """Returns the server's models; None if it is of another kind. Raises NetworkError and ServerFailed."""
    tokenize: Callable[[str, str], Post] | None
    """Asks for the ids of a text's tokens, by model and text; None if its prompts are texts."""
    request: Callable[[Generate], Post]


class _Version(msgspec.Struct):
    version: str


class _Meta(msgspec.Struct):
    """What llama-server says of a model."""

    n_ctx: int | None = None
    n_ctx_train: int | None = None
    n_params: int | None = None
    size: int | None = None
    ftype: str = ""


class _ListedModel(msgspec.Struct):
    """A model of `/v1/models`; fields missing on some servers are None."""

    id: str
    owned_by: str | None = None
    max_model_len: int | None = None
    meta: _Meta | None = None
    status: dict[str, object] | None = None


class _Listed(msgspec.Struct):
    data: list[_ListedModel]


def _listed_models(client: Client) -> list[_ListedModel]:
    """Return the models of `/v1/models`, each name once; none without such a list."""
    listed = client.ask("/v1/models").read_as(_Listed)
    return [] if listed is None else list({shorten(model.id, 200): model for model in listed.data}.values())


# llama-server: token ids as the prompt, and its own clock for every token. Source: tools/server/README.md of llama.cpp.


class _Slot(msgspec.Struct):
    n_ctx: int | None = None


class _Props(msgspec.Struct):
    default_generation_settings: _Slot
    total_slots: int
    build_info: str = ""
    model_ftype: str = ""


def _recognize_llama_server(client: Client) -> ServerInfo | None:
    """Recognize it by `/props`, which no other server has."""
    props = client.ask("/props").read_as(_Props)
    if props is None:
        return None
    models: dict[str, OfferedModel] = {}
    for model in _listed_models(client):
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
    version, n_parallel = shorten(props.build_info, 60) or None, positive(props.total_slots)
    return ServerInfo("llama-server", tuple(models.values()), "server", version, n_parallel)


def _llama_request(generate: Generate) -> Post:
    body = {
        "model": generate.model,
        "prompt": list(generate.prompt.tokens) or generate.prompt.text,
        "n_predict": generate.n_gen,
        "stream": True,
        "cache_prompt": generate.keeps_cache,
        "ignore_eos": True,
        "samplers": ["top_k"],
        "top_k": 1,
        "timings_per_token": True,
        "return_progress": True,
    }
    return Post("/completion", body)


LLAMA_SERVER = Profile(
    _recognize_llama_server,
    lambda model, text: Post("/tokenize", {"model": model, "content": text, "add_special": True}),
    _llama_request,
)


# OpenAI's `/v1/completions`, with vLLM's extensions: token ids as the prompt, usage in every chunk, a salt that avoids
# its prefix cache. A server that ignores unknown fields of the request is found out by its count. Sources: OpenAI's API
# reference; vLLM 0.32, `entrypoints/openai/completion/protocol.py` and `entrypoints/serve/tokenize`.


def _recognize_any(client: Client) -> ServerInfo | None:
    """Recognize any other server by a list of models that is not empty."""
    models = _listed_models(client)
    if not models:
        return None
    offered = tuple(OfferedModel(shorten(each.id, 200), n_ctx=positive(each.max_model_len)) for each in models)
    title = "vLLM" if models[0].owned_by == "vllm" else "OpenAI-compatible server"
    version = client.ask("/version").read_as(_Version)
    return ServerInfo(title, offered, version=None if version is None else shorten(version.version, 60))


def _openai_request(generate: Generate) -> Post:
    body: dict[str, object] = {
        "model": generate.model,
        "prompt": list(generate.prompt.tokens) or generate.prompt.text,
        "max_tokens": generate.n_gen,
        "min_tokens": generate.n_gen,
        "temperature": 0.0,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    apart = {"return_token_ids": True} if generate.keeps_cache else {"cache_salt": secrets.token_urlsafe(32)}
    return Post("/v1/completions", body | apart)


OPENAI = Profile(
    _recognize_any, lambda model, text: Post("/tokenize", {"model": model, "prompt": text}), _openai_request
)


# Ollama cannot ignore the end of the text, and it stops a repetitive one. Source: its docs/api.md.

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


def _recognize_ollama(client: Client) -> ServerInfo | None:
    """Recognize it by `/api/version` and `/api/tags`, of which llama-server has only some."""
    version = client.ask("/api/version").read_as(_Version)
    tags = client.ask("/api/tags").read_as(_Tags)
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
    body = {"model": generate.model, "prompt": generate.prompt.text, "raw": True, "stream": True}
    return Post("/api/generate", body | {"options": options})


OLLAMA = Profile(_recognize_ollama, None, _ollama_request)

PROFILES = (LLAMA_SERVER, OLLAMA, OPENAI)
"""In the order of trial: imitators before the servers they imitate."""
