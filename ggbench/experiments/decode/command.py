"""`ggbench decode`: every token of a long decode, timed."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_decodes
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, plot_option, settings_options
from ggbench.experiments.decode.record import DecodeSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench decode ~/models/model-q4_k_m.gguf --plot
    ggbench decode qwen2.5-7b:q4_k_m -ctk q8_0 -ctv q8_0 -fa on
    ggbench decode http://127.0.0.1:8080
    """,
)
@settings_options(DecodeSettings)
@plot_option
@measuring_options(servers=True, own_models=True, load=load_options_of_decodes)
def command(settings: DecodeSettings, asked: MeasureRequest) -> None:
    """Time every token of a long decode, past any end of generation, and fit latency(n) = (n - 1) / W + B.

    W: context tokens that make a token 1 ms slower. B: latency of the first token. After Ctrl-C or a kill, the
    measurements so far are kept.

    After it a few depths are timed again, forwards and backwards: they tell the context from a machine that slows down,
    and give W and B their ±.

    llama_decode plus llama_synchronize are timed per token, after a 25-token prompt and an unreported warm-up; the
    greedy sampler is timed separately. With -np N, N users decode at once: the table shows the speed of each user and
    of all together. A server gets N concurrent requests.
    """
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.decode.measure import EXPERIMENT

    measure_and_show(make_jobs(EXPERIMENT, settings, asked), asked)
