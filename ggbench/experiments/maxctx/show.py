"""Show a search for the largest context: the n_ctx that works, and the probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ggbench.experiments.maxctx.record import (
    MaxctxResult,
    Probe,
    SearchPlan,
    context_bytes,
    context_of,
    outcome_text,
)
from ggbench.machine.readings import name_processes
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run, RunHead
from ggbench.runs.summary import QuantSummary
from ggbench.show.answer import Answer, Facts, Part
from ggbench.show.document import Field, Shape, field, many, of
from ggbench.show.machine import run_answer
from ggbench.show.metric import MEMORY, Metric, metric_of
from ggbench.show.names import quant_name, row_labels
from ggbench.show.presenter import LiveView, Presenter
from ggbench.show.quants import memory_parts
from ggbench.show.run_documents import (
    CACHE_TYPES,
    CONFIG,
    MEASURED_FILE,
    ShapedDocuments,
    memory,
    run_documents,
    subject,
)
from ggbench.show.run_figures import FIGURES
from ggbench.show.tables import (
    AsWide,
    Cells,
    as_part,
    fitted_table,
    left,
    notes,
    right,
    row_names,
    twin_caption,
)
from ggbench.show.text import drafting_text, slots_text
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count, format_number


def _plan(names: str) -> tuple[Field, ...]:
    return of(SearchPlan, names, lambda run: context_of(run).plan)


_PROBE = Shape("Probe", "A tried n_ctx.", of(Probe), of(Probe, "reason? device?"))

_SEARCH = Shape(
    "Search",
    "A search for the largest context.",
    MEASURED_FILE,
    subject("n_ctx_train"),
    of(MaxctxResult, "max_n_ctx n_ctx_slot? first_fail_n_ctx", context_of),
    _plan("planned_n_ctx theory_n_ctx ceiling_n_ctx"),
    of(MaxctxResult, "verified_by_decode", context_of),
    _plan("budget_bytes memory_bytes memory_source reserve_bytes reserve_source mmproj_bytes free_bytes"),
    field("kv_bytes", int | None, "KV cache of the largest context.", lambda run: context_bytes(run)[0]),
    field(
        "compute_bytes",
        int | None,
        "Compute buffers of the largest context.",
        lambda run: context_bytes(run)[1],
    ),
    _plan("draft"),
    field(
        "draft_bytes",
        int | None,
        "Memory of what drafts, over all devices.",
        lambda run: run.memory.draft_bytes,
    ),
    memory("peak_bytes other_bytes"),
    _plan("gpu_processes"),
    memory("buffers"),
    CACHE_TYPES,
    memory("flash_attn swa_cells n_batch n_ubatch"),
    of(MaxctxResult, "n_allocations seconds", context_of),
    field("probes", many(_PROBE), get=lambda run: context_of(run).probes),
    of(MaxctxResult, "warnings", context_of),
    of(Run, "outcome reason?"),
    CONFIG,
    of(RunHead, "environment", lambda run: run.head),
    of(Run, "run_id"),
    of(RunHead, "command", lambda run: run.head),
)


DOCUMENTS = run_documents("maxctx", _SEARCH, stored="search", is_swept=True)


class MaxctxPresenter(Presenter):
    kind: ClassVar[str] = "maxctx"
    documents: ClassVar[ShapedDocuments] = DOCUMENTS
    live_view: ClassVar[LiveView] = "bracket"
    has_samples: ClassVar[bool] = False
    no_answer: ClassVar[str] = "no n_ctx works"

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return MEMORY, _MAX_N_CTX

    def answer(self, run: Run) -> str:
        """Return `n_ctx 8,192 works: decoded at its end. 8,448 does not load: out of memory`; empty if none works."""
        found = context_of(run)
        if found.max_n_ctx is None:
            return ""
        works = "works: decoded at its end" if found.verified_by_decode else "loads; not proven by a decode"
        n_ctx = f"n_ctx {format_count(found.max_n_ctx)}{slots_text(run.head.setup, found.max_n_ctx)} {works}"
        return ". ".join(filter(None, (n_ctx, _failure(found, run.head.setup.program))))

    def short_answer(self, run: Run) -> str:
        """`n_ctx 24,576`."""
        summary = QuantSummary.of([run])
        return "" if summary.max_n_ctx is None else f"n_ctx {FIGURES['max_n_ctx'].text(summary)}"

    def details(self, run: Run, readings: Sequence[MachineReading] = ()) -> Answer:
        found, program = context_of(run), run.head.setup.program
        heading = ": ".join(filter(None, (quant_name(run.subject), self.answer(run))))
        real = [probe for probe in found.probes if not probe.is_dry]
        columns = [
            right("n_ctx", (format_count(probe.n_ctx) for probe in real)),
            Cells("outcome", tuple(sanitize(outcome_text(probe, program)) for probe in real), wraps=True),
            right("time", (format_number(probe.seconds, 2) for probe in real), "s"),
            right("KV", (format_bytes(probe.kv_bytes) for probe in real)),
            right("compute", (format_bytes(probe.compute_bytes) for probe in real)),
        ]
        parts: list[Part] = [as_part(fitted_table(columns))] if real else []
        parts += [Facts(_facts(run, found.plan), "Search"), *memory_parts(run.memory)]
        notes_below = [*found.warnings, twin_caption([run.subject])]
        return run_answer(run, Answer(heading, "", parts, [each for each in notes_below if each]), readings)

    def table(self, runs: Sequence[Run]) -> Answer:
        found, subjects = [context_of(run) for run in runs], [run.subject for run in runs]
        said = ["; ".join((run.reason, *each.warnings)) for run, each in zip(runs, found, strict=True)]
        columns = [
            *row_names(subjects),
            right("planned", (format_count(each.plan.planned_n_ctx) for each in found), "tokens"),
            right("works", (format_count(each.max_n_ctx) for each in found), "tokens"),
            right("fails", (format_count(each.first_fail_n_ctx) for each in found), "tokens"),
            left("proven", ("yes" if each.verified_by_decode else "no" for each in found)),
            notes(sanitize(each.strip("; ")) for each in said),
        ]
        is_failed = [not run.is_complete for run in runs]
        caption = twin_caption(subjects)
        labels = row_labels(subjects)
        made = AsWide(
            lambda width: fitted_table(columns, labels=labels, dim=is_failed, width=width, caption=caption)
        )
        return Answer("", "", [as_part(made)])


def _facts(run: Run, plan: SearchPlan) -> list[tuple[str, str]]:
    limit = budget = draft = planned = ""
    if plan.memory_bytes is not None:
        limit = f"{format_bytes(plan.memory_bytes)} ({plan.memory_source})"
    if plan.budget_bytes is not None:
        budget = f"{format_bytes(plan.budget_bytes)} for weights, KV cache and compute buffers"
    if run.memory.draft_bytes is not None:
        draft = drafting_text(run.memory.draft_bytes, plan.draft)
    if plan.planned_n_ctx is not None:
        planned = f"n_ctx {format_count(plan.planned_n_ctx)}, as in ggbench plan"
    elif plan.theory_n_ctx is not None:
        planned = f"n_ctx {format_count(plan.theory_n_ctx)}, counting only weights and KV cache"
    return [
        ("planned", planned),
        ("memory", limit),
        ("budget", budget),
        ("draft", draft),
        ("other programs", name_processes(plan.gpu_processes)),
    ]


def _failure(found: MaxctxResult, program: str) -> str:
    """Return the last probe of the smallest failing n_ctx, or that the search ended at its ceiling."""
    if found.first_fail_n_ctx is not None:
        tried = [probe for probe in found.probes if probe.n_ctx == found.first_fail_n_ctx and not probe.is_dry]
        return f"{format_count(found.first_fail_n_ctx)} {outcome_text(tried[-1], program)}" if tried else ""
    return "The search ended there" if found.max_n_ctx == found.plan.ceiling_n_ctx else ""


_MAX_N_CTX = metric_of(
    FIGURES["max_n_ctx"],
    more_is_better=True,
    interval=lambda summary: (
        (n_ctx, n_ctx) if (n_ctx := summary.max_n_ctx) and summary.max_n_ctx_verified else None
    ),
    left_out=lambda summary: "not proven",
    topic="max n_ctx",
    difference=lambda n_tokens: f"{format_count(round(n_tokens))} more",
)


PRESENTER = MaxctxPresenter()
