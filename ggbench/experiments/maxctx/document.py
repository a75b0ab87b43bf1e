"""JSON of a search for the largest context, and how it is read back."""

from __future__ import annotations

from typing import Any

from ggbench.experiments.maxctx.record import (
    MaxctxResult,
    MaxctxSettings,
    Probe,
    SearchPlan,
    context_bytes,
    context_of,
)
from ggbench.runs.run import Run, RunHead
from ggbench.show.document import Field, Shape, field, many, of
from ggbench.show.run_documents import (
    CACHE_TYPES,
    CONFIG,
    MEASURED_FILE,
    ReadRun,
    memory,
    run_documents,
    subject,
)


def _plan(names: str) -> tuple[Field, ...]:
    return of(SearchPlan, names, lambda run: context_of(run).plan)


_PROBE = Shape("Probe", "One n_ctx that was tried.", of(Probe), of(Probe, "reason? device?"))
_SEARCH = Shape(
    "Search",
    "A search for the largest context.",
    MEASURED_FILE,
    subject("n_ctx_train"),
    of(MaxctxResult, "max_n_ctx first_fail_n_ctx", context_of),
    _plan("planned_n_ctx is_planned_higher theory_n_ctx ceiling_n_ctx"),
    of(MaxctxResult, "verified_by_decode", context_of),
    _plan("budget_bytes memory_bytes memory_source reserve_bytes reserve_source mmproj_bytes free_bytes"),
    field("kv_bytes", int | None, "KV cache of the largest context.", lambda run: context_bytes(run)[0]),
    field("compute_bytes", int | None, "Compute buffers of the largest context.", lambda run: context_bytes(run)[1]),
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


def _read(found: Any) -> ReadRun:  # noqa: ANN401 - an object of the shape
    from ggbench.show.document_types import record_of

    plan = record_of(_SEARCH, found, SearchPlan, warnings=found.warnings or ())
    probes = tuple(record_of(_PROBE, each, Probe) for each in found.probes or ())
    return ReadRun(MaxctxSettings(), record_of(_SEARCH, found, MaxctxResult, plan=plan, probes=probes))


DOCUMENTS = run_documents("maxctx", _SEARCH, stored="search", is_swept=True, read=_read)
