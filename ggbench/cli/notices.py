"""What every command that keeps or reads results tells on stderr beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.run import Certificate
from ggbench.records.setup import LlamaSetup

if TYPE_CHECKING:
    from ggbench.cli.output import Output
    from ggbench.store.database import Store


def tell_store_notices(store: Store, output: Output) -> None:
    """What opening the store came across, such as runs that were killed."""
    for notice in store.notices:
        output.notice(notice)


def tell_memory_use(config: LlamaSetup, output: Output) -> None:
    """Before a search: that one without a limit goes as far as memory does."""
    if config.memory_limit_bytes is None:
        output.notice("without --memory-limit a search may take nearly all the memory that is free")


def tell_failures(results: Iterable[Row | Certificate]) -> None:
    """What no view has told: `--quiet` is silent only while nothing fails."""
    for result in results:
        if result.outcome not in (Outcome.COMPLETED, Outcome.CANCELLED):
            click.echo(f"Error: {plain(f'{result.model} {result.quant}: {result.reason}')}", err=True)
