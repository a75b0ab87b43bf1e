"""`ggbench tune`: the settings that beat the defaults, with the gain and its interval."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, plot_option, settings_options
from ggbench.errors import ExitCode, UsageError
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
    """Find the fastest settings for QUANT on this machine, and measure the gain.

    Settings equal at a short context can differ 3x at a long one, so the mean over --depth decides. Candidates vary
    threads, flash attention, n_ubatch, mmap, the GPU split and, for a model that does not fit, which experts, layers or
    tensors stay in main memory. What does not fit is never tried. Not tried: NUMA, process priority, build settings,
    and drafts, whose gain depends on the text: ggbench speculate measures them.

    All candidates get short measurements at each depth; clearly slower ones are dropped, the rest measured longer, and
    winners combined. The defaults are remeasured regularly; if they change by 10 %, everything in between is repeated.
    If drift persists, tune reports a noisy machine and the programs that used the CPU.

    The best of several wins partly by chance, so its gain is remeasured in alternation with the defaults, in new
    processes if time allows, and only that is reported, with a 95 % interval. Often no setting beats the defaults.
    With --engine llama-server, each candidate is a start of the server, with --for decode alone.

    Ctrl-C keeps the best so far. --tuned (decode, speed, bench, maxctx, quality) applies the result for the same
    machine, file and llama.cpp, or says which has changed.
    """
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_measured
    from ggbench.decisions.pick.drafts import speculate_command
    from ggbench.experiments.tune.measure import EXPERIMENT

    if plot and asked.output.as_json:
        raise UsageError("--plot cannot be used with --json", "omit --json, or use results show ID --plot")
    measured = measure(make_jobs(EXPERIMENT, settings, asked), asked)
    show_measured(measured, plot=plot)
    for job in measured.jobs if measured.exit_code is ExitCode.DONE and settings.objective != "prefill" else ():
        if line := speculate_command(*job.target.named):
            asked.output.notice(f"To measure whether a draft model pays: {line}")
    measured.leave()
