"""`ggbench help`: what a command does, and what the numbers and marks of every table mean."""

from __future__ import annotations

import click

from ggbench.errors import UnknownName

NUMBERS = "numbers"


@click.command()
@click.argument("topic", metavar="[COMMAND | numbers]", nargs=-1)
@click.pass_context
def command(context: click.Context, topic: tuple[str, ...]) -> None:
    """Show the help of a command, or with `numbers` what every number and mark means."""
    root = context.find_root()
    if topic == (NUMBERS,):
        click.echo(_numbers(root))
        return
    here = root
    for name in topic:
        group = here.command
        known = group.list_commands(here) if isinstance(group, click.Group) else []
        found = group.get_command(here, name) if isinstance(group, click.Group) else None
        if found is None:
            raise UnknownName("command", " ".join(topic), [*known, *([NUMBERS] if here is root else [])])
        here = click.Context(found, info_name=name, parent=here)
    click.echo(here.get_help())


def _numbers(root: click.Context) -> str:
    from ggbench.cli.glossary import write_terms
    from ggbench.report.glossary import FORMULA, TERMS

    formatter = root.make_formatter()
    formatter.write_text(FORMULA)
    formatter.write_paragraph()
    write_terms(formatter, list(TERMS))
    return formatter.getvalue().rstrip("\n")
