"""JSON documents: what `--json` prints is a record, or its figures by key, and its schema is that of their types."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias

import msgspec

from ggbench.engines.contract import EngineConfig, engine_module
from ggbench.fields import options_of
from ggbench.plugins import plugin_names
from ggbench.record import Record
from ggbench.runs.experiment import experiment_of
from ggbench.runs.run import Result, Settings

Json: TypeAlias = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
"""Characters that json does not escape, some of which terminals and readers mishandle."""


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


class Document(Record):
    """A JSON document that is a record: its members, their types, and the descriptions of `msgspec.Meta`."""

    schema: str
    """Its name, `plan` or `models.repo`."""
    printed_by: str
    """Command lines that print it, without `ggbench`."""
    about: str
    kind: type[msgspec.Struct]
    """The record, or a type by `figures_type` of one."""

    def text(self, record: object) -> str:
        """Return a record, or a dict of its members, as JSON for any terminal and reader: NaN and infinity are null."""
        members = msgspec.to_builtins(record, str_keys=True, enc_hook=_builtin)
        content = _finite({"schema": f"ggbench.{self.schema}/2"} | members)
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2)
        return _NOT_ASCII.sub(
            lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text
        )

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
) -> Document:
    """Return a document whose member `rows` has objects of a type, after further members."""
    members = [*more.items(), ("rows", list[row])]  # type: ignore[valid-type]
    kind = msgspec.defstruct(f"{row.__name__}Rows", members, kw_only=True)
    return Document(schema, printed_by, about, kind)


def _known() -> Mapping[type, Sequence[type]]:
    """Return the records that engines and experiments define for the settings and results of a run."""
    experiments = [experiment_of(kind) for kind in plugin_names("ggbench.experiments", "measure")]
    engines = map(engine_module, plugin_names("ggbench.engines", "engine"))
    return {
        EngineConfig: [kind for each in engines for kind in each.CONFIGS.values()],
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
