"""Commands whose `--help` has examples, options in groups, and explanations of the numbers they print."""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any

import click

from ggbench.show.glossary import FORMULA, terms

_LETTERS = re.compile(r"-[a-z]{2,}")
"""An option such as `-ngl`; if it is unknown, click would take it for one-letter options, or for one and its value."""


class OptionGroup(enum.Enum):
    """Headings of `--help`, in order; the value is the heading."""

    OWN = "Options"
    MODEL = "Model and context"
    MEMORY = "Memory and placement"
    CHECKPOINT = "Transformers checkpoints"
    SOURCE = "Downloads and servers"
    OUTPUT = "Output"


class GroupedOption(click.Option):
    """An option that `--help` shows under the heading of its group."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        group: OptionGroup = OptionGroup.OWN,
        field: tuple[type, str] | None = None,
        **kwargs: Any,  # noqa: ANN401 - click's own
    ) -> None:
        """Without `help`, use the first paragraph of the docstring of `field`, a record and a field's name."""
        super().__init__(*args, **kwargs)
        self.group, self._field = group, field

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names and the help; docstrings are parsed only here, as that is slow."""
        if self._field is not None and not self.help:
            from ggbench.fields import field_docs

            record, name = self._field
            self.help = " ".join(field_docs(record)[name].partition("\n\n")[0].split())
        return super().get_help_record(ctx)


_NUMBERED = re.compile(r"\n(?=\d\. )")
_NAMES = "For what MODEL and QUANT may be, see: ggbench help names"


def write_paragraphs(formatter: click.HelpFormatter, text: str) -> None:
    """Write paragraphs and lines that begin with `1. `, wrapped only at spaces: `--base-logits` stays on one line."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            formatter.write_paragraph()
        for part in _NUMBERED.split(paragraph):
            indent = " " * formatter.current_indent
            wrapped = textwrap.fill(
                " ".join(part.split()),
                formatter.width,
                initial_indent=indent,
                subsequent_indent=indent + "   " * (part[:1].isdigit() and part[1:3] == ". "),
                break_on_hyphens=False,
                break_long_words=False,
            )
            formatter.write(f"{wrapped}\n")


def write_rows(formatter: click.HelpFormatter, rows: Sequence[Sequence[str]], most: int = 30) -> None:
    """Write names in a left column at most `most` wide, and texts in the right one, wrapped at spaces."""
    column = min(max(len(name) for name, _ in rows), most) + 2
    indent = " " * formatter.current_indent
    width = max(formatter.width - formatter.current_indent - column, 10)
    for name, text in rows:
        lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]
        if len(name) > column - 2:
            formatter.write(f"{indent}{name}\n")
            name = ""
        for line in lines:
            formatter.write(f"{indent}{name:<{column}}{line}".rstrip() + "\n")
            name = ""


class DocumentedCommand(click.Command):
    """A command with `examples` (lines for a shell) and `terms` (keys of `ggbench.show.glossary.TERMS`)."""

    def __init__(self, *args: Any, examples: str = "", terms: Sequence[str] = (), **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **kwargs)
        self.examples = inspect.cleandoc(examples)
        self._terms = terms

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look also for --help after an option without its value, and for unknown options of several letters."""
        own = {name for param in self.params for name in param.opts}
        words = [] if isinstance(self, click.Group) else takewhile(lambda word: word != "--", args)
        for word in words:
            if word in ctx.help_option_names:
                return super().parse_args(ctx, [word])
            if _LETTERS.fullmatch(word) and word not in own:
                raise click.NoSuchOption(word, possibilities=get_close_matches(word, own), ctx=ctx)
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            write_paragraphs(formatter, self.help or "")
            if any(isinstance(param, click.Argument) and param.name == "model" for param in self.params):
                formatter.write_paragraph()
                write_paragraphs(formatter, _NAMES)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write(textwrap.indent(self.examples, " " * formatter.current_indent) + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of their groups; under one heading if there are few."""
        filled = self._help_by_group(ctx)
        if not filled.keys() & {OptionGroup.MODEL, OptionGroup.MEMORY}:
            filled = {OptionGroup.OWN: [record for records in filled.values() for record in records]}
        for group, records in filled.items():
            with formatter.section(group.value):
                write_rows(formatter, records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def _help_by_group(self, ctx: click.Context) -> dict[OptionGroup, list[tuple[str, str]]]:
        """Return names and help of the options, by group; click's own --help is of the last."""
        groups: dict[OptionGroup, list[tuple[str, str]]] = {group: [] for group in OptionGroup}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups[getattr(param, "group", OptionGroup.OUTPUT)].append(record)
        return {group: records for group, records in groups.items() if records}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self._terms:
            return
        with formatter.section(f"Numbers, with {FORMULA}" if "w" in self._terms else "Numbers"):
            write_rows(formatter, terms(self._terms), most=16)


class DocumentedGroup(DocumentedCommand, click.Group):
    command_class = DocumentedCommand
