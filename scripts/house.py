"""Count the package behind scripts/house: AST nodes, decisions and lines by room, and the surface that a user meets.

Nodes are counted because spelling cannot shorten them. A ceiling of scripts/budget.toml holds from both sides: a room
may not outgrow it, and it may not lie above its room, so that what a cut gained is not spent unseen. A larger ceiling
needs an equal fall elsewhere, or a sentence in the commit on what a user gets for it.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
BUDGET = ROOT / "scripts" / "budget.toml"

_DECISIONS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.BoolOp,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_DECISIONS = 10
"""Decisions of a function above which it counts as long."""
_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
_SLACK = 0.02
"""Share by which a ceiling may lie above its room, so that a small cut need not touch the budget."""

Figures = Mapping[str, float]
"""Counts by name, such as nodes and lines."""


def count_file(text: str) -> Counter[str]:
    """Return the counts of a module; text functions are those that return a `str` and nothing else."""
    nodes = list(ast.walk(ast.parse(text)))
    return Counter(
        lines=text.count("\n"),
        code=_code_lines(text, nodes),
        nodes=len(nodes),
        decisions=_decisions(nodes),
        long_functions=sum(
            isinstance(node, _FUNCTIONS) and _decisions(ast.walk(node)) > _MOST_DECISIONS for node in nodes
        ),
        nested_conditionals=sum(isinstance(node, ast.IfExp) and _holds_conditional(node) for node in nodes),
        text_functions=sum(isinstance(node, _FUNCTIONS) and _returns_text(node) for node in nodes),
    )


def count_rooms(package: Path) -> dict[str, Counter[str]]:
    """Return the counts of each folder of a package; of its modules under `top level`."""
    rooms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(package.rglob("*.py")):
        folder, *rest = path.relative_to(package).parts
        rooms[folder if rest else "top level"] += count_file(path.read_text("utf-8"))
    return dict(rooms)


def count_surface() -> Counter[str]:
    """Return how many commands, options, figures and documents a user can meet."""
    from ggbench.cli.help import documents, figures
    from ggbench.cli.main import cli

    commands = list(_commands(cli, click.Context(cli, info_name="ggbench")))
    options = sum(isinstance(each, click.Option) for command in commands for each in command.params)
    return Counter(
        commands=len(commands),
        options=options,
        figures=len({each.key for each in figures()}),
        documents=len(documents()),
    )


def count_package(package: Path) -> dict[str, Figures]:
    """Return the figures of the whole package and of each room, as scripts/budget.toml has their ceilings."""
    rooms = count_rooms(package)
    whole = sum(rooms.values(), Counter())
    density = round(whole["nodes"] / whole["code"], 2)
    kept = ("lines", "nodes", "decisions", "long_functions", "nested_conditionals", "text_functions")
    counted: dict[str, Figures] = {
        "package": {**{name: whole[name] for name in kept}, "nodes_per_code_line": density}
    }
    return counted | {name: {key: room[key] for key in kept[:3]} for name, room in rooms.items()}


def mismatches(counted: Mapping[str, Figures], ceilings: Mapping[str, Figures]) -> Iterator[str]:
    """Yield a line for each ceiling that is exceeded, missing, or above what is there by more than the slack."""
    for room in sorted(counted.keys() | ceilings.keys()):
        figures, limits = counted.get(room, {}), ceilings.get(room, {})
        for name in sorted(figures.keys() | limits.keys()):
            figure, limit = figures.get(name, 0), limits.get(name, 0)
            if figure > limit:
                yield f"{room}: {name} {figure:,} exceeds its ceiling of {limit:,}; cut as much, here or elsewhere"
            elif limit > figure * (1 + _SLACK):
                yield f"{room}: the ceiling of {name} {limit:,} is above what is there, {figure:,}; lower it to that"


def _commands(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None:
            yield from _commands(found, click.Context(found, info_name=name, parent=context))


def _decisions(nodes: Iterator[ast.AST] | list[ast.AST]) -> int:
    return sum(isinstance(node, _DECISIONS) for node in nodes)


def _holds_conditional(conditional: ast.IfExp) -> bool:
    return sum(isinstance(node, ast.IfExp) for node in ast.walk(conditional)) > 1


def _returns_text(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return isinstance(function.returns, ast.Name) and function.returns.id == "str"


def _code_lines(text: str, nodes: list[ast.AST]) -> int:
    """Return the number of lines with a token other than a comment or a docstring."""
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            used.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(used)


def _as_toml(counted: Mapping[str, Figures]) -> str:
    heading = "# The most that each room may hold; scripts/check fails where one holds more, or clearly less.\n"
    rooms = (
        f'\n["{room}"]\n' + "".join(f"{name} = {figure}\n" for name, figure in figures.items())
        for room, figures in counted.items()
    )
    return heading + "".join(rooms)


def _print_table(counted: Mapping[str, Figures], ceilings: Mapping[str, Figures]) -> None:
    print(f"{'room':<12}{'lines':>9}{'nodes':>10}{'ceiling':>10}{'decisions':>11}")
    for room, figures in counted.items():
        if "nodes" in figures:
            ceiling = ceilings.get(room, {}).get("nodes", 0)
            print(
                f"{room:<12}{figures['lines']:>9,}{figures['nodes']:>10,}{ceiling:>10,}{figures['decisions']:>11,}"
            )
    for room in ("package", "surface"):
        print(", ".join(f"{name} {figure:,}" for name, figure in counted[room].items()))


def main() -> int:
    """Print the table, or check or write the budget; exit with 1 if a ceiling does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="print only the ceilings that do not hold")
    parser.add_argument("--write", action="store_true", help="make what is there the budget")
    asked = parser.parse_args()
    counted = {**count_package(ROOT / "ggbench"), "surface": count_surface()}
    if asked.write:
        BUDGET.write_text(_as_toml(counted), "utf-8")
        return 0
    ceilings = tomllib.loads(BUDGET.read_text("utf-8"))
    if not asked.check:
        _print_table(counted, ceilings)
    wrong = list(mismatches(counted, ceilings))
    print("".join(f"scripts/budget.toml: {line}\n" for line in wrong), end="", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
