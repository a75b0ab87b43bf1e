"""`ggbench tune`: the settings that beat the defaults, with the gain and its interval."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, settings_options
from ggbench.experiments.tune.record import TuneSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench tune ~/models/model-q4_k_m.gguf --depth 0,4k --within 4m
    ggbench tune qwen2.5-7b q4_k_m --for both
    """,
)
@settings_options(TuneSettings)
@measuring_options()
def command(settings: TuneSettings, asked: MeasureRequest) -> None:
    """Find settings for QUANT that are faster than the defaults on this machine, and measure the gain.

    Flash attention, threads, n_ubatch and placement are tried, one change each, in turns with the defaults.

    The defaults have the options given here. Placement is how several GPUs split the model and, if it does not fit on
    the GPU, whether experts or layers stay in main memory. The mean over --depth decides. What does not fit is not
    tried.

    The best of several is partly lucky, so a second round measures only the defaults and the fastest again, each time
    in a new process, in 4 to 16 turns. Its ratio is the gain, if the 95 % interval excludes 1. Often there is none.
    With --engine llama-server, each measurement is a start of the server, with --for decode alone.
    """
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.tune.measure import EXPERIMENT

    measure_and_show(make_jobs(EXPERIMENT, settings, asked), asked)
