"""`ggbench bench`: the table of every quant of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.options import load_options, trial_options
from ggbench.cli.output import Output, output_options

if TYPE_CHECKING:
    from ggbench.records import Bandwidth, LoadConfig


@click.command()
@click.argument("model")
@click.argument("quants", nargs=-1)
@click.option("-n", "--n-gen", type=click.IntRange(1), default=10_000, show_default=True, help="Tokens to decode.")
@click.option(
    "-r", "--repeat", type=click.IntRange(1), default=1, show_default=True, help="Repetitions, fitted together."
)
@click.option("--plot", is_flag=True, help="Plot the latencies in the terminal.")
@click.option("--format", "text_format", type=click.Choice(["table", "csv", "md"]), default="table", show_default=True)
@load_options
@trial_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    quants: tuple[str, ...],
    n_gen: int,
    repeat: int,
    plot: bool,
    text_format: str,
    bandwidth: Bandwidth | None,
    timeout_s: float | None,
    config: LoadConfig,
    output: Output,
) -> None:
    """Load each quant, read the 25-token prompt, decode, and tabulate. Without QUANTS: every one there is.

    A quant that fails is a row with its reason; the others go on.
    """
    from ggbench.catalog.selector import resolve
    from ggbench.cli.shown_runs import show_rows
    from ggbench.cli.trials import exit_code_of, measure
    from ggbench.experiments.settings import TrialSettings
    from ggbench.report.documents import row_document

    settings = TrialSettings("bench", config, n_gen=n_gen, repeat=repeat)
    targets = resolve(model, quants)
    rows = measure(targets, settings, output, bandwidth=bandwidth, timeout_s=timeout_s)
    if output.as_json:
        output.document("bench", model=model, n_gen=n_gen, rows=[row_document(row) for row in rows])
    else:
        show_rows(rows, output, text_format=text_format, plot=plot)
    ctx.exit(exit_code_of(rows))
