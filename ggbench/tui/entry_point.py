"""`ggbench tui`: open the interactive screens."""

from __future__ import annotations

import sys

import click

from ggbench.errors import UsageError
from ggbench.tui.host import DEFAULT_N_GEN
from ggbench.units import parse_tokens


@click.command()
@click.option("--offline", is_flag=True, help="Make no network request; HF_HUB_OFFLINE=1 does the same.")
@click.option(
    "--n-gen",
    type=str,
    callback=lambda _ctx, _param, text: parse_tokens(text, most=1 << 24),
    default=DEFAULT_N_GEN,
    show_default=True,
    metavar="TOKENS",
    help="Number of tokens that each run decodes, e.g. 1k, which is 1024.",
)
def command(offline: bool, n_gen: int) -> None:
    """Choose a model that fits, watch it run, compare results. Press ? for the keys."""
    from ggbench.tui.app import GgbenchApp
    from ggbench.tui.services import Services

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the TUI needs a terminal", "without one: ggbench plan, ggbench bench, ggbench results")
    app = GgbenchApp(Services.of_this_machine(offline=offline), n_gen=n_gen)
    try:
        app.run()
    finally:
        app.close_queues()
    if app.return_code:
        raise click.exceptions.Exit(app.return_code)
