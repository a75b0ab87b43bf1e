"""`ggbench chat`."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, settings_options

from .record import ChatSettings


@click.command(cls=DocumentedCommand, examples="ggbench chat model.gguf --turns 3")
@settings_options(ChatSettings)
@measuring_options()
def command(settings: ChatSettings, asked: MeasureRequest) -> None:
    """Time the turns of a chat."""
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show

    from .measure import EXPERIMENT

    measure_and_show(make_jobs(EXPERIMENT, settings, asked), asked)
