"""The types of JSON documents, made from their declarations: JSON Schemas, and documents read back into records.

Fields that come from a record have its types, and in a schema the docstrings of its members, read from its source.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import GenericAlias, NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ggbench.engines.contract import EngineConfig, engine_module
from ggbench.errors import StoreError
from ggbench.fields import field_docs
from ggbench.plugins import plugin_names
from ggbench.show.document import Document, Field, Nested, Shape

Json: TypeAlias = dict[str, Any]
_Type: TypeAlias = Any
_Record = TypeVar("_Record")

_MADE = "documents"
"""The module of the structs that are made of shapes."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(document: Document) -> Json:
    """Return the JSON Schema of a document, whole in itself."""
    types = (_Types(has_texts=True).of(document), *_setups())
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


def read_object(shape: Shape, content: object, dec_hook: Callable[[type, Any], Any]) -> Any:  # noqa: ANN401 - a struct
    """Return JSON of this shape as an object with its fields, None where one is missing.

    `dec_hook` is msgspec's, for a type such as `EngineConfig`. Raises msgspec.ValidationError for wrong types.
    """
    return msgspec.convert(content, _Types(has_texts=False).of(shape), dec_hook=dec_hook)


def record_of(shape: Shape, found: object, record: type[_Record], **members: object) -> _Record:
    """Return the record whose members are fields of the shape, from what `read_object` returned; `members` are others.

    A null is the default of a member that cannot be None. Raises TypeError where a member is missing that has none, and
    whatever the record raises.
    """
    hints = get_type_hints(record)
    known = {
        each.member: value
        for each in shape.fields
        if each.record is record and each.member in hints
        for value in [getattr(found, each.name)]
        if value is not None or NoneType in get_args(hints[each.member])
    }
    return record(**known | members)


class _Types:
    """The structs of shapes, each made once."""

    def __init__(self, *, has_texts: bool) -> None:
        """With texts as a schema has them; without as a reader takes them, who finds None where a field is missing."""
        self._has_texts = has_texts
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
        if field.record is not None and self._has_texts:
            kind, text = _member(field.record, field.member)
        elif field.record is not None:
            kind = _member_type(field.record, field.member)
        if field.is_text:
            text = text.replace("empty", "null")
        if field.maybe_none:
            kind = kind | None
        if not self._has_texts:
            return field.name, kind, None
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
    """How each engine loads a model."""
    found = []
    for name in plugin_names("ggbench.engines"):
        try:
            found.append(engine_module(name).CONFIG)
        except StoreError:
            continue
    return tuple(found)


def _hook(kind: type) -> Json:
    """The schema of `object`, and of the config of any engine. Raises NotImplementedError for other types."""
    if kind is object:
        return {"title": "anything"}  # msgspec takes none that is empty
    if kind is EngineConfig:
        return {"anyOf": [{"$ref": f"#/$defs/{each.__name__}"} for each in _setups()]}
    raise NotImplementedError(kind)


def _references(schema: object, parts: Mapping[str, Json]) -> set[str]:
    """The names of the parts that a schema refers to, those that they refer to included."""
    found: set[str] = set()
    todo = [schema]
    while todo:
        each = todo.pop()
        todo += each if isinstance(each, list) else each.values() if isinstance(each, dict) else []
        name = str(each.get("$ref", "")).removeprefix("#/$defs/") if isinstance(each, dict) else ""
        if name in parts and name not in found:
            found.add(name)
            todo.append(parts[name])
    return found


def _described(schema: Json, record: type | None) -> Json:
    """Every field of a record is in the document, also one that has its default; docstrings say what it is."""
    if record is None or "properties" not in schema:
        return schema
    docs = field_docs(record)
    for name, field in schema["properties"].items():
        if name in docs:
            schema["properties"][name] = {"description": docs[name]} | field
    return schema | {"required": list(schema["properties"])}


def _clean(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """The schema without titles, which repeat names, and without defaults, which an output has no use for."""
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
    """Every record that these types reach."""
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


def _member(record: type, name: str) -> tuple[_Type, str]:
    """The type of a field or a property and what its docstring says."""
    getter = _getter(record, name)
    return _member_type(record, name), (inspect.getdoc(getter) if getter else field_docs(record).get(name)) or ""


def _member_type(record: type, name: str) -> _Type:
    getter = _getter(record, name)
    return get_type_hints(getter)["return"] if getter else get_type_hints(record)[name]


def _getter(record: type, name: str) -> Any:  # noqa: ANN401 - a function
    found = getattr(record, name, None)
    return getattr(found, "fget", None) or getattr(found, "func", None)
