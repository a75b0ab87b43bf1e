"""Commands whose `--help` fits on a screen: a summary, examples, and the common options, in groups.

`--help-all` shows everything: the whole text, and every option with all its help.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import click

from ggbench.errors import UnknownName
from ggbench.text import in_words

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

_LETTERS = re.compile(r"-[a-z]{2,}")
"""An option such as `-ngl`; if it is unknown, click would take it for one-letter options, or for one and its value."""
HEADINGS = {
    "own": "Options",
    "model": "Model and context",
    "memory": "Memory and placement",
    "source": "Downloads and servers",
    "output": "Output",
    "rare": "More",
    "checkpoint": "Transformers checkpoints",
}
"""Headings of `--help` by group, in order."""
_RARE = ("rare", "checkpoint")
"""Groups whose options `--help` only names."""
_NAMES = "For what MODEL and QUANT may be, see: ggbench help names"
_ALL = "ggbench.help_all"
"""The key in a context's `meta` of whether `--help-all` is asked for."""


class GroupedOption(click.Option):
    """An option of a group of `HEADINGS`."""

    def __init__(self, *args: Any, group: str = "own", **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **kwargs)
        self.group = group

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Return what click adds to the help, but no range, which an error names."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


def write_paragraphs(formatter: click.HelpFormatter, text: str) -> None:
    """Write paragraphs, wrapped only at spaces: `--cpu-moe` stays on one line."""
    indent = " " * formatter.current_indent
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            formatter.write_paragraph()
        _write_wrapped(formatter, " ".join(paragraph.split()), indent, indent)


def write_rows(
    formatter: click.HelpFormatter,
    rows: Sequence[Sequence[str]],
    most: int = 26,
    *,
    is_short: bool = False,
) -> None:
    """Write names in a left column at most `most` wide, and texts in the right one; short ones in one line each."""
    column = min(max(len(name) for name, _ in rows), most) + 2
    indent = " " * formatter.current_indent
    for name, text in rows:
        if is_short:
            text = _shortened(text, formatter.width - column - len(indent))
        if len(name) + 2 > column and len(indent) + len(name) + 2 + len(text) > formatter.width:
            formatter.write(f"{indent}{name}\n")
            name = ""
        _write_wrapped(formatter, text, f"{indent}{name:<{column - 2}}  ", indent + " " * column)


def _write_wrapped(formatter: click.HelpFormatter, text: str, first: str, later: str) -> None:
    wrapped = textwrap.fill(
        text,
        max(formatter.width, len(later) + 10),
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,
    )
    formatter.write(f"{(wrapped or first).rstrip()}\n")


def _shortened(text: str, room: int) -> str:
    """Return the first clauses that fit into the room, at least one, and the default if it fits, too."""
    text, bracket, default = text.partition("  [default: ")
    kept, *clauses = re.split(r"(?<!\.g\.)(?<!\.\.\.)(?<=[.;]) ", text)
    for clause in clauses:
        if len(kept) + len(clause) >= room:
            break
        kept += f" {clause}"
    kept = re.sub(";$", ".", kept)
    return kept + bracket + default if len(kept + bracket + default) <= room else kept


_OF_SETUPS = "--n-ubatch"
"""An option of every command that loads a model or plans to."""


def _without_idle(args: list[str], own: set[str]) -> list[str]:
    """Return the arguments with llama-server's options as ggbench's, and name once those that it ignores."""
    from ggbench.engines.llama.command_line import in_own_words

    words, idle = in_own_words(args, own)
    if idle and not {"-q", "--quiet"} & {*words}:
        click.echo(f"ignored: {in_words(list(dict.fromkeys(idle)))}", err=True)
    return words


class DocumentedCommand(click.Command):
    """A command with `examples`, lines for a shell."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **kwargs)
        self.examples = inspect.cleandoc(examples)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters with `--help-all`."""
        params = super().get_params(ctx)
        return params if isinstance(self, click.Group) else [*params, _HELP_ALL]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take options of llama-server where the command has the setup of a model. Look also for --help after an option
        without its value, and for unknown options of several letters.
        """
        own = {name for param in self.params for name in param.opts}
        if _OF_SETUPS in own:
            args = _without_idle(args, own)
        words = [] if isinstance(self, click.Group) else takewhile(lambda word: word != "--", args)
        for word in words:
            if word in (*ctx.help_option_names, *_HELP_ALL.opts):
                return super().parse_args(ctx, [word])
            if _LETTERS.fullmatch(word) and word not in own:
                raise click.NoSuchOption(word, possibilities=get_close_matches(word, own), ctx=ctx)
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole text, or without `--help-all` its first two paragraphs."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")[: None if _ALL in ctx.meta else 2]
        if any(isinstance(param, click.Argument) and param.name == "quants" for param in self.params):
            paragraphs.append(_NAMES)
        formatter.write_paragraph()
        with formatter.indentation():
            write_paragraphs(formatter, "\n\n".join(paragraphs))
        if self.examples:
            with formatter.section("Examples"):
                formatter.write(textwrap.indent(self.examples, " " * formatter.current_indent) + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group, and without `--help-all` only the names of rare ones."""
        is_short = _ALL not in ctx.meta
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        shown = [each for each in options if not (is_short and _group(each) in _RARE)]
        for group, heading in HEADINGS.items():
            rows = [row for each in shown if _group(each) == group and (row := each.get_help_record(ctx))]
            if rows:
                with formatter.section(heading):
                    write_rows(formatter, rows, is_short=is_short)
        if len(shown) < len(options):
            rare = ", ".join(each.opts[0] for each in options if each not in shown)
            formatter.write_paragraph()
            write_paragraphs(formatter, f"More, with all details (--help-all): {rare}")
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _group(option: click.Option) -> str:
    """Return the group of an option; click's own --help is of `output`."""
    return getattr(option, "group", "output")


def _show_all(ctx: click.Context, _param: click.Parameter, is_given: bool) -> None:
    if is_given:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = GroupedOption(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    group="output",
    help="Show every option, and all about each.",
)


class DocumentedGroup(DocumentedCommand, click.Group):
    command_class = DocumentedCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise UnknownName for an unknown command; for a number, with how to show what has it."""
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            is_number = args[0].isdecimal() and "show" in self.commands
            hint = f"{ctx.command_path} show {args[0]}" if is_number else ""
            raise UnknownName("command", args[0], self.commands, hint)
        return super().resolve_command(ctx, args)
