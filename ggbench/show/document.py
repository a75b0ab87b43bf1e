"""JSON documents, each declared once: shapes whose fields know where their values come from, their types and meanings.

The declaration makes what `--json` prints. `ggbench.show.document_types` makes the JSON Schema from it, and reads a
document back. Fields of a record have the record's own types and docstrings, so that nothing is written twice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

Get: TypeAlias = Callable[[Any], Any]
"""Takes what an object is made of."""

_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
"""What json leaves as it is; some of it a terminal, a line reader or UTF-8 does not take, or a reader cannot see."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of an object."""

    name: str
    get: Get
    kind: Any = None
    """A type, a `Shape`, or a `Nested`; None for that of the record's member."""
    about: str = ""
    """Empty for what the record's member has."""
    record: type | None = None
    """Where the value, its type and its meaning come from; None of a field that is the document's own."""
    member: str = ""
    is_text: bool = False
    """Whether it is a text of which the empty one is null in JSON."""
    maybe_none: bool = False
    """Whether there may be no such record, so that the field is null."""
    is_always: bool = True
    """Whether it is in every object; else only where `Shape.value` is given a value for it."""


class Shape:
    """An object of JSON: its fields in their order."""

    def __init__(self, name: str, about: str, *parts: Iterable[Field]) -> None:
        """`about` describes the object in its schema; a field that is there twice has the place of the first."""
        self.name, self.about = name, about
        self.fields = tuple({each.name: each for part in parts for each in part}.values())

    def value(self, of: Any, /, **given: object) -> dict[str, object]:  # noqa: ANN401 - what its fields take
        """Return the object made of this; a dict is one already. `given` has values of fields by their names."""
        if isinstance(of, dict):
            return of | given
        return {
            each.name: _nested(each.kind, given[each.name] if each.name in given else each.get(of))
            for each in self.fields
            if each.is_always or each.name in given
        }

    def without(self, *names: str) -> tuple[Field, ...]:
        """Return the fields but for these."""
        return tuple(each for each in self.fields if each.name not in names)

    def __or__(self, none: None) -> Nested:
        """Return the type of a field that has such an object, or null."""
        return Nested(self, "one", or_null=True)


class Nested(msgspec.Struct, frozen=True):
    """The type of a field that has objects of a shape: one, several, or each under a name."""

    shape: Shape
    how: Literal["one", "many", "by name"]
    or_null: bool = False

    def __or__(self, none: None) -> Nested:
        """Return the same, or null."""
        return replace(self, or_null=True)


class Document(Shape):
    """What a command prints with `--json`."""

    def __init__(self, schema: str, printed_by: str, about: str, *parts: Iterable[Field]) -> None:
        """`schema` is its name, `plan` or `models.repo`; `printed_by` the command lines, without `ggbench`."""
        super().__init__("Document", about, *parts)
        self.schema, self.printed_by = schema, printed_by

    def text(self, of: Any = None, /, **given: object) -> str:  # noqa: ANN401 - as `value`
        """Return the document made of this, its schema first."""
        return json_text({"schema": f"ggbench.{self.schema}/1"} | self.value(of, **given))


def of(
    record: type, names: str = "", at: Get | None = None, *, without: str = "", maybe: bool = False
) -> tuple[Field, ...]:
    """Return members of a record as fields; without `names` all fields of a Struct but those of `without`.

    `name=member` is one that the document calls `name`; with a `?` behind it is a text of which the empty one is null.
    `at` finds the record in what the object is made of, by default that itself; all are null where it finds none, which
    `maybe` says in the schema.
    """
    every: tuple[str, ...] = getattr(record, "__struct_fields__", ())
    wanted = names.split() or [name for name in every if name not in without.split()]
    return tuple(_member(record, text, at, maybe=maybe) for text in wanted)


def field(name: str, kind: Any, about: str = "", get: Get | None = None) -> tuple[Field, ...]:  # noqa: ANN401 - a type
    """Return one field that the document has of its own; without `get` the member of that name, or what is given."""
    return (Field(name=name, get=get or (lambda found: getattr(found, name)), kind=kind, about=about),)


def within(at: Get, *parts: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields of what `at` finds in what the object is made of; all are null where it finds None."""

    def inside(get: Get) -> Get:
        return lambda root: None if (found := at(root)) is None else get(found)

    return tuple(replace(each, get=inside(each.get)) for part in parts for each in part)


def sometimes(*parts: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields that are there only where an option asks for them: `Shape.value` is given their values."""
    return tuple(replace(each, is_always=False) for part in parts for each in part)


def many(shape: Shape) -> Nested:
    """Return the type of a list."""
    return Nested(shape, "many")


def by_name(shape: Shape) -> Nested:
    """Return the type of an object that has such objects under names that are not fixed."""
    return Nested(shape, "by name")


def json_text(content: Mapping[str, object]) -> str:
    """Return JSON that any terminal and reader takes; a number that JSON does not have becomes null."""
    text = json.dumps(_strict(content), ensure_ascii=False, allow_nan=False, indent=2)
    return _NOT_ASCII.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


def _member(record: type, text: str, at: Get | None, *, maybe: bool) -> Field:
    name, _, member = text.rstrip("?").partition("=")
    member, is_text = member or name, text.endswith("?")

    def get(root: object) -> object:
        found = root if at is None else at(root)
        if found is None or (at is not None and not isinstance(found, record)):
            return None
        return getattr(found, member) or None if is_text else getattr(found, member)

    return Field(name=name, get=get, record=record, member=member, is_text=is_text, maybe_none=maybe or is_text)


def _nested(kind: object, found: Any) -> object:  # noqa: ANN401 - what the shape's fields take
    if found is None:
        return None
    match kind:
        case Shape():
            return kind.value(found)
        case Nested(shape, "one"):
            return shape.value(found)
        case Nested(shape, "many"):
            return [shape.value(each) for each in found]
        case Nested(shape, "by name"):
            return {name: shape.value(each) for name, each in found.items()}
    return found


def _strict(value: object) -> object:
    """The value as JSON's own types; raises TypeError for one that has no such form."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_strict(entry) for entry in value]
    if isinstance(value, frozenset):
        return sorted(map(_strict, value), key=str)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return {name: _strict(getattr(value, name)) for name in value.__struct_fields__}
    raise TypeError(f"{type(value).__name__} has no form in JSON")
