"""Commands whose `--help` ends in the numbers and marks that they print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ggbench.report.glossary import FORMULA, terms


def write_terms(formatter: click.HelpFormatter, keys: Sequence[str]) -> None:
    """Write the meaning of each of these, names on the left."""
    formatter.write_dl(terms(keys), col_max=16)


class _WithTerms(click.Command):
    """`terms` are keys of `ggbench.report.glossary.TERMS`."""

    def __init__(self, *args: Any, terms: Sequence[str] = (), **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **kwargs)
        self._terms = terms

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the terms where an epilog would be."""
        with formatter.section(f"Numbers, with {FORMULA}" if "w" in self._terms else "Numbers"):
            write_terms(formatter, self._terms)


class CommandWithTerms(_WithTerms):
    """A command."""


class GroupWithTerms(_WithTerms, click.Group):
    """A group of commands, whose own help has the terms."""
