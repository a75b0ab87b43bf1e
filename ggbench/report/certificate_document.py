"""A certificate as JSON has it, with the names that every command uses."""

from __future__ import annotations

from dataclasses import asdict

from ggbench.records.run import Certificate


def certificate_document(certificate: Certificate) -> dict[str, object]:
    """Every key is always there; null is unknown."""
    c = certificate
    return {
        "model": c.model,
        "quant": c.quant,
        "file": c.file,
        "provenance": c.provenance,
        "file_bytes": c.file_bytes,
        "n_params": c.n_params,
        "bpw": c.bpw,
        "weight_bytes": c.weight_bytes,
        "kv_bytes_per_token": c.kv_bytes_per_token,
        "n_ctx_train": c.n_ctx_train,
        "max_n_ctx": c.max_n_ctx,
        "first_fail_n_ctx": c.first_fail_n_ctx,
        "planned_n_ctx": c.planned_n_ctx,
        "theory_n_ctx": c.theory_n_ctx,
        "ceiling_n_ctx": c.ceiling_n_ctx,
        "verified_by_decode": c.verified_by_decode,
        "budget_bytes": c.budget_bytes,
        "reserve_bytes": c.reserve_bytes,
        "free_bytes": c.free_bytes,
        "kv_bytes": c.kv_bytes,
        "compute_bytes": c.compute_bytes,
        "peak_bytes": c.peak_bytes,
        "other_bytes": c.other_bytes,
        "gpu_processes": [asdict(process) for process in c.gpu_processes],
        "buffers": [asdict(buffers) for buffers in c.buffers],
        "type_k": c.config.type_k,
        "type_v": c.config.type_v,
        "flash_attn": c.flash_attn,
        "n_batch": c.n_batch,
        "n_ubatch": c.n_ubatch,
        "n_allocations": c.n_allocations,
        "seconds": c.seconds,
        "probes": [
            {
                "n_ctx": probe.n_ctx,
                "kind": probe.kind,
                "outcome": probe.outcome.value,
                "seconds": probe.seconds,
                "kv_bytes": probe.kv_bytes,
                "compute_bytes": probe.compute_bytes,
                "reason": probe.reason or None,
            }
            for probe in c.probes
        ],
        "warnings": list(c.warnings),
        "outcome": c.outcome.value,
        "reason": c.reason or None,
        "config": asdict(c.config),
        "environment": None if c.environment is None else asdict(c.environment),
        "run_id": c.run_id,
        "command": c.command,
    }
