"""What the README and the page of evidence say of the program is what the program says."""

import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ggbench.cli.help import TOPICS
from ggbench.cli.main import COMMANDS, cli
from tests.cli.conftest import parse_words
from tests.readme import EVIDENCE, MEASURED, MEASURED_ON, README, SHOWN, generated, parts

_ROOT = README.parent
_CONTRIBUTING = _ROOT / "CONTRIBUTING.md"
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_EXAMPLES = {"HOST:PORT": "127.0.0.1:1", "RUN": "3"}
"""Values in place of the placeholders that are not any text."""
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_generated_parts_have_not_drifted(home: Path) -> None:
    text = README.read_text(encoding="utf-8")
    assert parts(text, "generated").keys() == SHOWN.keys()
    assert generated(text, home) == text


def test_measured_parts_show_the_commands_that_write_them() -> None:
    shown = parts(README.read_text(encoding="utf-8"), "measured")
    assert shown.keys() == {MEASURED_ON, *MEASURED}
    for name, each in MEASURED.items():
        assert shown[name].splitlines()[2] == f"$ {each.line}"


def test_every_block_of_commands_is_generated_or_measured() -> None:
    """But for the first, which sets ggbench up."""
    blocks = _BLOCK.findall(text := README.read_text(encoding="utf-8"))
    assert all(line.startswith("$ ./scripts/") for line in blocks[0].splitlines())
    assert len(blocks) - 1 == len(parts(text, "generated")) + len(parts(text, "measured")) - 1


def test_the_readme_can_be_read_in_three_minutes() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 160


def _lines(page: Path) -> Iterator[str]:
    """Yield the command lines of a page: those after `$` in its blocks, and code in its text that names a program."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.findall(text):
        yield from (line[2:].partition("  #")[0] for line in block.splitlines() if line.startswith("$ "))
    yield from (" ".join(code.split()) for code in _CODE.findall(_BLOCK.sub("", text)))


@pytest.mark.parametrize("page", [README, EVIDENCE, _CONTRIBUTING], ids=lambda path: path.name)
def test_every_command_line_can_be_typed(page: Path) -> None:
    """The commands, options and topics that a page names exist, and so do the scripts and their options."""
    options = {"--help-all", *(name for each in _commands() for param in each.params for name in param.opts)}
    n_lines = 0
    for line in _lines(page):
        typed = [word for word in shlex.split(line.replace("|", " ")) if "=" not in word]
        program, *words = [word for word in typed if word != "--help"] or [""]
        if program in ("ggbench", "./scripts/ggbench") and words not in ([], ["ARGS"]):
            parse_words([_EXAMPLES.get(word, word) for word in words])
            assert words[0] != "help" or words[1] in {*TOPICS, *COMMANDS, "TOPIC"}, line
        elif program.startswith("./scripts/"):
            script = _ROOT / program
            assert os.access(script, os.X_OK), line
            source = "".join(path.read_text() for path in (script, script.with_suffix(".py")) if path.exists())
            assert [word for word in words if word.startswith("-") and word not in source] == [], line
        elif page == README and program.startswith("--"):
            assert program in options, line
        else:
            continue
        n_lines += 1
    assert n_lines > 0


def test_the_form_for_measurements_shows_commands_that_run() -> None:
    form = (_ROOT / ".github/ISSUE_TEMPLATE/measurement.yml").read_text(encoding="utf-8")
    lines = re.findall(r"^ +ggbench (.+)$", form, re.MULTILINE)
    assert lines
    for line in lines:
        parse_words([_EXAMPLES.get(word, word) for word in line.split()])


def _commands() -> Iterator[click.Command]:
    for name in COMMANDS:
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        yield from (found, *(found.commands.values() if isinstance(found, click.Group) else ()))


def test_every_extra_can_be_installed() -> None:
    known = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"\.\[([\w,]+)\]", README.read_text(encoding="utf-8"))
    assert {extra for extras in named for extra in extras.split(",")} <= known.keys()


def test_the_map_of_the_code_names_what_is_there() -> None:
    """Every file and folder of CONTRIBUTING exists, in the package or the checkout; every name is in the code."""
    there = [path for folder in ("ggbench", "tests", "scripts") for path in (_ROOT / folder).rglob("*")]
    paths = [f"/{path.relative_to(_ROOT)}{'/' * path.is_dir()}" for path in there if "__pycache__" not in path.parts]
    paths += [f"/{path.name}" for path in _ROOT.iterdir() if path.is_file()]
    sources = (path for path in there if path.suffix in (".py", ".toml", ".pyi") and path.parts[-2] != "__pycache__")
    words = set(re.findall(r"\w+", "".join(path.read_text(encoding="utf-8") for path in sources)))
    lost = []
    for code in _CODE.findall(_CONTRIBUTING.read_text(encoding="utf-8")):
        name = code.rstrip("/").removeprefix("./")
        if re.fullmatch(r"\w[\w/.]*/|\w[\w/]*/\w+|[\w/]+\.(?:py|toml)", code):
            name = name.replace("/KIND", "")
            if not any(f"{path}/".endswith((f"/{name}/", f"/{name}//", f"/{name}.py/")) for path in paths):
                lost.append(code)
        elif re.fullmatch(r"[A-Za-z_]+(?:\(\))?", code) and code.removesuffix("()") not in words:
            lost.append(code)
    assert lost == [], lost


@pytest.mark.parametrize("page", [README, EVIDENCE, _CONTRIBUTING], ids=lambda path: path.name)
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
