"""`ggbench bench`: the table of every quant of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, download_options
from ggbench.cli.options import TOKENS, against_option, load_options, trial_options
from ggbench.cli.output import Output, output_options
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.records.setup import LlamaSetup
    from ggbench.records.speed import Bandwidth


@click.command()
@click.argument("model")
@click.argument("quants", nargs=-1)
@click.option("-n", "--n-gen", type=TOKENS, default=10_000, show_default=True, help="Tokens to decode.")
@click.option(
    "-r", "--repeat", type=click.IntRange(1), default=1, show_default=True, help="Repetitions, fitted together."
)
@click.option(
    "--maxctx",
    is_flag=True,
    help="Search the largest n_ctx of each as well, and prove it as maxctx does; --timeout is then 3600 by default.",
)
@click.option("--plot", is_flag=True, help="Plot the latencies in the terminal.")
@click.option("--format", "text_format", type=click.Choice(["table", "csv", "md"]), default="table", show_default=True)
@against_option
@load_options
@download_options
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
    maxctx: bool,
    plot: bool,
    text_format: str,
    against: str | None,
    bandwidth: Bandwidth | None,
    timeout_s: float | None,
    config: LlamaSetup,
    hub: HubOptions,
    output: Output,
) -> None:
    """Load each quant, read the 25-token prompt, decode, and tabulate. Without QUANTS: every one there is.

    A quant that fails is a row with its reason; the others go on.
    """
    from ggbench.catalog.selector import resolve
    from ggbench.cli.downloads import allow_downloads, interruptible, tell_left_out
    from ggbench.cli.gpu_options import check_main_gpu
    from ggbench.cli.shown_runs import against_document, show_against, show_rows
    from ggbench.cli.trials import measure
    from ggbench.experiments.settings import TrialSettings
    from ggbench.report.documents import row_document

    if output.as_json and text_format != "table":
        raise UsageError(f"--json and --format {text_format} are two answers", "leave one of them out")
    if plot and (output.as_json or text_format != "table"):
        raise UsageError("--plot goes under a table", "leave --json and --format out, or take results show ID --plot")
    if against and text_format != "table":
        raise UsageError(f"--against {against} does not go into {text_format}", "leave --format out, or take --json")
    check_main_gpu(config)
    settings = TrialSettings("bench", config, n_gen=n_gen, repeat=repeat)
    with interruptible(output):
        targets = resolve(model, quants, hub=hub.access())
    tell_left_out(model, quants, targets, hub, output)
    allow_downloads(targets, hub, output)
    measured = measure(targets, settings, output, bandwidth=bandwidth, timeout_s=timeout_s, maxctx=maxctx)
    if output.as_json:
        documents = [row_document(row) | (against_document(row) if against else {}) for row in measured.rows]
        output.document("bench", model=model, n_gen=n_gen, rows=documents)
    elif measured.rows:
        show_rows(measured.rows, output, text_format=text_format, plot=plot)
        if against:
            show_against(measured.rows, output)
    measured.leave(ctx)
