"""Commands whose `--help` has examples, options in groups, and the numbers and marks that they print."""

from __future__ import annotations

import enum
import inspect
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from ggbench.show.glossary import FORMULA, terms


class OptionGroup(enum.Enum):
    """Headings of `--help`, in their order; the value is the heading."""

    OWN = "Options"
    """What the command is asked to do."""
    MODEL = "Model and context"
    """How llama.cpp loads a model and computes with it."""
    MEMORY = "Memory and placement"
    """What is there to fill, and what goes where."""
    CHECKPOINT = "Checkpoints of Transformers"
    """How a checkpoint is loaded and computed with, beside what it shares with a GGUF."""
    SOURCE = "Downloads and servers"
    """Where the model comes from."""
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
        """Take the help, where none is given, from `field`: a record and a name, whose docstring begins with it."""
        super().__init__(*args, **kwargs)
        self.group, self._field = group, field

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names and the help, which is read only where it is shown."""
        if self._field is not None and not self.help:
            from ggbench.fields import field_docs

            record, name = self._field
            self.help = " ".join(field_docs(record)[name].partition("\n\n")[0].split())
        return super().get_help_record(ctx)


_NAMES = "ggbench help names: what MODEL and QUANT may be."
"""Ends the text of every command that takes a model."""


def write_paragraphs(formatter: click.HelpFormatter, text: str) -> None:
    """Write paragraphs, wrapped between words only: `--base-logits` stays on one line."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            formatter.write_paragraph()
        indent = " " * formatter.current_indent
        formatter.write(
            textwrap.fill(
                " ".join(paragraph.split()),
                formatter.width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,
            )
            + "\n"
        )


def write_rows(formatter: click.HelpFormatter, rows: Sequence[tuple[str, str]], most: int = 30) -> None:
    """Write names on the left, in a column of at most `most`, and texts on the right, wrapped as paragraphs are."""
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
    """`examples` are command lines as a shell takes them; `terms` are keys of `ggbench.show.glossary.TERMS`."""

    def __init__(self, *args: Any, examples: str = "", terms: Sequence[str] = (), **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **kwargs)
        self.examples = inspect.cleandoc(examples)
        self._terms = terms

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the text, and the examples as they are, unwrapped."""
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
        """Write the options under the headings of their groups; few options need one heading."""
        groups: dict[OptionGroup, list[tuple[str, str]]] = {group: [] for group in OptionGroup}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups[param.group if isinstance(param, GroupedOption) else OptionGroup.OUTPUT].append(record)
        filled = {group: records for group, records in groups.items() if records}
        if not filled.keys() & {OptionGroup.MODEL, OptionGroup.MEMORY}:
            filled = {OptionGroup.OWN: [record for records in filled.values() for record in records]}
        for group, records in filled.items():
            with formatter.section(group.value):
                write_rows(formatter, records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the terms where an epilog would be."""
        if not self._terms:
            return
        with formatter.section(f"Numbers, with {FORMULA}" if "w" in self._terms else "Numbers"):
            write_rows(formatter, terms(self._terms), most=16)


class DocumentedGroup(DocumentedCommand, click.Group):
    """A group of commands, with a help of its own."""

    command_class = DocumentedCommand
