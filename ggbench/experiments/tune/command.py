"""`ggbench tune`: the settings that beat the defaults, with the gain and its interval."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import MeasureRequest, measuring_options, plot_option, settings_options
from ggbench.errors import UsageError
from ggbench.experiments.tune.record import TuneSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench tune ~/models/model-q4_k_m.gguf --depth 0,4k --within 4m
    ggbench tune qwen2.5-7b q4_k_m --for both --allow-kv q8_0
    ggbench decode qwen2.5-7b q4_k_m --tuned
    """,
)
@settings_options(TuneSettings)
@plot_option
@measuring_options()
def command(settings: TuneSettings, plot: bool, asked: MeasureRequest) -> None:
    """Search for the settings with which QUANT is fastest on this machine, and say how much is gained.

    Settings that look equal at a short context can differ by 3 times at a long one, so --depth decides: the mean over
    the depths counts. Candidates change the number of threads, flash attention, the physical batch, the mapping of the
    file, how several GPUs split the model, and for a model that does not fit which experts, layers or tensors stay in
    main memory. What does not fit is never tried. Not tried: NUMA, process priority, and settings of the build.

    All candidates are measured a little at each depth; those that are clearly slower than the leader are dropped, the
    rest are measured longer, and what was faster alone is tried together. The defaults are measured again every few
    candidates, and where they took 10 % more or less than before, what lies between is repeated; a machine that drifts
    on is called too noisy, with the programs that computed.

    The best of several is better by chance, so its gain is measured again, by turns with the defaults, each time in a
    new process where the time allows, and only that is stated, with its 95 % interval. Often no setting beats the
    defaults. Ctrl-C keeps the best so far. --tuned of decode, speed, bench, maxctx and quality takes what was found for
    this machine, file and llama.cpp, and says what has changed where one of them is another.
    """
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_measured
    from ggbench.experiments.tune.measure import EXPERIMENT

    if plot and asked.output.as_json:
        raise UsageError("--plot cannot be used with --json", "omit --json, or use results show ID --plot")
    measured = measure(make_jobs(EXPERIMENT, settings, asked), asked)
    show_measured(measured, plot=plot)
    measured.leave()
