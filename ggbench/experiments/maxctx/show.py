"""Show a search for the largest context: the n_ctx that works, and the probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, MemoryKind
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
from ggbench.show.columns import COLUMNS, max_n_ctx_text
from ggbench.show.document import Field, Shape, field, many, of
from ggbench.show.machine import again_line, environment_line, machine_table, unsteady_line
from ggbench.show.metric import MEMORY, Metric, metric_of
from ggbench.show.names import models_title, quant_name, row_labels
from ggbench.show.presenter import LiveView, Presenter
from ggbench.show.run_documents import (
    CACHE_TYPES,
    CONFIG,
    MEASURED_FILE,
    RunDocuments,
    memory,
    run_documents,
    subject,
)
from ggbench.show.tables import Cells, Facts, facts_table, fitted_table, left, notes, right, row_names, twin_caption
from ggbench.show.text import drafting_text, slots_text, swa_text
from ggbench.text import sanitize
from ggbench.units import counted, format_bytes, format_count, format_number

_PARTS = "weights", "KV", "compute"


def _plan(names: str) -> tuple[Field, ...]:
    return of(SearchPlan, names, lambda run: context_of(run).plan)


_PROBE = Shape("Probe", "A tried n_ctx.", of(Probe), of(Probe, "reason? device?"))

_SEARCH = Shape(
    "Search",
    "A search for the largest context.",
    MEASURED_FILE,
    subject("n_ctx_train"),
    of(MaxctxResult, "max_n_ctx n_ctx_slot? first_fail_n_ctx", context_of),
    _plan("planned_n_ctx is_planned_higher theory_n_ctx ceiling_n_ctx"),
    of(MaxctxResult, "verified_by_decode", context_of),
    _plan("budget_bytes memory_bytes memory_source reserve_bytes reserve_source mmproj_bytes free_bytes"),
    field("kv_bytes", int | None, "KV cache of the largest context.", lambda run: context_bytes(run)[0]),
    field("compute_bytes", int | None, "Compute buffers of the largest context.", lambda run: context_bytes(run)[1]),
    _plan("draft"),
    field("draft_bytes", int | None, "Memory of what drafts, over all devices.", lambda run: run.memory.draft_bytes),
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
    documents: ClassVar[RunDocuments] = DOCUMENTS
    live_view: ClassVar[LiveView] = "bracket"
    has_samples: ClassVar[bool] = False

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return MEMORY, _MAX_N_CTX

    def answer(self, run: Run) -> str:
        """`n_ctx 8,192, proven by a decode, after 3 contexts and 1 decode`; so far, for an interrupted search."""
        found = context_of(run)
        if found.max_n_ctx is None:
            return run.reason or "no n_ctx works" if run.is_complete else "no working n_ctx found yet"
        proven = "proven by a decode" if found.verified_by_decode else "not proven"
        made = counted(found.n_allocations, "context")
        if n_decodes := sum(probe.is_proof for probe in found.probes):
            made += f" and {counted(n_decodes, 'decode')}"
        n_ctx = format_count(found.max_n_ctx) + slots_text(run.head.setup, found.max_n_ctx)
        text = f"n_ctx {n_ctx}, {proven}, after {made}"
        return text if run.is_complete else f"so far {text}"

    def short_answer(self, run: Run) -> str:
        """`n_ctx 24,576`."""
        summary = QuantSummary.of([run])
        return "" if summary.max_n_ctx is None else f"n_ctx {max_n_ctx_text(summary)}"

    def ending(self, run: Run) -> str:
        if run.is_complete or context_of(run).max_n_ctx is None:
            return Presenter.ending(self, run)
        return self.answer(run)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        found, environment, program = context_of(run), run.head.environment, run.head.setup.program
        real = [probe for probe in found.probes if not probe.is_dry]
        lines = [
            *(f"Warning: {warning}" for warning in found.warnings),
            f"Note: {run.reason}" if run.reason else "",
            unsteady_line(run),
            *_crash_notes(found, program),
            twin_caption([run.subject]),
            f"Measured with {environment_line(environment)}" if environment else "",
        ]
        parts: list[RenderableType] = [facts_table(quant_name(run.subject), _facts(run, found)), Text()]
        if real:
            columns = [
                right("n_ctx", (format_count(probe.n_ctx) for probe in real)),
                Cells("outcome", tuple(sanitize(outcome_text(probe, program)) for probe in real), wraps=True),
                right("time", (format_number(probe.seconds, 2) for probe in real), "s"),
                right("KV", (format_bytes(probe.kv_bytes) for probe in real)),
                right("compute", (format_bytes(probe.compute_bytes) for probe in real)),
            ]
            parts += [fitted_table(columns), Text()]
        if machine := machine_table(readings, run.gpu_use):
            parts += [machine, Text()]
        return Group(
            *parts, *(Text(sanitize(line)) for line in lines if line), *again_line(run.head.command, folded=folded)
        )

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        found = [context_of(run) for run in runs]
        subjects = [run.subject for run in runs]
        sizes = [context_bytes(run) for run in runs]

        columns = [
            *row_names(subjects),
            right("weights", (format_bytes(run.subject.weight_bytes) for run in runs), priority=1),
            right("theory", (format_count(each.plan.theory_n_ctx) for each in found), "tokens"),
            right("planned", (format_count(each.plan.planned_n_ctx) for each in found), "tokens"),
            right("works", (format_count(each.max_n_ctx) for each in found), "tokens"),
            right("fails", (format_count(each.first_fail_n_ctx) for each in found), "tokens"),
            left("proven", ("yes" if each.verified_by_decode else "no" for each in found)),
            right("KV", (format_bytes(kv_bytes) for kv_bytes, _ in sizes), priority=2),
            right("compute", (format_bytes(compute_bytes) for _, compute_bytes in sizes), priority=3),
            right("contexts", (format_count(each.n_allocations) for each in found), "made", 4),
            notes(
                sanitize("; ".join(filter(None, (run.reason, *each.warnings))))
                for run, each in zip(runs, found, strict=True)
            ),
        ]
        budgets = sorted({each.plan.budget_bytes for each in found if each.plan.budget_bytes})
        within = " to ".join(format_bytes(n_bytes) for n_bytes in dict.fromkeys((*budgets[:1], *budgets[-1:])))
        return fitted_table(
            columns,
            labels=row_labels(subjects),
            dim=[not run.is_complete for run in runs],
            title=f"The largest n_ctx of {models_title(subjects)}" + (f" within {within}" if within else ""),
            width=width,
            caption=twin_caption(run.subject for run in runs),
        )


def _facts(run: Run, found: MaxctxResult) -> Facts:
    setup, memory, plan = run.head.setup, run.memory, found.plan
    n_ubatch = memory.n_ubatch or setup.n_ubatch
    works = "no tried n_ctx"
    if found.max_n_ctx is not None:
        works = f"n_ctx {format_count(found.max_n_ctx)}{slots_text(setup, found.max_n_ctx)}"
    if found.verified_by_decode:
        works += "; proven by a decode at its end"
    elif found.max_n_ctx is not None:
        works += " loads; not proven by a decode at its end"
    limit = peak = budget = ""
    if plan.memory_bytes is not None:
        free = "" if plan.memory_bytes == plan.free_bytes else f"; {format_bytes(plan.free_bytes)} were free before"
        limit = f"{format_bytes(plan.memory_bytes)} ({plan.memory_source}){free}"
    if plan.budget_bytes is not None:
        budget = f"{format_bytes(plan.budget_bytes)} for weights, KV cache and compute buffers"
    if memory.peak_bytes is not None:
        other = "" if memory.other_bytes is None else f", {format_bytes(memory.other_bytes)} of it outside the buffers"
        peak = f"{format_bytes(memory.peak_bytes)}{other}"
        if plan.memory_bytes is not None and memory.peak_bytes > plan.memory_bytes:
            peak += "; the limit counts what the model and its context add to the process, not the process"
    n_dry = sum(probe.is_dry for probe in found.probes)
    attention = {True: "flash attention on", False: "flash attention off", None: ""}[memory.flash_attn]
    cache = "K {}, V {}".format(*setup.cache_types) if setup.cache_types else ""
    windows = swa_text(memory.swa_cells, memory.n_ctx)
    return [
        ("works", works),
        ("fails", _failure(found, setup.program)),
        ("theory" if plan.planned_n_ctx is None else "planned", _planned(plan, n_dry)),
        ("memory", limit),
        ("reserve", f"{format_bytes(plan.reserve_bytes)} ({plan.reserve_source})" if plan.reserve_source else ""),
        ("projector", f"{format_bytes(plan.mmproj_bytes)} left free (--mmproj)" if plan.mmproj_bytes else ""),
        ("draft", "" if run.memory.draft_bytes is None else drafting_text(run.memory.draft_bytes, plan.draft)),
        ("budget", budget),
        ("buffers", _buffers(run)),
        ("peak", peak),
        ("other programs", name_processes(plan.gpu_processes)),
        ("setup", ", ".join(filter(None, (cache, windows, attention, f"n_ubatch {n_ubatch}" if n_ubatch else "")))),
        ("file", run.subject.file),
    ]


def _planned(plan: SearchPlan, n_dry: int) -> str:
    theory = f"{format_count(plan.theory_n_ctx)} counting only weights and KV cache"
    if plan.planned_n_ctx is None:
        return "" if plan.theory_n_ctx is None else f"n_ctx {theory}"
    least = "at least " if plan.is_planned_higher else ""
    planned = f"n_ctx {least}{format_count(plan.planned_n_ctx)}, as in ggbench plan"
    planned += f", by {counted(n_dry, 'dry allocation')}"
    return planned if plan.theory_n_ctx is None else f"{planned}; {theory}"


def _buffers(run: Run) -> str:
    buffers = run.memory.buffers
    on_gpu = [each for each in buffers if not each.is_host]
    if not on_gpu:
        weight_bytes = run.memory.weight_bytes or run.subject.weight_bytes
        parts = (weight_bytes, *context_bytes(run))
        return ", ".join(f"{name} {format_bytes(n_bytes)}" for name, n_bytes in zip(_PARTS, parts, strict=True))
    on_host = [each for each in buffers if each.is_host]
    in_main_memory = f"{_sizes(on_host, run.memory.unread_bytes)} in main memory"
    if any(each.place is MemoryKind.REMOTE for each in buffers):
        return "; ".join([*(f"{_sizes([each])} on {each.device}" for each in on_gpu), in_main_memory])
    return f"{_sizes(on_gpu)} on the GPU; {in_main_memory}"


def _sizes(buffers: Sequence[DeviceBuffers], unread_bytes: int = 0) -> str:
    totals = [
        sum(each.weight_bytes for each in buffers) - unread_bytes,
        sum(each.kv_bytes for each in buffers),
        sum(each.compute_bytes for each in buffers),
    ]
    sizes = [f"{name} {format_bytes(n_bytes)}" for name, n_bytes in zip(_PARTS, totals, strict=True) if n_bytes]
    return ", ".join(sizes) or "nothing"


def _failure(found: MaxctxResult, program: str) -> str:
    """The last probe of the smallest failing n_ctx."""
    if found.first_fail_n_ctx is not None:
        tried = [probe for probe in found.probes if probe.n_ctx == found.first_fail_n_ctx and not probe.is_dry]
        did = f" {outcome_text(tried[-1], program)}" if tried else ""
        return f"n_ctx {format_count(found.first_fail_n_ctx)}{did}"
    if found.max_n_ctx is not None and found.max_n_ctx == found.plan.ceiling_n_ctx:
        return f"not found: the search ended at its ceiling, {format_count(found.plan.ceiling_n_ctx)}"
    return ""


def _crash_notes(found: MaxctxResult, program: str) -> list[str]:
    crashed = {probe.reason: probe.n_ctx for probe in found.probes if probe.outcome is Outcome.CRASHED}
    return [
        f"Note: at n_ctx {format_count(n_ctx)} {program} crashed ({reason}), and the search continued below. "
        f"Another --flash-attn setting or quant may reach further; if it crashes again, report it to {program}."
        for reason, n_ctx in crashed.items()
    ]


_MAX_N_CTX = metric_of(
    COLUMNS["max_n_ctx"],
    more_is_better=True,
    interval=lambda summary: (n_ctx, n_ctx) if (n_ctx := summary.max_n_ctx) and summary.max_n_ctx_verified else None,
    left_out=lambda summary: "not proven",
    topic="max n_ctx",
    difference=lambda n_tokens: f"{format_count(round(n_tokens))} more",
)


PRESENTER = MaxctxPresenter()
