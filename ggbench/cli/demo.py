"""`ggbench demo`: from twins to a table and a plot on this machine, with no network."""

from __future__ import annotations

import click

from ggbench.cli.options import TOKENS, Asked, HubOptions, option, output_options
from ggbench.cli.output import Output

_MODEL = "synth:qwen1.5-0.5b"
_QUANTS = ("q8_0", "q4_k_m", "q2_k")


@click.command()
@option("-n --n-gen", "Number of tokens to decode.", TOKENS, default=500)
@output_options
def command(n_gen: int, output: Output) -> None:
    """Make twins of Qwen1.5 0.5B, measure them on this machine, and show the table and the latency plot.

    A twin has the true shape and types of a model and no trained weights: speed and memory are real, the text is not.
    """
    from ggbench.cli.measuring import make_jobs, measure
    from ggbench.cli.run_output import show_run_ids, show_summaries
    from ggbench.experiments.decode import EXPERIMENT
    from ggbench.records.decode import DecodeSettings
    from ggbench.records.setup import LlamaSetup
    from ggbench.report.documents import summary_document

    output.notice("Twins of Qwen1.5 0.5B: true shapes and types, no trained weights. Nothing is downloaded.")
    asked = Asked(_MODEL, _QUANTS, LlamaSetup(), HubOptions(), output)
    measured = measure(make_jobs(EXPERIMENT, DecodeSettings(n_gen), asked, every=True), asked)
    summaries = measured.summaries
    if output.as_json:
        output.document("demo", model=_MODEL, n_gen=n_gen, rows=[summary_document(each) for each in summaries])
    else:
        show_summaries(summaries, output, text_format="table", plot=True)
        show_run_ids(measured)
        output.notice("Next: ggbench models, then ggbench bench PATH/TO/MODEL.gguf, or synth:<id> for any of them.")
    measured.leave()
