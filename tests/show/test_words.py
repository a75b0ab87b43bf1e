"""Sentences of words.toml: every template is used, and every key that the package names has one."""

from __future__ import annotations

import ast
import itertools
import re
import string
import tomllib
from pathlib import Path

import pytest

import ggbench

_PACKAGE = Path(ggbench.__file__).parent
_ROOMS = tomllib.loads((_PACKAGE / "show" / "words.toml").read_text("utf-8"))
_TEMPLATES = {f"{room}.{name}": text for room, texts in _ROOMS.items() for name, text in texts.items()}


@pytest.fixture(scope="module")
def nodes() -> list[ast.AST]:
    trees = (ast.parse(path.read_text("utf-8")) for path in _PACKAGE.rglob("*.py"))
    return [node for tree in trees for node in ast.walk(tree)]


def _pattern(node: ast.JoinedStr) -> re.Pattern[str]:
    """Return what an f-string may become, with a group for each of its values."""
    parts = (re.escape(str(part.value)) if isinstance(part, ast.Constant) else "(.+)" for part in node.values)
    return re.compile("".join(parts))


def test_every_template_is_used(nodes: list[ast.AST]) -> None:
    """Its key is a literal, or an f-string of literals, one of which may have an ending added, such as `_here`."""
    literals = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    rooms = tuple(f"{room}." for room in _ROOMS)
    patterns = [_pattern(node) for node in nodes if isinstance(node, ast.JoinedStr)]
    patterns = [each for each in patterns if each.pattern.replace("\\", "").startswith(rooms)]

    def is_named(name: str) -> bool:
        ends = (name[index:] for index in range(len(name)) if name[index] == "_")
        return name in literals or any(end in literals and name.removesuffix(end) in literals for end in ends)

    def is_used(key: str) -> bool:
        found = [match for each in patterns if (match := each.fullmatch(key))]
        return key in literals or any(all(map(is_named, match.groups())) for match in found)

    assert not [key for key in _TEMPLATES if not is_used(key)]
    assert "ggbench speculate" not in " ".join(_TEMPLATES.values()), "which pairs can draft here is not looked up"


def test_every_call_has_a_template_and_its_values(nodes: list[ast.AST]) -> None:
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "say"]
    keys = itertools.chain.from_iterable(ast.walk(call.args[0]) for call in calls if not _is_built(call))
    named = {node.value for node in keys if isinstance(node, ast.Constant)}
    assert len(named) > 100
    assert named <= _TEMPLATES.keys()
    for call in calls:
        given = {each.arg for each in call.keywords}
        key = call.args[0]
        if isinstance(key, ast.Constant) and None not in given:
            fields = (name for _, name, _, _ in string.Formatter().parse(_TEMPLATES[str(key.value)]) if name)
            assert {*fields} == given, key.value


def test_templates_have_names_alone() -> None:
    """Neither a member nor a format: a number has the same text everywhere."""
    parsed = [part for text in _TEMPLATES.values() for part in string.Formatter().parse(text)]
    assert not [part for part in parsed if part[1] is not None and (not part[1].isidentifier() or part[2] or part[3])]


def _is_built(call: ast.Call) -> bool:
    return not isinstance(call.args[0], ast.Constant | ast.IfExp)
