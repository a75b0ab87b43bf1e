"""`ggbench session`: the turns of a session, each with the transcript before it in the cache."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_sessions
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, plot_option, settings_options
from ggbench.experiments.session.record import SessionSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench session qwen3-8b q4_k_m --workload chat
    ggbench session ~/models/model-q4_k_m.gguf --engine llama-server -np 4 -kvu
    ggbench session http://127.0.0.1:8080 --workload turns.jsonl --plot
    """,
)
@settings_options(SessionSettings)
@plot_option
@measuring_options(servers=True, timeout="3600", load=load_options_of_sessions)
def command(settings: SessionSettings, asked: MeasureRequest) -> None:
    """Time the turns of a session: how long each waits for its first token, and how fast it answers.

    The transcript grows in the cache, so each turn reads only what is new. What is read again is counted, and its cause
    named where the server tells. After Ctrl-C or a kill, the turns so far are kept.

    A FILE has a line for each turn, with its numbers of new tokens and of those generated, or a server's answer with
    OpenAI's usage or llama-server's timings. "kept" is the share of the transcript before it that stays.

    The context is as long as the session, unless -c is given. A server keeps its own defaults of caching.
    """
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.session.measure import EXPERIMENT

    measure_and_show(make_jobs(EXPERIMENT, settings, asked), asked)
