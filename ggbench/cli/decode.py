"""`ggbench decode`: every token of a long decode, timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, download_options
from ggbench.cli.options import TOKENS, load_options, run_options
from ggbench.cli.output import Output, output_options
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.records.setup import LlamaSetup
    from ggbench.records.speed import Bandwidth


@click.command()
@click.argument("model")
@click.argument("quant", required=False)
@click.option("-n", "--n-gen", type=TOKENS, default=10_000, show_default=True, help="Tokens to decode.")
@click.option(
    "-r", "--repeat", type=click.IntRange(1), default=1, show_default=True, help="Repetitions, fitted together."
)
@click.option("--samples", is_flag=True, help="With --json: every position and its step_ns and sample_ns.")
@click.option("--plot", is_flag=True, help="Plot the latency in the terminal.")
@load_options
@download_options
@run_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    quant: str | None,
    n_gen: int,
    repeat: int,
    samples: bool,
    plot: bool,
    bandwidth: Bandwidth | None,
    timeout_s: float | None,
    setup: LlamaSetup,
    hub: HubOptions,
    output: Output,
) -> None:
    """Read a 25-token prompt, decode N tokens past any end of generation, and fit latency(n) = (n - 1) / W + B.

    W is how many tokens of context make a token 1 ms slower, B the latency of the first one.
    """
    from ggbench.cli.measuring import find_target, measure
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.decode import EXPERIMENT
    from ggbench.recording.experiment import Job
    from ggbench.records.decode import DecodeSettings

    if samples and not output.as_json:
        raise UsageError("--samples goes with --json", "add --json, or use results show ID --json --samples")
    if plot and output.as_json:
        raise UsageError("--plot does not go into JSON", "omit --json, or use results show ID --plot")
    settings = DecodeSettings(n_gen, repeat=repeat)
    EXPERIMENT.check(setup, settings)
    target = find_target(model, quant, setup, hub, output)
    job = Job(EXPERIMENT, target, setup, settings)
    measured = measure([job], output, bandwidth=bandwidth, timeout_s=timeout_s)
    show_measured(measured, output, samples=samples, plot=plot)
    measured.leave(ctx, output)
