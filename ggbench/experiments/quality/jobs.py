"""The jobs of a quality run: which base a quant is compared with, and which pairs of KV cache types are scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.quality.measure import EXPERIMENT
from ggbench.experiments.quality.record import QualitySettings
from ggbench.models.selector import Target
from ggbench.runs.experiment import Base, Job


def largest_here(targets: Iterable[Target]) -> Base | None:
    """Return the largest file that is on this disk; None where none is."""
    here = [target for target in targets if target.path is not None]
    return Base(max(here, key=lambda target: target.file_bytes or 0)) if here else None


def quality_jobs(
    targets: Sequence[Target],
    setup: LlamaConfig,
    settings: QualitySettings,
    base: Base | None,
    kv_types: Sequence[tuple[str, str]],
    *,
    is_base_named: bool = True,
) -> list[Job]:
    """Return a job for each quant and pair of KV cache types.

    The base, whose figures the others have, is a job only if it is the only one. Where nobody named it, a quantized
    cache is compared with the f16 cache of its own quant, so that its price is not mixed with that of the quant.
    """
    rows = []
    for target in targets:
        for type_k, type_v in kv_types:
            own = base
            if base is not None and not is_base_named and (type_k, type_v) != (base.type_k, base.type_v):
                own = replace(base, target=target)
            is_base = own is not None and (target, type_k, type_v) == (own.target, own.type_k, own.type_v)
            row = replace(setup, type_k=type_k, type_v=type_v)
            rows.append(Job(EXPERIMENT, target, row, settings, None if is_base else own))
    compared = [row for row in rows if row.base is not None]
    return compared or rows
