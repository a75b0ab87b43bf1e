"""`ggbench forecast`: the speed of a model without its file."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_cases
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench forecast qwen1.5-7b q4_k_m q8_0
    ggbench forecast org/name-GGUF q4_k_m -ctk q8_0 -ctv q8_0
    ggbench forecast qwen2.5-72b q4_k_m -ngl 40
    """,
)
@measuring_options(many=True, load=load_options_of_cases)
def command(asked: MeasureRequest) -> None:
    """Forecast the speed of QUANTS of MODEL on this machine; only headers are downloaded.

    Twins of a few layers are written, timed and removed, and the full model is extrapolated. It may be larger than this
    machine's memory. The required time and disk space are printed first.

    Two layer counts, timed alternately, give the cost of a layer, 4,096 KV cells the cost of context. Models up to
    about 1 GB are measured whole as a twin. With -ngl, --n-cpu-moe or -ot ...=CPU, twins are timed in each memory and
    weighted by the layers placed there. Intervals cover the spread of five rounds plus 8 % for unmodelled effects.

    plan, pick and the TUI show what is known without measuring, preferring in this order: runs of this file with the
    same setup, a forecast, an estimate from two or more other models, others' llama-bench on such GPUs.

    Not supported: models with coupled layers (Gemma 3n), and layers on several GPUs.
    """
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.forecast.measure import EXPERIMENT
    from ggbench.experiments.forecast.record import ForecastSettings
    from ggbench.models.targets import resolve
    from ggbench.runs.experiment import Job

    asked.setup.check_program()
    targets = resolve(asked.model.require_gguf().as_twin(), hub=asked.hub.access())
    measure_and_show([Job(EXPERIMENT, each, asked.setup, ForecastSettings()) for each in targets], asked)
