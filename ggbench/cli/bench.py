"""`ggbench bench`: the table of every quant of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, download_options
from ggbench.cli.options import TOKENS, against_option, load_options, run_options
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
    help="Search the largest n_ctx of each as well, and prove it as maxctx does; the default --timeout is then 3600.",
)
@click.option("--plot", is_flag=True, help="Plot the latencies in the terminal.")
@click.option("--format", "text_format", type=click.Choice(["table", "csv", "md"]), default="table", show_default=True)
@against_option
@load_options
@download_options
@run_options
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
    setup: LlamaSetup,
    hub: HubOptions,
    output: Output,
) -> None:
    """Load each quant, read the 25-token prompt, decode, and tabulate. Without QUANTS, every quant is measured.

    A quant that fails is a row with its reason; the others go on.
    """
    from ggbench.cli.measuring import find_targets, measure
    from ggbench.cli.notices import warn_of_memory_use
    from ggbench.cli.run_output import show_against, show_summaries
    from ggbench.experiments.bench import run_bench
    from ggbench.experiments.decode import EXPERIMENT
    from ggbench.experiments.maxctx import SEARCH_TIMEOUT_S
    from ggbench.recording.experiment import Job
    from ggbench.records.decode import DecodeSettings
    from ggbench.report.documents import summary_document

    if output.as_json and text_format != "table":
        raise UsageError(f"--json and --format {text_format} exclude each other", "omit one of them")
    if plot and (output.as_json or text_format != "table"):
        raise UsageError("--plot goes under a table", "omit --json and --format, or use results show ID --plot")
    if against and text_format != "table":
        raise UsageError(f"--against {against} does not go into {text_format}", "omit --format, or use --json")
    settings = DecodeSettings(n_gen, repeat=repeat)
    EXPERIMENT.check(setup, settings)
    targets = find_targets(model, quants, setup, hub, output)
    if maxctx:
        warn_of_memory_use(setup, output)
        timeout_s = timeout_s or SEARCH_TIMEOUT_S
    measured = measure(
        [Job(EXPERIMENT, target, setup, settings) for target in targets],
        output,
        bandwidth=bandwidth,
        timeout_s=timeout_s,
        run=lambda rig, _jobs: run_bench(rig, targets, setup, settings, maxctx=maxctx),
    )
    summaries = measured.summaries
    if output.as_json:
        from ggbench.report.against import against_document

        rows = [summary_document(each) | (against_document(each) if against else {}) for each in summaries]
        output.document("bench", model=model, n_gen=n_gen, rows=rows)
    elif summaries and measured.error is None:
        show_summaries(summaries, output, text_format=text_format, plot=plot)
        if against:
            show_against(summaries, output)
    measured.leave(ctx, output)
