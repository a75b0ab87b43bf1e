"""The schemas that the package ships: made from the shapes, one for each answer of each command, and strict."""

from __future__ import annotations

import json
import pkgutil

import click
import pytest
from jsonschema import Draft202012Validator

from ggbench import experiments
from ggbench.cli.main import cli
from ggbench.cli.topics import documents
from ggbench.show.document_types import schema_of
from ggbench.show.documents import document
from ggbench.show.model_documents import SEARCH
from ggbench.show.presenter import presenter_of
from ggbench.sizing.cluster import ClusterPlan, ClusterSplit, DeviceSpeed
from tests.schemas.files import FOLDER, schema_files
from tests.schemas.shapes import references
from tests.schemas.validation import check_document

SHIPPED = {file.stem: json.loads(file.read_text()) for file in FOLDER.glob("*.json")}
SHIPPED |= {name: schema_of(each) for name, each in documents().items()}
KINDS = [each.name for each in pkgutil.iter_modules(experiments.__path__) if each.ispkg]


def test_shipped_schemas_are_what_the_shapes_give() -> None:
    """After a change to a record or a shape: python -m tests.schemas."""
    assert {file.name: file.read_text() for file in FOLDER.glob("*.json")} == schema_files()


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_each_schema_is_json_schema_and_names_its_document(name: str) -> None:
    """By the metaschema of its dialect, without a reference out of the file, and with no title but its own."""
    schema = SHIPPED[name]
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"ggbench.{name}/1"
    assert schema["properties"]["schema"] == {"enum": [f"ggbench.{name}/1"]}
    assert schema["required"][0] == "schema"
    parts = schema.get("$defs", {})
    assert references(schema["properties"], parts) == set(parts)
    assert json.dumps(schema).count('"$ref": "') == json.dumps(schema).count('"$ref": "#/$defs/')


def test_every_command_with_json_has_a_schema() -> None:
    """Under its name, that of its subcommand, or that of its group."""
    for path in _commands_with_json(cli, ()):
        assert ".".join(path) in SHIPPED or path[0] in SHIPPED, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_schema_as_measured_and_as_stored(kind: str) -> None:
    """By the names that the command and `results show` give their documents."""
    assert kind in SHIPPED
    assert f"results.{presenter_of(kind).schema}" in SHIPPED


def test_fields_are_described_by_the_docstrings_of_the_records() -> None:
    """A figure's unit and what null means are in the schema, as in the code."""
    planned = SHIPPED["plan"]["$defs"]["Row"]["properties"]["planned_n_ctx"]
    assert planned["description"] == "The longest context within the budget; null where not even 256 tokens are."
    assert planned["anyOf"] == [{"type": "integer"}, {"type": "null"}]


def test_a_plan_of_a_cluster_is_as_its_schema_says() -> None:
    """Which no test of the commands prints, as it takes machines."""
    best = ClusterSplit(n_layers=(8, 0), b_ms=2.0, at_n_ctx_ms=4.0)
    speed = DeviceSpeed(device="RPC0[a:1]", server="a:1", layer_ms=0.2, kv_ms=0.001, output_ms=0.4, link_ms=0.1)
    without = (("a:1", None), ("this machine", best))
    plan = ClusterPlan(model="m", quant="q8_0", n_ctx=2048, speeds=(speed,), best=best, without=without)
    check_document(document("cluster.plan", model="m", plans=[plan]))


@pytest.mark.parametrize(
    "change",
    [{"rows": [{"repo": "a/b"}]}, {"search": None}, {"more": 1}, {"rows": None}],
    ids=["a row without its keys", "a wrong type", "a key too many", "null where a list belongs"],
)
def test_a_document_that_differs_from_its_schema_fails(change: dict[str, object]) -> None:
    """Else the check of what the commands print would show nothing."""
    content: dict[str, object] = {"search": "x", "rows": []}
    check_document(SEARCH.text(content))
    with pytest.raises(AssertionError, match=r"models\.search"):
        check_document(SEARCH.text(content | change))


def _commands_with_json(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    own = [path] if any("--json" in each.opts for each in command.params) else []
    if not isinstance(command, click.Group):
        return own
    context = click.Context(command)
    parts = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return own + [each for name, part in parts if part for each in _commands_with_json(part, (*path, name))]
