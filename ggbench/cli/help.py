"""`ggbench help`: what a command does, and topics that belong to no single one."""

from __future__ import annotations

import json

import click

from ggbench.cli.topics import TOPICS, Topic, documents
from ggbench.commands.documented import DocumentedCommand, write_paragraphs, write_rows
from ggbench.errors import UnknownName


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench help numbers
    ggbench help pick
    ggbench help results show
    ggbench help schema plan
    """,
)
@click.argument("words", metavar="[COMMAND | TOPIC | schema NAME]", nargs=-1)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or a topic: numbers, names, defaults, servers, scripts, schema.

    `schema NAME` prints the JSON Schema of what a command prints with --json; `schema` lists the names.
    """
    root = context.find_root()
    if len(words) == 1 and words[0] in TOPICS:
        click.echo(_page(root, TOPICS[words[0]]))
        return
    if len(words) == 2 and words[0] == "schema":
        click.echo(_schema(words[1]))
        return
    here = root
    for name in words:
        group = here.command
        known = group.list_commands(here) if isinstance(group, click.Group) else []
        found = group.get_command(here, name) if isinstance(group, click.Group) else None
        if found is None:
            raise UnknownName("command", " ".join(words), [*known, *(TOPICS if here is root else [])])
        here = click.Context(found, info_name=name, parent=here)
    click.echo(here.get_help())


def _schema(name: str) -> str:
    """The JSON Schema of a document. Raises UnknownName."""
    from ggbench.show.document_types import schema_of

    known, name = documents(), name.removeprefix("ggbench.").removesuffix("/1")
    if name not in known:
        raise UnknownName("schema", name, known)
    return json.dumps(schema_of(known[name]), indent=2, ensure_ascii=False)


def _page(root: click.Context, topic: Topic) -> str:
    formatter = root.make_formatter()
    for section in topic.sections():
        with formatter.section(section.heading):
            if section.text:
                write_paragraphs(formatter, section.text)
            if section.text and section.rows:
                formatter.write_paragraph()
            if section.rows:
                write_rows(formatter, section.rows, most=24)
    return formatter.getvalue().strip("\n")
