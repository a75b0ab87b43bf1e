"""One vocabulary: a number is described by a Figure alone, and a table is drawn by ggbench.show.answer alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import ggbench

PACKAGE = Path(ggbench.__file__).parent
_GETTERS = {"get", "value", "of"}
_NAMES = {"header", "name"}


def _second_descriptions(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the classes with the name of a number and a function that gets it."""
    for kind in (node for node in nodes if isinstance(node, ast.ClassDef)):
        fields = {
            each.target.id: ast.unparse(each.annotation)
            for each in kind.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        functions = {name for name, hint in fields.items() if "Callable" in hint}
        if (fields.keys() & _NAMES and functions & _GETTERS) or ("header" in fields and functions):
            yield kind.name


def _formatted(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names of numbers in tuples of two strings and a function that formats."""
    for node in nodes:
        match node:
            case ast.Tuple(elts=[ast.Constant(value=str(name)), ast.Constant(value=str()), *rest]) if any(
                isinstance(each, ast.Lambda) or ast.unparse(each).startswith("format_") for each in rest
            ):
                yield name


def _drawings(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield what a module has that draws a table."""
    for node in nodes:
        match node:
            case ast.ImportFrom(module="rich.table") | ast.ImportFrom(module="rich", names=[ast.alias(name="table")]):
                yield "draws a table"
            case ast.Constant(value=str(text)) if "--:" in text or "| ---" in text or "---|" in text:
                yield "writes Markdown"


def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def _found(path: Path) -> Iterator[str]:
    name, nodes = path.relative_to(PACKAGE).as_posix(), _nodes(path.read_text(encoding="utf-8"))
    if name != "show/figure.py":
        yield from (f"{name} {each}" for each in _second_descriptions(nodes))
    if not name.startswith("runs/"):  # below show, so no figure is there
        yield from (f"{name} {each}" for each in _formatted(nodes))
    if name != "show/answer.py":
        yield from (f"{name} {each}" for each in _drawings(nodes))


def test_a_figure_is_the_only_description_of_a_number_and_an_answer_draws_every_table() -> None:
    found = {each for path in PACKAGE.rglob("*.py") for each in _found(path)}
    assert not found


def test_a_second_description_and_a_table_by_hand_are_found() -> None:
    second = "class Column:\n    header: str\n    text: Callable[[Row], str]\n"
    renamed = "class Property:\n    name: str\n    of: Callable[[Row], str]\n"
    plain = "class Option:\n    name: str\n    check: Callable[[str], str]\n"
    assert [*_second_descriptions(_nodes(second + renamed + plain))] == ["Column", "Property"]
    tuples = "A = (('power', 'power_w', lambda w: f'{w} W'), ('a', 'b'), ('RAM', 'used', format_bytes))"
    assert [*_formatted(_nodes(tuples))] == ["power", "RAM"]
    by_hand = "from rich.table import Table\nRULE = '| --- |'\n"
    assert [*_drawings(_nodes(by_hand))] == ["draws a table", "writes Markdown"]
