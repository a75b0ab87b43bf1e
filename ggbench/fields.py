"""Options of configs and settings: on the command line, in a dialog, and in the line that reproduces a run.

An `Option` in the annotation of a field describes it completely. Its text is parsed the same way everywhere.
"""

from __future__ import annotations

import functools
import shlex
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from ggbench.errors import UsageError
from ggbench.record import Record
from ggbench.units import exact_size, parse_batch_sizes, parse_duration, parse_size, parse_tokens

_NAMES = {"rpc_servers": "rpc", "as_json": "json", "as_markdown": "md", "n_seq_max": "parallel"}
"""Options whose names differ from their fields'."""


class FieldKind(Record):
    read: Callable[[str], Any] = str
    """Raises UsageError."""
    write: Callable[[Any], str] = str
    metavar: str | None = None
    """Placeholder in help; None for the parser's own."""
    names_option: bool = True
    """Whether error messages start with the option's name."""
    least: int | None = None
    """Minimum of a whole number; None for no minimum or another kind of value."""
    most: int | None = None
    choices: tuple[str, ...] = ()
    """Accepted words, in any case; if empty, those of the field's type."""


class Option(Record):
    flags: str = ""
    """Flags separated by spaces, the long one last; by default derived from the field's name."""
    help: str = ""
    """Sentences, of which `--help` shows as many as fit into a line."""
    kind: FieldKind = FieldKind()
    heading: Literal["own", "model", "memory", "source", "output", "checkpoint", "rare"] = "own"
    """Its group in `--help`, a key of `HEADINGS` in ggbench.commands.documented."""
    shown: str | None = None
    """Default shown in help; None for the field's own, empty for none."""
    name: str = ""
    """Name in a line that reproduces a run; empty for the last flag."""
    is_always_stated: bool = False
    """Whether such a line has the option even for the default."""
    is_repeated: bool = False
    """Whether it may be given several times, each with some of the values."""

    def flags_of(self, field: str, default: object) -> list[str]:
        given = self.flags.split()
        return given if given and given[-1].startswith("--") else [*given, long_flag(field, default)]


def _token_list(text: str, least: int = 1, hint: str = "") -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(parse_tokens(part, least=least) for part in text.split(",")))
    except UsageError as error:
        hint = hint or "write numbers of tokens separated by commas: 1,25,512,16k"
        raise UsageError(error.message, hint) from None


def joined(values: Sequence[object]) -> str:
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


COUNT = FieldKind(int, metavar="N", least=1, most=1_000_000)
MOST_SLOTS = 256
"""LLAMA_MAX_SEQ of llama.cpp's llama-cparams.h."""
SLOTS = FieldKind(int, metavar="N", least=1, most=MOST_SLOTS)
FLAG = FieldKind(bool)
"""A flag, `--on/--off` if on by default."""
TOKENS = FieldKind(parse_tokens)
TOKEN_LIST = FieldKind(_token_list, joined, "N,N,...")
DEPTH_LIST = FieldKind(lambda text: _token_list(text, 0, "write depths in tokens: 0,8192"), joined, "N,N,...")
BATCH_SIZES = FieldKind(parse_batch_sizes, joined, "N,N,...")
DURATION = FieldKind(parse_duration, lambda seconds: f"{seconds:g}s", "TIME")
SIZE = FieldKind(parse_size, exact_size, "SIZE", names_option=False)
SIZE_OR_NONE = FieldKind(lambda text: 0 if text.strip() == "0" else parse_size(text), exact_size, "SIZE")
CHOICE = FieldKind(str)
"""One of the values of the field's Literal."""


@functools.cache
def options_of(record: type) -> Mapping[str, Option]:
    """Return the options of a struct type by field name."""
    hints = typing.get_type_hints(record, include_extras=True)
    found = ((name, each) for name, hint in hints.items() for each in getattr(hint, "__metadata__", ()))
    return {name: each for name, each in found if isinstance(each, Option)}


@functools.cache
def defaults_of(record: type) -> Mapping[str, Any]:
    """Return a struct type's defaults by field name; required fields are absent.

    Avoids `msgspec.structs.fields`, which evaluates every annotation on each call.
    """
    names, defaults = record.__struct_fields__, record.__struct_defaults__  # type: ignore[attr-defined]
    return dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))


def stated_options(settings: object) -> dict[str, object]:
    """Return the options that differ from the default or are always stated, for `reproduce`."""
    stated: dict[str, object] = {}
    kind: Any = type(settings)
    defaults = defaults_of(kind)
    for field, option in options_of(kind).items():
        value, is_own = getattr(settings, field), getattr(settings, field) != defaults.get(field)
        if value is not None and (is_own or option.is_always_stated):
            name = option.name or option.flags.split()[-1].lstrip("-")
            if option.kind is FLAG:
                on, _, off = name.partition("/--")
                stated[on if value else off] = True
            else:
                stated[name] = option.kind.write(value)
    return stated


def reproduce(command: str, words: Sequence[str], config: object, options: Mapping[str, object]) -> str:
    """Return one line for a shell with every option that is not the default."""
    line = ["ggbench", command, *words]
    for name, value in options.items():
        line += [f"-{name}" if len(name) == 1 else f"--{name}", *([] if value is True else [str(value)])]
    return shlex.join([*line, *config_options(config)])


def config_options(config: object, *, without: Collection[str] = ()) -> list[str]:
    """Return the options of fields that are not the default and not implied by MODEL and QUANT, `without` some."""
    words = ["--engine", engine] if (engine := getattr(config, "engine_option", "")) else []
    left_out = {*getattr(config, "in_words", ()), *without}
    kind: Any = type(config)
    for field, default in defaults_of(kind).items():
        value = getattr(config, field)
        if value == default or field in left_out:
            continue
        words.append(long_flag(field, default))
        if isinstance(value, tuple):
            words.append(joined(value))
        elif not isinstance(value, bool):
            words.append(exact_size(value) if field.endswith("_bytes") else str(value))
    return words


def long_flag(field: str, default: object) -> str:
    """Return the long flag of a field; if the field is on by default, the flag turns it off."""
    words = _NAMES.get(field, field.removesuffix("_bytes")).replace("_", "-")
    return f"--no-{words}" if default is True else f"--{words}"
