"""What the Library's table says of each quant: its plan, where its file is, and what was measured of it.

The columns are defined once, with what they sort by; texts are those of the plan and result tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ggbench.catalog.disk import LocalModel
from ggbench.catalog.models import Catalog
from ggbench.plain import plain
from ggbench.plan_records import PlanRow
from ggbench.records import Outcome, Row
from ggbench.report.columns import UNKNOWN, b_text, w_text
from ggbench.report.terminal.plan import fit_text, longest_text
from ggbench.store.runs import RunSummary
from ggbench.tui.library_models import ModelEntry, Section
from ggbench.units import format_bytes, format_number

ON_DISK = "on disk"
TWIN = "made here"
_PER_TOKENS = 1024

Measured = dict[tuple[str, str], Row]


@dataclass(frozen=True, slots=True)
class Variant:
    """One quant of the chosen model."""

    name: str
    """The QUANT that means it and no other of its model."""
    plan: PlanRow
    is_here: bool = False
    """Whether its file is on this disk."""
    is_twin: bool = False
    """Whether it is made here, so that there is nothing to download."""
    measured: Row | None = None
    """The newest whole measurement of the same model and quant."""

    @property
    def failed(self) -> bool:
        """Whether it could not be planned."""
        return self.plan.outcome is not Outcome.COMPLETED

    @property
    def place(self) -> str:
        """`on disk`, `made here` for a twin, else the size to download."""
        if self.is_here:
            return ON_DISK
        return TWIN if self.is_twin else f"↓ {format_bytes(self.plan.file_bytes)}"

    def speed_at(self, n: int) -> float | None:
        """Predicted tokens/s at a position; None where there is no prediction."""
        return next((speed.tok_s for speed in self.plan.decode if speed.n == n), None)


@dataclass(frozen=True, slots=True)
class VariantColumn:
    """One column of the table."""

    key: str
    header: str
    text: Callable[[Variant], str]
    value: Callable[[Variant], str | float | None]
    """What it sorts by; None goes last whichever way."""
    right_aligned: bool = True
    falls: bool = False
    """Whether sorting begins with the largest."""


def _verdict(variant: Variant) -> str:
    if variant.failed:
        return "✗ not planned"
    return "? unknown" if variant.plan.fits is None else fit_text(variant.plan)


def _kv_per_1k(variant: Variant) -> int | None:
    per_token = variant.plan.kv_bytes_per_token
    return None if per_token is None else per_token * _PER_TOKENS


def _speed(n: int) -> Callable[[Variant], str]:
    return lambda variant: format_number(variant.speed_at(n))


def _measured_tok_s(variant: Variant) -> float | None:
    return None if variant.measured is None or variant.measured.latency is None else variant.measured.latency.tok_s


COLUMNS = (
    VariantColumn("quant", "quant", lambda v: plain(v.name), lambda v: v.name, right_aligned=False),
    VariantColumn("fits", "fits", _verdict, lambda v: v.plan.left_bytes, right_aligned=False, falls=True),
    VariantColumn("n_ctx", "max n_ctx", lambda v: longest_text(v.plan), lambda v: v.plan.planned_n_ctx, falls=True),
    VariantColumn("at_1k", "tok/s 1k", _speed(1024), lambda v: v.speed_at(1024), falls=True),
    VariantColumn("at_8k", "at 8k", _speed(8192), lambda v: v.speed_at(8192), falls=True),
    VariantColumn("file", "size", lambda v: format_bytes(v.plan.file_bytes), lambda v: v.plan.file_bytes),
    VariantColumn("place", "file", lambda v: v.place, lambda v: v.place, right_aligned=False),
    VariantColumn(
        "w", "measured W", lambda v: w_text(v.measured.fit) if v.measured else UNKNOWN,
        lambda v: v.measured.fit.w_tokens_per_ms if v.measured and v.measured.fit else None, falls=True,
    ),
    VariantColumn(
        "b", "B ms", lambda v: b_text(v.measured.fit) if v.measured else UNKNOWN,
        lambda v: v.measured.fit.b_ms if v.measured and v.measured.fit else None,
    ),
    VariantColumn("tok_s", "tok/s", lambda v: format_number(_measured_tok_s(v)), _measured_tok_s, falls=True),
    VariantColumn("bpw", "BPW", lambda v: format_number(v.plan.bpw), lambda v: v.plan.bpw),
    VariantColumn("weights", "weights", lambda v: format_bytes(v.plan.weight_bytes), lambda v: v.plan.weight_bytes),
    VariantColumn("kv", "KV/1k", lambda v: format_bytes(_kv_per_1k(v)), _kv_per_1k),
)  # fmt: skip


def sort_variants(variants: Iterable[Variant], column: VariantColumn, *, backwards: bool) -> list[Variant]:
    """By the column, the other way round with `backwards`; what has no value is last."""
    known = [variant for variant in variants if column.value(variant) is not None]
    unknown = [variant for variant in variants if column.value(variant) is None]

    def value(variant: Variant) -> str | float:
        found = column.value(variant)
        assert found is not None
        return found

    return sorted(known, key=value, reverse=column.falls != backwards) + unknown


def measured_rows(runs: Sequence[RunSummary]) -> Measured:
    """The newest whole decode of each model and quant; `runs` are newest first, as the store lists them."""
    found: Measured = {}
    for run in runs:
        row = run.row
        if row is not None and row.outcome is Outcome.COMPLETED and row.fit is not None:
            found.setdefault((run.model, run.quant), row)
    return found


def look_up(variant: Variant, entry: ModelEntry, here: Collection[tuple[str, str]], measured: Measured) -> Variant:
    """The variant of a listed model with what this disk, as `files_here` tells it, and the store have of it."""
    is_here = entry.section is Section.DISK or (entry.model, variant.name) in here or bool(variant.plan.file)
    row = measured.get((plain(entry.model), variant.plan.quant))
    return replace(variant, is_twin=entry.is_twin, is_here=is_here, measured=row)


def files_here(local: Iterable[LocalModel], catalog: Catalog) -> frozenset[tuple[str, str]]:
    """Model and quant of what is on this disk, by every name that the Library has for the model."""
    ids = {model.repo.lower(): model.id for model in catalog if model.repo}
    here = set()
    for model in local:
        if model.quant is not None and model.paths and not model.reason:
            here.add((model.model, model.quant))
            if (model_id := ids.get(model.model.lower())) is not None:
                here.add((model_id, model.quant))
    return frozenset(here)
