"""`ggbench prefill`: time to the first token against the length of the prompt."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import MeasureRequest, measuring_options, settings_options
from ggbench.experiments.prefill.record import PrefillSettings
from ggbench.show.glossary import PREFILL


@click.command(
    cls=DocumentedCommand,
    terms=PREFILL,
    examples="""
    ggbench prefill ~/models/model-q4_k_m.gguf
    ggbench prefill qwen2.5-7b q4_k_m --lengths 1,25,128,512,2k
    ggbench prefill http://127.0.0.1:8080 --lengths 512,4k
    """,
)
@settings_options(PrefillSettings)
@measuring_options(servers=True, own_models=True)
def command(settings: PrefillSettings, asked: MeasureRequest) -> None:
    """Time prompts of several lengths, each from an empty cache after one untimed pass, and show the medians.

    The result is the time to the first token, without sampling.
    """
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_measured
    from ggbench.experiments.prefill.measure import EXPERIMENT

    measured = measure(make_jobs(EXPERIMENT, settings, asked), asked)
    show_measured(measured)
    measured.leave()
