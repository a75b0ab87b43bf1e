"""A search for the largest context as JSON has it, with the names that every command uses."""

from __future__ import annotations

from dataclasses import asdict

from ggbench.records.context import ContextResult
from ggbench.records.run import Run
from ggbench.records.setup import LlamaSetup
from ggbench.report.documents import setup_document


def certificate_document(run: Run) -> dict[str, object]:
    """Every key is always there; null is unknown."""
    subject, memory, environment = run.subject, run.memory, run.head.environment
    setup = run.head.setup if isinstance(run.head.setup, LlamaSetup) else None
    found = context_of(run)
    kv_bytes, compute_bytes = context_bytes(run)
    return {
        "model": subject.model,
        "quant": subject.quant,
        "file": subject.file,
        "provenance": subject.source,
        "file_bytes": subject.file_bytes,
        "n_params": subject.n_params,
        "bpw": subject.bpw,
        "weight_bytes": subject.weight_bytes,
        "kv_bytes_per_token": subject.kv_bytes_per_token,
        "n_ctx_train": subject.n_ctx_train,
        "max_n_ctx": found.max_n_ctx,
        "first_fail_n_ctx": found.first_fail_n_ctx,
        "planned_n_ctx": found.plan.planned_n_ctx,
        "theory_n_ctx": found.plan.theory_n_ctx,
        "ceiling_n_ctx": found.plan.ceiling_n_ctx,
        "verified_by_decode": found.verified_by_decode,
        "budget_bytes": found.plan.budget_bytes,
        "reserve_bytes": found.plan.reserve_bytes,
        "free_bytes": found.plan.free_bytes,
        "kv_bytes": kv_bytes,
        "compute_bytes": compute_bytes,
        "peak_bytes": memory.peak_bytes,
        "other_bytes": memory.other_bytes,
        "gpu_processes": [asdict(process) for process in found.plan.gpu_processes],
        "buffers": [asdict(buffers) for buffers in memory.buffers],
        "type_k": setup and setup.type_k,
        "type_v": setup and setup.type_v,
        "flash_attn": memory.flash_attn,
        "n_batch": memory.n_batch,
        "n_ubatch": memory.n_ubatch,
        "n_allocations": found.n_allocations,
        "seconds": found.seconds,
        "probes": [
            asdict(probe) | {"outcome": probe.outcome.value, "reason": probe.reason or None} for probe in found.probes
        ],
        "warnings": list(found.warnings),
        "outcome": run.outcome.value,
        "reason": run.reason or None,
        "config": setup_document(run.head.setup),
        "environment": None if environment is None else asdict(environment),
        "run_id": run.run_id,
        "command": run.head.command,
    }


def context_of(run: Run) -> ContextResult:
    """What a search found; nothing where it did not get so far."""
    return run.result if isinstance(run.result, ContextResult) else ContextResult()


def context_bytes(run: Run) -> tuple[int | None, int | None]:
    """KV cache and compute buffers of the largest context; of a search that was cut short, by the probe of it."""
    memory, found = run.memory, context_of(run)
    if memory.n_ctx is not None:
        return memory.kv_bytes, memory.compute_bytes
    probe = next((each for each in found.probes if each.passed and each.n_ctx == found.max_n_ctx), None)
    return (None, None) if probe is None or found.max_n_ctx is None else (probe.kv_bytes, probe.compute_bytes)
