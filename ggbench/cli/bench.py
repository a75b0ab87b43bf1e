"""`ggbench bench`: the table of every quant of a model."""

from __future__ import annotations

import click
from msgspec.structs import replace

from ggbench.commands.comparing import compare_engines
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_decodes
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, against_option, plot_option, settings_options
from ggbench.errors import UsageError
from ggbench.experiments.decode.record import DecodeSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench bench ~/models/Qwen2.5-7B-Instruct-GGUF
    ggbench bench twin:qwen1.5-0.5b q8_0 q4_k_m -n 1000 --plot
    ggbench bench x.gguf -d 8k -r 5 --engine llama --engine llama-server
    """,
)
@settings_options(DecodeSettings)
@plot_option
@against_option
@measuring_options(many=True, servers=True, own_models=True, load=load_options_of_decodes)
def command(settings: DecodeSettings, asked: MeasureRequest) -> None:
    """Measure every quant of a model, or every model of a server, and show them in one table.

    Each quant is loaded, reads a 25-token prompt and decodes. Several --engine measure one quant in turns, and end in
    the verdict of ggbench compare.

    If a quant fails, its row shows the reason and the rest continue. Each decode is stored as a run.

    Several --engine, builds, forks, or the same program with other flags, such as 'llama-server -fa off', make a run
    for each of --repeat, at least 4; the verdict is over the ratios within each turn. No difference means none over
    10 %. With --json it is compare's document. If a run fails, the others go on, and the exit code is its.
    """
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.decode.measure import EXPERIMENT

    if len(asked.engines) > 1:
        if asked.output.plot or asked.output.against:
            raise UsageError("several engines exclude --plot and --against", "omit them")
        compare_engines(EXPERIMENT, replace(settings, repeat=1), settings.repeat, asked)
    measure_and_show(make_jobs(EXPERIMENT, settings, asked, every=True), asked)
