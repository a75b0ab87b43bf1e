"""A plan as JSON has it: numbers unrounded, every key always there, null for unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ggbench.records.plan import Budget, PlanRow

if TYPE_CHECKING:
    from ggbench.catalog.planned_variants import RepoReading


def plan_document(
    budget: Budget, sources: dict[str, str], rows: Sequence[PlanRow], reading: RepoReading | None = None
) -> dict[str, object]:
    """The fields of `ggbench.plan/1`; `sources` says where each kind of figure comes from, `reading` of which repo."""
    bandwidth = budget.bandwidth
    return {
        "machine": {
            "device": budget.device,
            "on_gpu": budget.on_gpu,
            "memory_bytes": budget.memory_bytes,
            "memory_source": budget.memory_source,
            "reserve_bytes": budget.reserve_bytes,
            "reserve_source": budget.reserve_source,
            "budget_bytes": budget.usable_bytes,
            "bandwidth_bytes_per_s": bandwidth and bandwidth.bytes_per_s,
            "bandwidth_source": bandwidth and bandwidth.source,
        },
        "sources": sources,
        "repo": reading and reading.repo,
        "commit": reading and reading.commit,
        "listed_at": (reading and reading.listed_at) or None,
        "moved_bytes": reading and reading.moved_bytes,
        "total_bytes": reading and reading.total_bytes,
        "rows": [_row(row) for row in rows],
    }


def _row(row: PlanRow) -> dict[str, object]:
    fields: dict[str, object] = asdict(row)
    fields |= {
        "file": row.file or None,
        "exceeds_training": row.exceeds_training,
        "outcome": row.outcome.value,
        "reason": row.reason or None,
        "decode": [asdict(speed) for speed in row.decode],
    }
    return fields
