"""`ggbench speculate`: whether speculative decoding pays, here or on a described machine, before the download."""

from __future__ import annotations

import click
from msgspec.structs import replace

from ggbench.commands.budget_options import (
    BudgetOptions,
    check_draft,
    find_draft,
    machine_options,
    start_allocator,
)
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_drafts
from ggbench.commands.measure_options import measuring_options
from ggbench.commands.options import MeasureRequest, settings_options
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import ExitCode, UsageError
from ggbench.experiments.speculate.record import SpeculateRequest, SpeculateSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench speculate qwen3.8-27b q4_k_m --gpu rtx-3090
    ggbench speculate qwen2.5-7b q4_k_m --draft qwen2.5-0.5b:q8_0
    ggbench speculate big.gguf --spec-type ngram-simple --engine llama-server
    """,
)
@settings_options(SpeculateRequest)
@machine_options
@measuring_options(load=load_options_of_drafts)
def command(settings: SpeculateRequest, memory: BudgetOptions, asked: MeasureRequest) -> None:
    """Say whether drafts pay: on a described machine by theory and published acceptance, here by measuring.

    With --gpu nothing is loaded or downloaded but headers. MTP layers of the model draft, or those of --draft; the
    answer is the gain for code and chat with the best --spec-draft-n-max (-k tries others), the memory that it takes,
    and the longest context that it leaves. Exit code 3: it does not fit.

    Without --gpu, steps of the pair are timed: each drafts k tokens, verifies them in one batch, and yields L tokens on
    average, the model's own included. It pays above the break-even L, which needs no trained weights: of a model that
    is not on this disk, a twin is written and measured.

    Steps follow llama-server with --spec-type draft-simple: the draft reads each verified batch again. With --engine
    llama-server, the server continues texts of several tasks, in turn without and with drafts; the table says what was
    accepted and gained, by its clock and counts. Only it measures recurrent models, heads such as eagle3 or MTP
    (--mtp), and drafts by n-grams (--spec-type); of twins it shows nothing.
    """
    from ggbench.commands.measure_options import given_setup
    from ggbench.commands.output import interruptible
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.speculate.measure import EXPERIMENT
    from ggbench.models.targets import find_file_or_twin

    check_draft(settings.draft, asked.setup)
    if memory.is_described:
        raise click.exceptions.Exit(_foresee(settings, asked, memory))
    given, hub = given_setup(EXPERIMENT, asked), asked.hub.access()
    EXPERIMENT.check(given, settings)
    asked.setup.check_program()
    with interruptible(asked.output):
        jobs = EXPERIMENT.jobs(settings, asked.model, [find_file_or_twin(asked.model, hub)], given, hub)
    measure_and_show(jobs, asked)


def _foresee(settings: SpeculateRequest, asked: MeasureRequest, memory: BudgetOptions) -> ExitCode:
    """Print what drafts of a draft model, or of the model's own MTP layers, are expected to gain on a machine.

    Raises UsageError for what only a measurement shows, and like `plan_drafting`.
    """
    from ggbench.decisions.drafting import DRAFTING, drafting_answer, plan_drafting
    from ggbench.expect.drafts import MOST_K
    from ggbench.models.targets import resolve_headers, single
    from ggbench.sizing.plan import PlanRequest

    setup = LlamaConfig.of(asked.setup)
    is_measured = settings.spec_type or settings.depths != SpeculateSettings().depths
    if is_measured or type(setup) is not LlamaConfig:
        what = "--gpu describes a machine, on which nothing is measured"
        raise UsageError(
            what, "omit --gpu, or --engine, --spec-type and --n-depth; -c is the context of the gain"
        )
    if max(settings.n_drafted, default=1) > MOST_K:
        raise UsageError(f"-k is at most {MOST_K} with --gpu", "lower it, or measure: omit --gpu")
    draft = find_draft(settings.draft or None, setup, asked.hub)
    target = single(resolve_headers(asked.model, hub=asked.hub.access()))
    setup = replace(setup, mtp=draft is None)
    budget = memory.budget(setup, measures=False)
    request = PlanRequest(budget, setup, memory.given, places_experts=True)
    found = plan_drafting(target, draft, request, start_allocator, settings.n_drafted)
    answer = drafting_answer(found, budget)
    asked.output.either(DRAFTING, replace(found, answer=answer.text), answer)
    return ExitCode.DOES_NOT_FIT if found.row.fits is False else ExitCode.DONE
