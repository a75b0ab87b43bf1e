"""Notices on stderr of the commands that write or read results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.setup import LlamaSetup

if TYPE_CHECKING:
    from ggbench.cli.output import Output
    from ggbench.records.run import Run
    from ggbench.store.database import Store


def show_store_notices(store: Store, output: Output) -> None:
    """Print what opening the store found, such as runs that were killed."""
    for notice in store.notices:
        output.notice(notice)


def warn_of_memory_use(setup: LlamaSetup, output: Output) -> None:
    """Warn before a search without a limit, which goes as far as memory does."""
    if setup.memory_limit_bytes is None:
        output.notice("without --memory-limit a search may take nearly all free memory")


def report_failures(runs: Iterable[Run]) -> None:
    """Print failures that no live view has shown: `--quiet` is silent only while nothing fails."""
    for run in runs:
        if run.outcome not in (Outcome.COMPLETED, Outcome.CANCELLED):
            text = plain(f"{run.subject.model} {run.subject.quant}: {run.reason}")
            click.echo(f"Error: {text}", err=True)
