"""`ggbench speed`: tokens/s and memory by input length and batch size, as defined by the published tables."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_batches
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, against_option, settings_options
from ggbench.experiments.speed.record import SpeedSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench speed twin:qwen1.5-0.5b q4_k_m --inputs 1,512 -n 64 --batch 1,4
    ggbench speed ~/models/model-q4_k_m.gguf --against published
    ggbench speed https://host Qwen/Qwen2.5-7B-Instruct --inputs 512 -n 256 \\
      --batch 1,8,32 --api-key-env VLLM_API_KEY
    """,
)
@settings_options(SpeedSettings)
@against_option
@measuring_options(
    many=True,
    load=load_options_of_batches,
    timeout="3600, for a long prompt on a CPU",
    servers=True,
    own_models=True,
)
def command(settings: SpeedSettings, asked: MeasureRequest) -> None:
    """Measure tokens/s and memory for each input length and batch size, as defined by the published tables.

    Each case reads a separate prompt per sequence, then generates N tokens for all at once. The whole table takes hours
    on a CPU; Ctrl-C keeps the cases that ended.

    Each case uses a fresh context; memory is the case's own. Qwen2.5's tables divide generated tokens by total time,
    Qwen3's add prompt tokens; both are shown, plus separate prefill and decode rates as in llama-batched-bench.

    Cases with fewer tokens run first. One that does not fit in memory fails alone. Rates are totals over a batch; for a
    server, it is N concurrent requests. Dense speed does not depend on the tokens, so a twin suffices; the experts of a
    mixture's twin may be others.
    """
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.speed.measure import EXPERIMENT

    measure_and_show(make_jobs(EXPERIMENT, settings, asked, every=True), asked)
