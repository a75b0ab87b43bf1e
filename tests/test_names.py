"""Words of the house: each means one thing."""

import re
from collections import defaultdict
from pathlib import Path

import ggbench

PACKAGE = Path(ggbench.__file__).parent


def test_no_two_public_classes_share_a_name() -> None:
    """A reader who searches for a class finds one; the messages that are nested in Textual's widgets are their own."""
    found = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_no_docstring_begins_as_a_fragment() -> None:
    """A docstring begins with a verb or a noun, not with "Of a run": who does not know the house reads it once."""
    fragment = re.compile(r'"""(?:Of|As|By|That) .*')
    found = {
        f"{path.relative_to(PACKAGE.parent)}: {text}"
        for folder in (PACKAGE, Path(__file__).parent)
        for path in folder.rglob("*.py")
        for text in fragment.findall(path.read_text(encoding="utf-8"))
    }
    assert found == set()
