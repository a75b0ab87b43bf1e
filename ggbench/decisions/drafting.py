"""Whether drafting pays on a machine that need not be here: what it gains, the memory it takes, and how to start it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.run_commands import RunSettings, shell_line
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, UsageError
from ggbench.expect.drafts import DraftStep, best_step, draft_steps
from ggbench.expect.machine_runs import MachineRuns
from ggbench.expect.speed import expected_speed
from ggbench.models.targets import Target
from ggbench.record import Record
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.document import Document
from ggbench.show.figure import Figure, facts_of, interval_text, member
from ggbench.show.names import short_device
from ggbench.show.plan import MACHINE_FIGURES, ends_only, gains_text, value_only
from ggbench.show.words import say
from ggbench.sizing.drafts import check_drafts
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_length, format_number


class Drafting(Record):
    """A quant without and with drafts."""

    draft: str
    """Name of the draft model; empty for MTP layers."""
    plain: PlanRow
    """The plan without drafts, with the expected speed."""
    row: PlanRow
    """The plan with drafts."""
    steps: tuple[DraftStep, ...]
    """Those asked for, by default up to the best."""
    best: DraftStep
    llama_server: str = ""
    """The command that drafts; empty if it does not certainly pay, or does not fit."""
    answer: str = ""
    """The sentence that says all this."""


Allocators = Callable[[LlamaConfig, Budget, Target | None], DryAllocator]
"""Starts the allocator of a setup and a draft model, if there is one."""


def plan_drafting(
    target: Target, draft: Target | None, request: PlanRequest, start: Allocators, ks: Sequence[int]
) -> Drafting:
    """Plan a quant without drafts and with those of a draft model, or of its own MTP layers; `ks` as `draft_steps`.

    Raises like `check_drafts`, before an allocator starts, DoesNotFit if it does not without drafts, and UsageError if
    the speed there is unknown.
    """
    file, setup, budget = target.header(), request.setup, request.budget
    drafts = None if draft is None else draft.header()
    check_drafts(drafts, file)
    plain = _row(target, None, replace(request, setup=setup.undrafted()), start)
    if plain.fits is False:
        short, where = format_bytes(-(plain.left_bytes or 0)), short_device(budget.device)
        what = f"{sanitize(file.name)} does not fit {where} without drafts: {short} short"
        raise DoesNotFit(what, f"see what would help: {plain.command}")
    placed, n = plain.setup or setup, plain.n_ctx_slot or 1
    placement = Placement.of(file, placed, budget)
    steps = draft_steps(placement, drafts, n, is_here=budget.is_here, ks=ks)
    if not steps:
        raise UsageError("the speed of this memory is unknown", "give it: --gpu 24GiB@936GB/s")
    best = best_step(steps)
    drafting = replace(setup, n_ctx=placed.n_ctx, n_cpu_moe=placed.n_cpu_moe, spec_draft_n_max=best.k)
    row = _row(target, draft, replace(request, setup=drafting, places_experts=False), start)
    command = _command(target, draft, drafting, budget) if row.fits and best.pays else ""
    plain = replace(plain, expected=expected_speed(placement, MachineRuns(None, budget), n))
    shown = tuple(steps) if ks else tuple(filter(lambda step: step.k <= best.k, steps))
    return Drafting(drafts.name if drafts else "", plain, row, shown, best, command)


def _command(target: Target, draft: Target | None, setup: LlamaConfig, budget: Budget) -> str:
    """Return what runs a quant with its drafts; empty for one that only ggbench can open."""
    if target.to_run is None:
        return ""
    drafter = None if draft is None else draft.to_run
    return shell_line(RunSettings(target.to_run, setup, budget.backends, draft=drafter))


def _row(target: Target, draft: Target | None, request: PlanRequest, start: Allocators) -> PlanRow:
    with start(request.setup, request.budget, draft) as allocator:
        [row] = plan([target], request, allocator)
    return row


def drafting_answer(found: Drafting, budget: Budget) -> Answer:
    """Return whether it pays and the command, the steps, and what it rests on."""
    best, speed = found.best, found.plain.expected
    plain = "" if speed is None else say("drafting.plain", tok_s=interval_text(speed), basis=speed.source)
    headline = say(
        f"drafting.{best.verdict}",
        what=say("drafting.draft", name=sanitize(found.draft)) if found.draft else "MTP",
        device=short_device(budget.device),
        gains=gains_text(best),
        plain="?" if speed is None else format_number(speed.value, 2),
        k=best.k,
        memory=_memory_text(found),
    )
    facts = [
        ("without drafts", plain),
        ("theory", say("drafting.theory")),
        *facts_of(MACHINE_FIGURES, budget),
    ]
    first, *others = _STEPS
    table = Table(
        [first, *map(_gain, best.lengths), *others],
        found.steps,
        style=lambda step: "bold" if step is best else "",
    )
    return Answer(headline, found.llama_server, [table], [say("drafting.estimated")], [Facts(facts)])


def _memory_text(found: Drafting) -> str:
    """Return `needs 1.29 GiB, leaves a context of 49k of 64k`, or what is missing."""
    row, plain = found.row, found.plain
    needed = format_bytes((row.needed_bytes or 0) - (plain.needed_bytes or 0))
    if not row.fits:
        n_ctx = format_length(row.n_ctx or 0)
        return say("drafting.lacks", needed=needed, short=format_bytes(-(row.left_bytes or 0)), n_ctx=n_ctx)
    left, whole = (f"{each.used_of(each.planned_n_ctx or 0) // 1024}k" for each in (row, plain))
    return say("drafting.needs", needed=needed, left=left, whole=whole)


def _gain(task: str) -> Figure[DraftStep]:
    return Figure(
        task,
        task,
        lambda step: step.gain(task),
        lambda gain: f"{value_only(gain)} ({ends_only(gain, 2)})",
    )


_STEPS: Sequence[Figure[DraftStep]] = (
    member("k", "--spec-draft-n-max"),
    member("cost", "pays above", value_only, unit="tokens a step"),
)
DRAFTING = Document(
    "drafting",
    "speculate MODEL QUANT --gpu NAME",
    "What drafts are expected to gain on a machine, and the memory that they take.",
    Drafting,
)
