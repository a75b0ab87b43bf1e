"""`ggbench prefill`: time to the first token against the length of the prompt."""

from __future__ import annotations

import click
from msgspec.structs import replace

from ggbench.commands.comparing import compare_engines
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, settings_options
from ggbench.experiments.prefill.record import PrefillSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench prefill ~/models/model-q4_k_m.gguf
    ggbench prefill qwen2.5-7b q4_k_m --lengths 1,25,128,512,2k
    ggbench prefill x.gguf --engine llama --engine llama-server
    """,
)
@settings_options(PrefillSettings)
@measuring_options(servers=True, own_models=True)
def command(settings: PrefillSettings, asked: MeasureRequest) -> None:
    """Time prompts of several lengths, each from an empty cache after one untimed pass, and show the medians.

    The result is the time to the first token, without sampling.

    Several --engine measure in turns, each length once in each of --repeat turns, at least 4, and end in the verdict of
    ggbench compare over the ratios within each turn, for each length, where no difference means none over 10 %; with
    --json in its document.
    """
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.prefill.measure import EXPERIMENT

    if len(asked.engines) > 1:
        compare_engines(EXPERIMENT, replace(settings, repeat=1), settings.repeat, asked)
    measure_and_show(make_jobs(EXPERIMENT, settings, asked), asked)
