"""A document compared with its schema, by jsonschema."""

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator

from ggbench.cli.help import documents

START = '{\n  "schema": "ggbench.'
"""How everything begins that a command prints with --json."""


_BASE = "LlamaConfig"
"""A record in whose place a kind of it with more members may be."""


def check_document(text: str) -> None:
    """Raise AssertionError unless it has exactly the keys of its schema, with values of the right types."""
    document = json.loads(text)
    name = document["schema"].removeprefix("ggbench.").partition("/")[0]
    errors = [f"{each.json_path}: {each.message[:300]}" for each in _validator(name).iter_errors(document)]
    assert not errors, "\n".join([document["schema"], *errors[:20]])


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(_closed(documents()[name].json_schema()))


def _closed(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the schema without the allowance for keys that later versions add."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: value if key == _BASE else _closed(value) for key, value in schema.items()}
    is_object = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    return closed | {"additionalProperties": False} if is_object else closed
