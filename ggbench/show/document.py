"""JSON documents, each declared once as a shape whose fields have a value, a type and a meaning.

The declaration gives the output of `--json` and its JSON Schema. Fields of a record take its types and docstrings.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig, engine_module
from ggbench.errors import StoreError
from ggbench.fields import options_of
from ggbench.plugins import plugin_names
from ggbench.runs.experiment import experiment_of
from ggbench.runs.run import Result, Settings

Get: TypeAlias = Callable[[Any], Any]

_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
"""Characters that json does not escape, some of which terminals and readers mishandle."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    get: Get
    kind: Any = None
    """A type, a `Shape`, or a `Nested`; None to use the type of the record's member."""
    about: str = ""
    """Empty to use the docstring of the record's member."""
    record: type | None = None
    """The record that gives value, type and meaning; None for a field of the document itself."""
    member: str = ""
    is_text: bool = False
    """Whether an empty text is null in JSON."""
    maybe_none: bool = False
    """Whether the record may be missing; the field is then null."""
    is_always: bool = True
    """Whether every object has it, not only those for which `Shape.value` is given a value."""


class Shape:
    """A JSON object: its fields, in order."""

    def __init__(self, name: str, about: str, *parts: Iterable[Field]) -> None:
        """`about` is the object's description in the schema; a field given again keeps its first position."""
        self.name, self.about = name, about
        self.fields = tuple({each.name: each for part in parts for each in part}.values())

    def value(self, of: Any, /, **given: object) -> dict[str, object]:  # noqa: ANN401 - what its fields take
        """Return the object made from `of`; a dict is returned as it is. `given` has values by field name."""
        if isinstance(of, dict):
            return of | given
        return {
            each.name: _nested(each.kind, given[each.name] if each.name in given else each.get(of))
            for each in self.fields
            if each.is_always or each.name in given
        }

    def without(self, *names: str) -> tuple[Field, ...]:
        return tuple(each for each in self.fields if each.name not in names)

    def __or__(self, none: None) -> Nested:
        return Nested(self, "one", or_null=True)


class Nested(msgspec.Struct, frozen=True):
    shape: Shape
    how: Literal["one", "many", "by name"]
    or_null: bool = False

    def __or__(self, none: None) -> Nested:
        return replace(self, or_null=True)


class Document(Shape):
    def __init__(self, schema: str, printed_by: str, about: str, *parts: Iterable[Field]) -> None:
        """`schema` is the name, e.g. `plan` or `models.repo`; `printed_by` its command lines without `ggbench`."""
        super().__init__("Document", about, *parts)
        self.schema, self.printed_by = schema, printed_by

    def text(self, of: Any = None, /, **given: object) -> str:  # noqa: ANN401 - as `value`
        return json_text({"schema": f"ggbench.{self.schema}/1"} | self.value(of, **given))

    def json_schema(self) -> Json:
        """Return the self-contained JSON Schema."""
        return schema_of(self)


def of(
    record: type, names: str = "", at: Get | None = None, *, without: str = "", maybe: bool = False
) -> tuple[Field, ...]:
    """Return members of a record as fields; without `names` all fields of a Struct except those in `without`.

    `name=member` renames a member; a trailing `?` makes an empty text null. `at` returns the record, given the object's
    source, which is the record by default; if it returns None, all fields are null, which `maybe` states in the schema.
    """
    every: tuple[str, ...] = getattr(record, "__struct_fields__", ())
    wanted = names.split() or [name for name in every if name not in without.split()]
    return tuple(_member(record, text, at, maybe=maybe) for text in wanted)


def field(name: str, kind: Any, about: str = "", get: Get | None = None) -> tuple[Field, ...]:  # noqa: ANN401 - a type
    """Return a field of the document itself; without `get` its value is the member of that name."""
    return (Field(name=name, get=get or (lambda found: getattr(found, name)), kind=kind, about=about),)


