"""The schemas of what --json prints: made from the declarations, one for each answer of each command, and strict."""

import click
import pytest
from jsonschema import Draft202012Validator

from ggbench.cli.help import documents
from ggbench.cli.main import cli
from ggbench.show.model_documents import SEARCH
from tests.cli.conftest import Run
from tests.cli.validation import check_document


def test_the_schemas_are_json_schema() -> None:
    """One of an answer, and one of many runs; all are made by one function."""
    schemas = [documents()[name].json_schema() for name in ("pick", "compare")]
    shared = {name: part for each in schemas for name, part in each.pop("$defs", {}).items()}
    for each in (*schemas, *shared.values()):
        Draft202012Validator.check_schema(each)


def test_every_command_with_json_has_a_schema() -> None:
    known = documents()
    for path in _commands_with_json(cli, ()):
        assert ".".join(path) in known or path[0] in known, path


def test_help_lists_the_schemas_and_prints_one(ggbench: Run) -> None:
    listed = ggbench("help", "schema").out
    assert all(f"  {name} " in listed for name in documents())
    assert ggbench("help", "schema", "nothing").code == 2
    plan = ggbench("help", "schema", "plan").json
    assert plan == ggbench("help", "schema", plan["title"]).json
    assert plan["properties"]["schema"] == {"enum": [plan["title"]]}


@pytest.mark.parametrize(
    "change",
    [{"rows": [{"repo": "a/b"}]}, {"search": None}, {"more": 1}],
    ids=["a row without its keys", "a wrong type", "a key too many"],
)
def test_a_document_that_differs_from_its_schema_fails(change: dict[str, object]) -> None:
    content: dict[str, object] = {"search": "x", "rows": []}
    check_document(SEARCH.text(content))
    with pytest.raises(AssertionError, match=r"models\.search"):
        check_document(SEARCH.text(content | change))


def test_a_figure_with_a_unit_is_a_number_or_null() -> None:
    fields = documents()["decode"].json_schema()["properties"]
    for key in ("tok_s", "b_ms", "memory_bytes", "n_ctx"):
        assert fields[key]["anyOf"] == [{"type": "number"}, {"type": "null"}], key


def _commands_with_json(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    own = [path] if any("--json" in each.opts for each in command.params) else []
    if not isinstance(command, click.Group):
        return own
    context = click.Context(command)
    parts = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return own + [each for name, part in parts if part for each in _commands_with_json(part, (*path, name))]
