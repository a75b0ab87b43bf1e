"""Options for loading a model and for the memory to plan for, and the engines and machines that accept them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ggbench.commands.options import (
    Decorator,
    as_record,
    field_option,
    field_options,
    given_record,
    model_option,
)
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import KV_TYPES, LlamaConfig
from ggbench.errors import UsageError
from ggbench.fields import long_flag, options_of
from ggbench.text import in_words

if TYPE_CHECKING:
    from ggbench.commands.output import Output
    from ggbench.engines.events import Memory


_GPU_FIELDS = ("n_gpu_layers", "main_gpu", "tensor_split", "split_mode")
_KV = ("type_k", "type_v")
_SLOTS = ("n_seq_max", "kv_unified")
"""Fields of commands about memory; others measure one sequence, or as many as they are asked for."""
_DRAFTS = ("mtp", "type_k_draft", "type_v_draft")
_OF_MEMORY = (*_SLOTS, *_DRAFTS, "spec_draft_n_max")
"""Fields of commands about memory; `speculate` has its own number of drafted tokens."""
_REST = [name for name in options_of(LlamaConfig) if name not in (*_KV, *_OF_MEMORY, "n_ctx")]


def _load_options(*names: str, n_ctx: str = "") -> Decorator:
    """Return a decorator for these fields and the rest; `n_ctx` replaces the field's help of --n-ctx."""
    first = [field_option(LlamaConfig, name, n_ctx if name == "n_ctx" else "") for name in names]
    make = functools.partial(given_record, LlamaConfig)
    return as_record("setup", make, LlamaConfig.__struct_fields__, *first, *field_options(LlamaConfig, _REST))


load_options = _load_options(*_KV, "n_ctx")
"""Add llama.cpp's options for loading a model; the command gets `setup`, a LlamaConfig."""
load_options_of_decodes = _load_options(*_KV, "n_ctx", "kv_unified")
"""Like `load_options`, plus --kv-unified."""
load_options_of_sessions = _load_options(*_KV, "n_ctx", *_SLOTS)
"""Like `load_options`, plus slots."""
load_options_of_drafts = _load_options(*_KV, "n_ctx", *_DRAFTS)
"""Like `load_options`, plus what drafts."""
load_options_of_plans = _load_options(
    *_KV,
    "n_ctx",
    *_OF_MEMORY,
    n_ctx="Context length, e.g. 16k or 16,384. Default: 8192, or the training context if shorter.",
)
load_options_of_searches = _load_options(
    *_KV,
    "n_ctx",
    *_OF_MEMORY,
    n_ctx="Largest n_ctx to try, e.g. 16k. Default: the training context; no limit with --beyond-train.",
)
load_options_but_cache = _load_options(*_OF_MEMORY)
"""Without KV types and n_ctx; with slots and what drafts."""
load_options_of_cases = _load_options(*_KV)
"""For a command that chooses every n_ctx itself."""
load_options_of_batches = _load_options(*_KV, "kv_unified")
"""Like `load_options_of_cases`, plus --kv-unified."""


def _kv_pairs(type_k: str, type_v: str) -> tuple[tuple[str, str], ...]:
    """Pair the types of K and V; a single type is paired with each of the others. Raises UsageError."""
    lists = [[part.strip().lower() for part in text.split(",")] for text in (type_k, type_v)]
    for name in (*lists[0], *lists[1]):
        if name not in KV_TYPES:
            raise UsageError(f"{name!r} is not a KV cache type", f"llama.cpp has {', '.join(KV_TYPES)}")
    longest = max(map(len, lists))
    if any(len(each) not in (1, longest) for each in lists):
        raise UsageError(
            f"{len(lists[0])} types of the K cache and {len(lists[1])} of the V cache do not pair up",
            "pass the same number of each, or a single one",
        )
    pairs = zip(*(each * longest if len(each) == 1 else each for each in lists), strict=True)
    return tuple(dict.fromkeys((k, v) for k, v in pairs))


def kv_list_options(default: str) -> Decorator:
    """Add --type-k and --type-v, each a list; the command gets `kv_types`, a tuple of pairs."""
    return as_record(
        "kv_types",
        _kv_pairs,
        ("type_k", "type_v"),
        model_option(
            "-ctk --type-k", "Data types of the K cache, e.g. f16,q8_0.", metavar="TYPE,...", default=default
        ),
        model_option(
            "-ctv --type-v",
            "Data types of the V cache: one, or one per K type.",
            metavar="TYPE,...",
            default=default,
        ),
    )


class IgnoredGpuOptions:
    """Print one notice about GPU options without effect, once a loaded model shows it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        given = click.get_current_context().get_parameter_source
        self._names = [
            long_flag(name, None) for name in _GPU_FIELDS if given(name) is ParameterSource.COMMANDLINE
        ]

    def look(self, setup: EngineConfig, memory: Memory) -> None:
        """Print the notice if all buffers of a model with layers to offload are in main memory."""
        if not memory.buffers or not setup.may_use_gpu:
            return
        if all(each.is_host for each in memory.buffers):
            self.report(
                "llama.cpp can use no GPU here",
                'with an NVIDIA GPU in this machine: CMAKE_ARGS="-DGGML_CUDA=on" ./scripts/setup',
            )
        self._names = []

    def report(self, reason: str, hint: str) -> None:
        """Print which of the given options had no effect, and why."""
        if self._names:
            self._output.notice(f"{reason}, so {in_words(self._names)} had no effect; {hint}")