def within(at: Get, *parts: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields of the object that `at` returns; all are null if it returns None."""

    def inside(get: Get) -> Get:
        return lambda root: None if (found := at(root)) is None else get(found)

    return tuple(replace(each, get=inside(each.get)) for part in parts for each in part)


def sometimes(*parts: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields that exist only if `Shape.value` is given their values."""
    return tuple(replace(each, is_always=False) for part in parts for each in part)


def many(shape: Shape) -> Nested:
    return Nested(shape, "many")


def by_name(shape: Shape) -> Nested:
    return Nested(shape, "by name")


def json_text(content: Mapping[str, object]) -> str:
    """Return JSON that any terminal and reader accepts; NaN and infinity become null."""
    plain = msgspec.to_builtins(content, str_keys=True, enc_hook=_builtin)
    text = json.dumps(_finite(plain), ensure_ascii=False, allow_nan=False, indent=2)
    return _NOT_ASCII.sub(
        lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text
    )


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


def _builtin(value: object) -> object:
    """Return what msgspec does not know: paths, and NumPy's numbers. Raises TypeError for anything else."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    return list(map(_finite, value)) if isinstance(value, list | tuple) else value


class RecordDocument(msgspec.Struct, frozen=True):
    """A JSON document that is a record: its members, their types, and the descriptions of `msgspec.Meta`."""

    schema: str
    """Its name, `plan` or `models.repo`."""
    printed_by: str
    """Command lines that print it, without `ggbench`."""
    about: str
    kind: type[msgspec.Struct]
    """The record, or a type by `figures_type` of one."""

    def text(self, record: object) -> str:
        """Return a record, or a dict of its members, as JSON."""
        members = msgspec.to_builtins(record, str_keys=True, enc_hook=_builtin)
        return json_text({"schema": f"ggbench.{self.schema}/2"} | members)

    def json_schema(self) -> Json:
        """Return the self-contained JSON Schema."""
        kinds = [each for kinds in _known().values() for each in kinds]
        (reference, *_), parts = msgspec.json.schema_components((self.kind, *kinds), schema_hook=_hook)
        for kind in kinds:
            for name, option in options_of(kind).items():
                parts[kind.__name__]["properties"][name]["description"] = option.help
        parts = {part: _clean(schema) for part, schema in parts.items()}
        own: Json = parts.pop(reference["$ref"].removeprefix("#/$defs/"))
        used = _references(own, parts)
        title = f"ggbench.{self.schema}/2"
        own |= {
            "properties": {"schema": {"enum": [title]}, **own["properties"]},
            "required": ["schema", *own.get("required", ())],
        }
        defs = {part: schema for part, schema in parts.items() if part in used}
        return (
            {"$schema": DIALECT, "title": title, "description": self.about}
            | own
            | ({"$defs": defs} if defs else {})
        )


def rows_document(
    schema: str,
    printed_by: str,
    about: str,
    row: type[msgspec.Struct],
    **more: object,
) -> RecordDocument:
    """Return a document whose member `rows` has objects of a type, after further members."""
    members = [*more.items(), ("rows", list[row])]  # type: ignore[valid-type]
    kind = msgspec.defstruct(f"{row.__name__}Rows", members, kw_only=True)
    return RecordDocument(schema, printed_by, about, kind)


Json: TypeAlias = dict[str, Any]
_Type: TypeAlias = Any

_MADE = "documents"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(document: Document | RecordDocument) -> Json:
    """Return the self-contained JSON Schema of a document."""
    if isinstance(document, RecordDocument):
        return document.json_schema()
    types = (_Types().of(document), *_setups())
    _, parts = msgspec.json.schema_components(types, schema_hook=_hook)
    records = {each.__name__: each for each in _records(types)}
    parts = {part: _clean(_described(schema, records.get(part))) for part, schema in parts.items()}
    own: Json = parts.pop(document.name)
    used = _references(own, parts)
    parts = {part: schema for part, schema in parts.items() if part in used}
    title = f"ggbench.{document.schema}/1"
    properties = {"schema": {"enum": [title]}, **own["properties"]}
    own |= {"properties": properties, "required": ["schema", *own["required"]]}
    return {"$schema": DIALECT, "title": title} | own | ({"$defs": parts} if parts else {})


class _Types:
    def __init__(self) -> None:
        self._made: dict[int, type[msgspec.Struct]] = {}

    def of(self, shape: Shape) -> type[msgspec.Struct]:
        if id(shape) not in self._made:
            fields = [self._field(each) for each in shape.fields]
            self._made[id(shape)] = msgspec.defstruct(
                shape.name, fields, kw_only=True, module=_MADE, namespace={"__doc__": shape.about}
            )
        return self._made[id(shape)]

    def _field(self, field: Field) -> Any:  # noqa: ANN401 - what defstruct takes
        kind, text = self._kind(field.kind), field.about
        if field.record is not None:
            kind, text = _typed_member(field.record, field.member)
        if field.is_text:
            text = text.replace("empty", "null")
        if field.maybe_none:
            kind = kind | None
        kind = Annotated[kind, Meta(description=text)] if text else kind
        return (field.name, kind) if field.is_always else (field.name, kind | UnsetType, UNSET)

    def _kind(self, kind: object) -> _Type:
        match kind:
            case Shape():
                return self.of(kind)
            case Nested(shape, how, or_null):
                struct = self.of(shape)
                found: _Type = {
                    "one": struct, "many": GenericAlias(list, (struct,)), "by name": GenericAlias(dict, (str, struct)),
                }[how]  # fmt: skip
                return found | None if or_null else found
        return kind


def _setups() -> tuple[type[EngineConfig], ...]:
    found = []
    for name in plugin_names("ggbench.engines", "engine"):
        try:
            found.append(engine_module(name).CONFIG)
        except StoreError:
            continue
    return tuple(found)


def _known() -> Mapping[type, Sequence[type]]:
    """Return the records that engines and experiments define for the settings and results of a run."""
    experiments = [experiment_of(kind) for kind in plugin_names("ggbench.experiments", "measure")]
    return {
        EngineConfig: _setups(),
        Settings: [each.settings_type for each in experiments],
        Result: [each.result_type for each in experiments],
    }


def _hook(kind: type) -> Json:
    if kind is object:
        return {"title": "anything"}  # msgspec rejects an empty one
    if issubclass(kind, PurePath):
        return {"type": "string"}
    if kind in (EngineConfig, Settings, Result):
        return {"anyOf": [{"$ref": f"#/$defs/{each.__name__}"} for each in _known()[kind]]}
    raise NotImplementedError(kind)


def _references(schema: object, parts: Mapping[str, Json]) -> set[str]:
    found: set[str] = set()
    todo = [schema]
    while todo:
        names = set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(todo.pop()))) & (parts.keys() - found)
        found |= names
        todo += [parts[name] for name in names]
    return found


def _described(schema: Json, record: type | None) -> Json:
    if record is None or "properties" not in schema:
        return schema
    return schema | {"required": list(schema["properties"])}


def _clean(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the schema without titles, which repeat names, and defaults, which do not matter for output."""
    if isinstance(schema, list):
        return [_clean(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned: Json = {}
    for key, value in schema.items():
        if key == "properties":
            cleaned[key] = {name: _clean(field) for name, field in value.items()}
        elif key == "description":
            cleaned[key] = re.sub(r"\bNone\b", "null", " ".join(value.split()))
        elif key not in ("title", "default"):
            cleaned[key] = _clean(value)
    return cleaned


def _records(types: tuple[_Type, ...]) -> Iterator[type]:
    seen: set[Any] = set()
    todo: list[Any] = list(msgspec.inspect.multi_type_info(types))
    while todo:
        each = todo.pop()
        if isinstance(each, msgspec.inspect.StructType):
            if each.cls in seen:
                continue
            seen.add(each.cls)
            if each.cls.__module__ != _MADE:
                yield each.cls
            todo += [field.type for field in each.fields]
        else:
            found = [getattr(each, name, None) for name in ("type", "item_type", "key_type", "value_type")]
            todo += [part for part in found if part is not None]
            todo += [*getattr(each, "types", ()), *getattr(each, "item_types", ())]


def _typed_member(record: type, name: str) -> tuple[_Type, str]:
    found = getattr(record, name, None)
    getter = getattr(found, "fget", None) or getattr(found, "func", None)
    if getter:
        return _hints(getter)["return"], inspect.getdoc(getter) or ""
    return _hints(record)[name], ""


_hints = functools.cache(get_type_hints)
