"""`ggbench speculate`: whether speculative decoding pays here, before the download."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_drafts
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, settings_options
from ggbench.experiments.speculate.record import SpeculateRequest


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench speculate qwen2.5-7b q4_k_m --draft qwen2.5-0.5b:q8_0
    ggbench speculate qwen3.8-27b q4_k_m --mtp --engine llama-server
    ggbench speculate big.gguf --spec-type ngram-simple --engine llama-server
    """,
)
@settings_options(SpeculateRequest)
@measuring_options(load=load_options_of_drafts)
def command(settings: SpeculateRequest, asked: MeasureRequest) -> None:
    """Time steps of speculative decoding, and compute how many drafted tokens must be accepted for it to pay.

    A step drafts k tokens, verifies them in one batch, and yields L tokens on average. It pays above the break-even L.
    If both models are on this disk, they also generate texts, with and without the draft.

    The break-even needs no trained weights: of a model that is not on this disk, a twin is written and measured. Which
    L a draft reaches depends on the text: code and repetition reach more than prose. L counts the model's own token.

    Steps follow llama-server with --spec-type draft-simple: the draft reads each verified batch again. The texts are
    prose, code and a repetition at temperature 0, in turn without and with the draft; the table says what was accepted
    and gained, and whether the text stayed the same.

    With --engine llama-server, the server generates the texts, and its clock and counts are reported. Only it measures
    recurrent models, heads such as eagle3 or MTP (--mtp), and drafts by n-grams (--spec-type); of twins it shows
    nothing.
    """
    from ggbench.commands.budget_options import check_draft
    from ggbench.commands.measure_options import given_setup
    from ggbench.commands.measuring import measure
    from ggbench.commands.output import interruptible
    from ggbench.commands.run_output import show_measured
    from ggbench.experiments.speculate.measure import EXPERIMENT
    from ggbench.models.targets import find_file_or_twin

    check_draft(settings.draft, asked.setup)
    given, hub = given_setup(EXPERIMENT, asked), asked.hub.access()
    EXPERIMENT.check(given, settings)
    asked.setup.check_program()
    with interruptible(asked.output):
        jobs = EXPERIMENT.jobs(settings, asked.model, [find_file_or_twin(asked.model, hub)], given, hub)
    measured = measure(jobs, asked)
    show_measured(measured)
    measured.leave()
