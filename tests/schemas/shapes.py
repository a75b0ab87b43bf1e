"""Shapes of JSON documents as types, and the JSON Schema that msgspec makes of them.

Fields that a document takes from a record have the record's own type and docstring, so that a schema changes with it.
"""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec
import msgspec.structs
from msgspec import UNSET, Meta, UnsetType

Type: TypeAlias = Any
"""What msgspec takes as one: a class, a union, or any of these with a description."""
Fields: TypeAlias = Mapping[str, Type]
"""Types by the names of the fields, in the order of the document."""
Struct: TypeAlias = type[msgspec.Struct]
Json: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def struct(name: str, description: str, *parts: Fields) -> Struct:
    """Return an object of these fields; all are always there, but for those of `sometimes`."""
    fields: list[Any] = []
    for field, kind in {field: kind for part in parts for field, kind in part.items()}.items():
        is_always = UnsetType not in getattr(kind, "__args__", ())
        fields.append((field, kind) if is_always else (field, kind, UNSET))
    return msgspec.defstruct(name, fields, kw_only=True, namespace={"__doc__": description})


def of(record: type, names: str = "", *, maybe: bool = False, without: str = "") -> dict[str, Type]:
    """Return fields and properties of a record under their own names; without `names` all fields but `without`.

    With `maybe` there need not be a record, so that each may be null.
    """
    wanted = names.split() or [
        field.name for field in msgspec.structs.fields(record) if field.name not in without.split()
    ]
    found = {name: _member(record, name) for name in wanted}
    return {name: about(kind | None if maybe else kind, text) for name, (kind, text) in found.items()}


def many(kind: Type) -> Type:
    """Return the type of a list."""
    return GenericAlias(list, (kind,))


def by(kind: Type) -> Type:
    """Return the type of an object that has such values under names that are not fixed."""
    return GenericAlias(dict, (str, kind))


def one(record: type, name: str, *, maybe: bool = False) -> Type:
    """Return one field of a record, for a document that has it under another name."""
    return of(record, name, maybe=maybe)[name]


def about(kind: Type, text: str) -> Type:
    """Return a type with a description."""
    return Annotated[kind, Meta(description=text)] if text else kind


def sometimes(fields: Fields) -> dict[str, Type]:
    """Return the fields as such that are there only where an option or the kind of run asks for them."""
    return {name: kind | UnsetType for name, kind in fields.items()}


def any_of(*records: type) -> Type:
    """Return the type of an object that is one of these records, which `schema_of` then has to be given."""
    found = [{"$ref": f"#/$defs/{each.__name__}"} for each in records]
    return Annotated[object, Meta(extra_json_schema={"anyOf": found})]


def schema_of(name: str, document: Struct, named: tuple[type, ...] = ()) -> Json:
    """Return the JSON Schema of the document `ggbench.<name>/1`, whole in itself; `named` are records of `any_of`."""
    whole = struct(
        document.__name__,
        document.__doc__ or "",
        {"schema": Literal[f"ggbench.{name}/1"]},
        {field.name: field.type for field in msgspec.structs.fields(document)},
    )
    types: tuple[type, ...] = (whole, *named)
    _, parts = msgspec.json.schema_components(types, schema_hook=_any)
    records = {each.__name__: each for each in _records(types)}
    parts = {part: _clean(_described(schema, records.get(part))) for part, schema in parts.items()}
    own: Json = parts.pop(whole.__name__)
    used = references(own, parts)
    parts = {part: schema for part, schema in parts.items() if part in used}
    return {"$schema": DIALECT, "title": f"ggbench.{name}/1"} | own | ({"$defs": parts} if parts else {})


def references(schema: object, parts: Mapping[str, Json]) -> set[str]:
    """Return the names of the parts that a schema refers to, those that they refer to included."""
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


def _any(kind: type) -> Json:
    """The schema of `object`; msgspec takes none that is empty. Raises NotImplementedError for what is not JSON."""
    if kind is object:
        return {"title": "anything"}
    raise NotImplementedError(kind)


def _described(schema: Json, record: type | None) -> Json:
    """Every field of a record is in the document, also one that has its default; docstrings say what it is."""
    if record is None or "properties" not in schema:
        return schema
    docs = _docs(record)
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


def _records(types: tuple[Type, ...]) -> Iterator[type]:
    """Every record that these types reach."""
    seen: set[Any] = set()
    todo: list[Any] = list(msgspec.inspect.multi_type_info(types))
    while todo:
        each = todo.pop()
        if isinstance(each, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
            if each.cls in seen:
                continue
            seen.add(each.cls)
            if each.cls.__module__.startswith("ggbench."):
                yield each.cls
            todo += [field.type for field in each.fields]
        else:
            found = [getattr(each, name, None) for name in ("type", "item_type", "key_type", "value_type")]
            todo += [part for part in found if part is not None]
            todo += [*getattr(each, "types", ()), *getattr(each, "item_types", ())]


def _member(record: type, name: str) -> tuple[Type, str]:
    """The type of a field or a property and what its docstring says."""
    found = getattr(record, name, None)
    getter = getattr(found, "fget", None) or getattr(found, "func", None)
    if getter is not None:
        return get_type_hints(getter)["return"], inspect.getdoc(getter) or ""
    return get_type_hints(record)[name], _docs(record).get(name, "")


@functools.cache
def _docs(record: type) -> dict[str, str]:
    """The docstrings under the fields of a record, those of its bases included."""
    found: dict[str, str] = {}
    for each in (base for base in reversed(record.__mro__) if base.__module__.startswith("ggbench.")):
        tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        assert isinstance(tree.body[0], ast.ClassDef)
        for field, after in pairwise(tree.body[0].body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found
