"""Whether drafting pays on a machine that is not here: planned from headers, nothing is loaded."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.commands.budget_options import BudgetOptions, find_draft, start_allocator
from ggbench.commands.options import MeasureRequest
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import ExitCode, UsageError
from ggbench.experiments.speculate.record import SpeculateRequest, SpeculateSettings


def foresee(settings: SpeculateRequest, asked: MeasureRequest, memory: BudgetOptions) -> ExitCode:
    """Print what drafts of a draft model, or of the model's own MTP layers, are expected to gain on a machine.

    Raises UsageError for what only a measurement shows, and like `plan_drafting`.
    """
    from ggbench.decisions.drafting import DRAFTING, drafting_answer, plan_drafting
    from ggbench.models.targets import resolve_headers, single
    from ggbench.sizing.budget import with_main_memory
    from ggbench.sizing.plan import PlanRequest

    setup = LlamaConfig.of(asked.setup)
    is_measured = settings.spec_type or settings.depths != SpeculateSettings().depths
    if is_measured or type(setup) is not LlamaConfig:
        what = "--gpu describes a machine, on which nothing is measured"
        raise UsageError(
            what, "omit --gpu, or --engine, --spec-type and --n-depth; -c is the context of the gain"
        )
    draft = find_draft(settings.draft or None, setup, asked.hub)
    setup = replace(setup, mtp=draft is None)
    target = single(resolve_headers(asked.model, hub=asked.hub.access()))
    budget = with_main_memory(memory.budget(setup, measures=False))
    request = PlanRequest(budget, setup, places_experts=True)

    found = plan_drafting(target, draft, request, start_allocator, settings.n_drafted)
    answer = drafting_answer(found, budget)
    if asked.output.as_json:
        asked.output.record(DRAFTING, replace(found, answer=answer.text))
    else:
        asked.output.answer(answer)
    return ExitCode.DOES_NOT_FIT if found.row.fits is False else ExitCode.DONE
