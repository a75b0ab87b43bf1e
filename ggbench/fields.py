"""How a person gives a field of a config or of a command's options, written at the field; its docstring is the help."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

_NAMES = {"rpc_servers": "rpc", "as_json": "json"}
"""Options that are not called as their fields."""


class Option(msgspec.Struct, frozen=True):
    """The option of a field, as metadata of an `Annotated` type."""

    heading: Literal["own", "model", "memory", "source", "output"]
    """Where `--help` shows it, a name of `ggbench.commands.documented.OptionGroup`."""
    short: str = ""
    metavar: str = ""
    """What stands for the value; empty leaves it to click."""
    choices: tuple[str, ...] = ()
    is_tokens: bool = False
    """Whether it is a number of tokens, `16k`."""
    least: int | None = None
    most: int | None = None
    parse: Callable[[Any], object] | None = None
    """Makes the value of a text, or of all texts where `is_repeated`. Raises UsageError."""
    is_repeated: bool = False
    help: str = ""
    """Where it is not the first paragraph of the docstring, as of an option that switches the field off."""


def options_of(record: type) -> dict[str, tuple[Any, Option]]:
    """Return the type and the option of every field that has one, in the order of the fields."""
    found = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        if get_origin(hint) is Annotated:
            kind, option = get_args(hint)
            found[name] = (kind, option)
    return found


def long_flag(name: str, default: object) -> str:
    """Return the long name of a field's option; that of a field which is on by default switches it off."""
    words = _NAMES.get(name, name.removesuffix("_bytes")).replace("_", "-")
    return f"--no-{words}" if default is True else f"--{words}"


@functools.cache
def field_docs(record: type) -> dict[str, str]:
    """Return the docstrings under the fields of a record, those of its bases included."""
    found: dict[str, str] = {}
    for each in (base for base in reversed(record.__mro__) if vars(base).get("__annotations__")):
        tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        assert isinstance(tree.body[0], ast.ClassDef)
        for field, after in pairwise(tree.body[0].body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found
