"""Words of the house: each means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import ggbench

PACKAGE = Path(ggbench.__file__).parent


def test_no_two_public_classes_share_a_name() -> None:
    """A reader who searches for a class finds one; the messages that are nested in Textual's widgets are their own."""
    found = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
