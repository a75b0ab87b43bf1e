"""What the README and the page of evidence say of the program is what the program says."""

import re
from pathlib import Path

import pytest

from tests.readme import EVIDENCE, README, SHOWN, parts, updated

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_generated_parts_have_not_drifted() -> None:
    text = README.read_text(encoding="utf-8")
    assert parts(text).keys() == SHOWN.keys()
    assert updated(text) == text


def test_the_readme_can_be_read_in_two_minutes() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 250


@pytest.mark.parametrize("page", [README, EVIDENCE], ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        path = (page.parent / name) if name else page
        if target.startswith("http"):
            continue
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            lost.append(target)
    assert lost == []


def _anchors(path: Path) -> set[str]:
    """Names of a page's headings: lower case, spaces as hyphens, other marks left out."""
    headings = _HEADING.findall(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
