"""How fields of settings are given: as an option of a command, in a dialog, and in the line that reproduces a run.

An `Option` in the annotation of a field is all there is to say of it. Its text is parsed the same everywhere.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ggbench.engines.llama.config import KV_TYPES
from ggbench.errors import UsageError
from ggbench.units import exact_size, parse_batch_sizes, parse_duration, parse_size, parse_tokens


class Kind(msgspec.Struct, frozen=True):
    """How a value is written."""

    read: Callable[[str], Any]
    """Raises UsageError."""
    write: Callable[[Any], str] = str
    metavar: str | None = None
    """In help; None takes the parser's own."""
    counts_tokens: bool = False
    """Whether its numbers may have a k or an m."""


class Option(msgspec.Struct, frozen=True):
    """One field of settings that a person may give."""

    flags: str
    """Separated by spaces, the long one last."""
    help: str
    kind: Kind
    shown: str | None = None
    """The default as help has it; None writes the field's own, an empty one shows none."""
    name: str = ""
    """Of the option in a line that reproduces a run; empty for that of the last flag."""
    is_always_stated: bool = False
    """Whether such a line has the option for the default too."""


def _token_list(text: str, least: int = 1, hint: str = "") -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(parse_tokens(part, least=least) for part in text.split(",")))
    except UsageError as error:
        hint = hint or "write numbers of tokens separated by commas: 1,25,512,16k"
        raise UsageError(error.message, hint) from None


def _kv_types(text: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    if unknown := [each for each in types if each not in KV_TYPES]:
        raise UsageError(f"{unknown[0]!r} is not a type of a KV cache", f"llama.cpp has {', '.join(KV_TYPES)}")
    return types


def _joined(values: Sequence[object]) -> str:
    return ",".join(map(str, values))


COUNT = Kind(int, metavar="N")
FLAG = Kind(bool)
"""`--on/--off` for one that is on by default."""
TOKENS = Kind(parse_tokens, counts_tokens=True)
TOKEN_LIST = Kind(_token_list, _joined, "N,N,...", counts_tokens=True)
DEPTH_LIST = Kind(
    lambda text: _token_list(text, 0, "write depths in tokens: 0,8192"), _joined, "N,N,...", counts_tokens=True
)
BATCH_SIZES = Kind(parse_batch_sizes, _joined, "N,N,...")
DURATION = Kind(parse_duration, lambda seconds: f"{seconds:g}s", "TIME")
SIZE_OR_NONE = Kind(lambda text: 0 if text.strip() == "0" else parse_size(text), exact_size, "SIZE")
KV_TYPE_LIST = Kind(_kv_types, _joined, "TYPE,...")
CHOICE = Kind(str)
"""One of the values of the field's Literal."""


def options_of(settings: type[Any]) -> Mapping[str, Option]:
    """Return the options of a type of settings by their fields."""
    hints = typing.get_type_hints(settings, include_extras=True)
    found = ((name, each) for name, hint in hints.items() for each in getattr(hint, "__metadata__", ()))
    return {name: each for name, each in found if isinstance(each, Option)}


def stated_options(settings: object) -> dict[str, object]:
    """Return the options that make these settings, for `reproduce`: those that are not the default."""
    stated: dict[str, object] = {}
    kind: Any = type(settings)
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    for field, option in options_of(kind).items():
        value, is_own = getattr(settings, field), getattr(settings, field) != defaults[field]
        if value is not None and (is_own or option.is_always_stated):
            name = option.name or option.flags.split()[-1].lstrip("-")
            if option.kind is FLAG:
                on, _, off = name.partition("/--")
                stated[on if value else off] = True
            else:
                stated[name] = option.kind.write(value)
    return stated
