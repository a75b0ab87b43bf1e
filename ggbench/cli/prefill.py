"""`ggbench prefill`: time to the first token against the length of the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, download_options
from ggbench.cli.options import load_options, parse_lengths, run_options
from ggbench.cli.output import Output, output_options

if TYPE_CHECKING:
    from ggbench.records.setup import LlamaSetup
    from ggbench.records.speed import Bandwidth


@click.command()
@click.argument("model")
@click.argument("quant", required=False)
@click.option("--lengths", default="1,25,128,512,2048", show_default=True, help="Tokens of each prompt.")
@click.option("-r", "--repeat", type=click.IntRange(1), default=3, show_default=True, help="Timings of each length.")
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
    lengths: str,
    repeat: int,
    bandwidth: Bandwidth | None,
    timeout_s: float | None,
    setup: LlamaSetup,
    hub: HubOptions,
    output: Output,
) -> None:
    """Time prompts of several lengths, each from an empty cache after an untimed one, and show the medians."""
    from ggbench.cli.measuring import find_target, measure
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.prefill import EXPERIMENT
    from ggbench.recording.experiment import Job
    from ggbench.records.prefill import PrefillSettings

    settings = PrefillSettings(parse_lengths(lengths), repeat)
    EXPERIMENT.check(setup, settings)
    target = find_target(model, quant, setup, hub, output)
    job = Job(EXPERIMENT, target, setup, settings)
    measured = measure([job], output, bandwidth=bandwidth, timeout_s=timeout_s)
    show_measured(measured, output)
    measured.leave(ctx, output)
