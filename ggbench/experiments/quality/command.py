"""`ggbench quality`: the loss of quality due to a quant or a quantized KV cache."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_cases
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, against_option, settings_options
from ggbench.errors import NetworkError
from ggbench.experiments.quality.record import QualityRequest


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench quality ~/models/qwen2.5-7b q2_k q4_k_m --base q8_0 --chunks 16
    ggbench quality ~/models/qwen2.5-7b --text wiki.test.raw
    ggbench quality model.gguf -ctk q8_0 -ctv q8_0 -c 8k
    """,
)
@settings_options(QualityRequest)
@against_option
@measuring_options(many=True, load=load_options_of_cases)
def command(settings: QualityRequest, asked: MeasureRequest) -> None:
    """Score a text with each of QUANTS: perplexity, and KL divergence from a base, which is the loss.

    Chunks of --n-ctx tokens are scored by their second half, like llama-perplexity. The same command goes on with a run
    that was stopped, and measures a finished one again.

    With a base, the table adds KL divergence, top-token agreement, and the change in the true token's probability. Base
    and quant run side by side without writing logits; if both do not fit in memory, the base's logits go to a cache
    file first.

    -ctk q8_0 -ctv q8_0 shows the loss of a quantized KV cache against the f16 cache of the same quant (or --base).
    ggbench compare tells runs over the same chunks apart.

    Among files of several models, each is compared with the largest of its own. Results for different texts, n_ctx or
    tokenizers are not comparable; a run stores its text's SHA-256. A twin has no quality. A failed quant (e.g. NaN
    logits) is shown with the reason. --against published shows the nearest llama.cpp and Qwen rows and what differs.
    Compare the KL divergence, which is relative to a base; perplexities are rarely comparable.
    """
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.quality.measure import EXPERIMENT

    try:
        jobs = make_jobs(EXPERIMENT, settings, asked, every=True)
    except NetworkError as error:
        raise error.without_twin() from error
    measure_and_show(jobs, asked)
