"""`ggbench help`: the help of a command, and topics, whose texts are in `topics/`."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ggbench
from ggbench.commands.documented import DocumentedCommand, write_paragraphs, write_rows
from ggbench.errors import ExitCode, UnknownName
from ggbench.text import in_words

if TYPE_CHECKING:
    from ggbench.show.document import Document
    from ggbench.show.figure import Figure


_FOLDER = Path(__file__).parent / "topics"
TOPICS = {
    "numbers": "What numbers and marks mean.",
    "figures": "What the columns of tables mean.",
    "rules": "How pick chooses.",
    "names": "How to name a MODEL and a QUANT.",
    "defaults": "What differs from llama-server.",
    "servers": "How a server is measured.",
    "scripts": "For programs and agents: commands, documents, exit codes.",
    "schema": "The documents of --json, and the schema of each.",
}

EXIT_CODES = (
    (ExitCode.DONE, "done"),
    (ExitCode.UNEXPECTED, "unexpected error"),
    (ExitCode.USAGE, "the command line, or a config file, is wrong"),
    (
        ExitCode.DOES_NOT_FIT,
        "not enough memory or disk space, nothing to pick, or a checked command that does not start",
    ),
    (ExitCode.NETWORK, "network or Hub, including a repo that does not exist"),
    (ExitCode.BAD_FILE, "a bad or unsupported file"),
    (ExitCode.ENGINE_FAILED, "the engine (llama.cpp, Transformers or a server) failed"),
    (ExitCode.INTERRUPTED, "interrupted, or a prompt declined"),
    (ExitCode.PIPE_CLOSED, "stdout closed early, as in ggbench models | head"),
)

_SHOWING = re.compile(r"ggbench\.(show\..*|.*\.show|decisions\.(machines|drafting)|formats\.importing)")
"""Modules that define documents and figures."""


def _shown() -> Iterator[object]:
    """Yield what these modules define, and the members of tuples and dicts."""
    for module in pkgutil.walk_packages(ggbench.__path__, "ggbench."):
        if _SHOWING.fullmatch(module.name):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, dict):
                    yield from value.values()
                yield from value if isinstance(value, tuple) else (value,)


def documents() -> dict[str, Document]:
    """Return the documents that commands print with --json, by schema name."""
    from ggbench.show.document import Document
    from ggbench.show.presenter import presenters

    found = [each for each in _shown() if isinstance(each, Document)]
    found += [each for presenter in presenters() for each in presenter.documents.all]
    return {each.schema: each for each in found}


def figures() -> list[Figure[Any]]:
    """Return the figures of all tables."""
    from ggbench.show.figure import Figure
    from ggbench.show.presenter import all_figures

    return [*all_figures().values(), *(each for each in _shown() if isinstance(each, Figure))]


def _meanings() -> dict[str, str]:
    """Return what the figures mean that say it, by header."""
    from ggbench.show.figure import described

    found: dict[str, str] = {}
    for each in figures():
        if each.meaning and each.header:
            found.setdefault(each.header, described(each))
    return found


def _answers(root: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the commands that have --json, with their line of help."""
    group = root.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(root):
        found = group.get_command(root, name)
        if found and any("--json" in parameter.opts for parameter in found.params):
            yield name, found.short_help or ""


def _rows(root: click.Context, block: str) -> Sequence[Sequence[str]]:
    """Return the rows of a block of a topic: `name :: meaning`, or generated from `@name`; empty for a paragraph."""
    from ggbench.decisions.pick.show import rules
    from ggbench.engines.llama.defaults import DIFFERENCES
    from ggbench.expect.sessions import known_sessions
    from ggbench.show.glossary import read_rows, terms

    generated: dict[str, Callable[[], Iterable[Sequence[str]]]] = {
        "@answers": lambda: _answers(root),
        "@terms": lambda: terms().items(),
        "@figures": lambda: _meanings().items(),
        "@rules": rules,
        "@workloads": lambda: ((each.name, each.source) for each in known_sessions().values()),
        "@differences": DIFFERENCES.items,
        "@exit codes": lambda: ((str(int(code)), text) for code, text in EXIT_CODES),
        "@documents": lambda: (
            (name, f"ggbench {each.printed_by}: {each.about}") for name, each in documents().items()
        ),
    }
    if block in generated:
        return list(generated[block]())
    return list(read_rows(block).items()) if " :: " in block else ()


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench help numbers
    ggbench help results show
    ggbench help schema plan
    """,
)
@click.argument("words", metavar="[COMMAND | TOPIC | schema NAME]", nargs=-1)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or a topic: numbers, figures, rules, names, defaults, servers, scripts, schema.

    `schema NAME` prints the JSON Schema of a command's --json output; `schema` lists the names.
    """
    root = context.find_root()
    if len(words) == 1 and words[0] in TOPICS:
        _show_page(root, words[0])
        return
    if len(words) == 2 and words[0] == "schema":
        _show_schema(words[1])
        return
    here = root
    for name in words:
        group = here.command
        found = group.get_command(here, name) if isinstance(group, click.Group) else None
        if found is None:
            raise _unknown(here, words)
        here = click.Context(found, info_name=name, parent=here)
    click.echo(here.get_help())


def _unknown(here: click.Context, words: Sequence[str]) -> UnknownName:
    """Return the error of words that are no command, with the topics that have the last of them."""
    group, topics = here.command, [each for each in TOPICS if words[-1].lower() in _text(each).lower()]
    known = group.list_commands(here) if isinstance(group, click.Group) else []
    hint = f"see: {in_words([f'ggbench help {each}' for each in topics])}" if topics else ""
    return UnknownName("command", " ".join(words), [*known, *TOPICS], hint)


def _show_schema(name: str) -> None:
    """Print the JSON Schema of a document. Raises UnknownName."""
    known, name = documents(), name.removeprefix("ggbench.").partition("/")[0]
    if name not in known:
        raise UnknownName("schema", name, known)
    click.echo(json.dumps(known[name].json_schema(), indent=2, ensure_ascii=False))


def _text(topic: str) -> str:
    return (_FOLDER / f"{topic}.txt").read_text("utf-8")


def _show_page(root: click.Context, topic: str) -> None:
    """Print a topic's headings, paragraphs and rows."""
    from ggbench.show.glossary import FORMULA

    formatter = root.make_formatter()
    text = _text(topic).replace("@formula", FORMULA)
    for section in f"\n{text}".split("\n# ")[1:]:
        heading, _, content = section.partition("\n")
        with formatter.section(heading):
            for number, block in enumerate(content.strip("\n").split("\n\n")):
                if number:
                    formatter.write_paragraph()
                if rows := _rows(root, block):
                    write_rows(formatter, rows, most=24)
                else:
                    write_paragraphs(formatter, block)
    click.echo(formatter.getvalue().strip("\n"))
