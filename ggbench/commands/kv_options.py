"""Options for several types of the KV cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ggbench.commands.options import as_record, model_option
from ggbench.engines.llama.config import KV_TYPES
from ggbench.errors import UsageError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _kv_pairs(type_k: str, type_v: str) -> tuple[tuple[str, str], ...]:
    """Pairs of types of K and V; one type goes with each of several. Raises UsageError."""
    lists = [[part.strip().lower() for part in text.split(",")] for text in (type_k, type_v)]
    for name in (*lists[0], *lists[1]):
        if name not in KV_TYPES:
            raise UsageError(f"{name!r} is not a type of a KV cache", f"llama.cpp has {', '.join(KV_TYPES)}")
    longest = max(map(len, lists))
    if any(len(each) not in (1, longest) for each in lists):
        raise UsageError(
            f"{len(lists[0])} types of the K cache and {len(lists[1])} of the V cache do not pair up",
            "give as many of each, or one",
        )
    pairs = zip(*(each * longest if len(each) == 1 else each for each in lists), strict=True)
    return tuple(dict.fromkeys((k, v) for k, v in pairs))


def kv_list_options(default: str = "f16") -> Callable[[_Function], _Function]:
    """Add --type-k and --type-v, each a list; the command gets the pairs as `kv_types`."""
    return as_record(
        "kv_types",
        _kv_pairs,
        ("type_k", "type_v"),
        model_option("-ctk --type-k", "Data types of the K cache, e.g. f16,q8_0.", metavar="TYPE,...", default=default),
        model_option(
            "-ctv --type-v", "Data types of the V cache, as many or one.", metavar="TYPE,...", default=default
        ),
    )
