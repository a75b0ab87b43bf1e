"""Rows and columns of the Library's table of quants: the plan, where the file is, and the latest measurement.

Each column defines its text and its sort key; texts match those of the plan and result tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from ggbench.catalog.disk import LocalModel
from ggbench.catalog.models import Catalog
from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.plan import PlanRow
from ggbench.records.run import Run
from ggbench.records.summary import QuantSummary
from ggbench.report import UNKNOWN
from ggbench.report.columns import b_text, w_text
from ggbench.report.terminal.plan import fit_text, longest_text
from ggbench.tui.library_models import ModelEntry, Section
from ggbench.tui.tables import Column
from ggbench.units import format_bytes, format_number

_ON_DISK = "on disk"
_MADE_HERE = "made here"
_PER_TOKENS = 1024

LatestDecodes = dict[tuple[str, str], QuantSummary]
"""The latest completed decode of each (model, quant)."""


@dataclass(frozen=True, slots=True)
class QuantRow:
    """One quant of the chosen model."""

    name: str
    """The QUANT argument that selects it alone among the quants of its model."""
    plan: PlanRow
    is_here: bool = False
    """Whether its file is on this disk."""
    is_twin: bool = False
    """Whether it is a twin, which ggbench writes itself: there is nothing to download."""
    measured: QuantSummary | None = None
    """The latest completed decode of the same model and quant."""

    @property
    def place(self) -> str:
        """Return `on disk`, `made here` for a twin, else the size to download."""
        if self.is_here:
            return _ON_DISK
        return _MADE_HERE if self.is_twin else f"↓ {format_bytes(self.plan.file_bytes)}"

    def speed_at(self, n: int) -> float | None:
        """Return the predicted tokens/s at position n; None if there is no prediction."""
        return next((speed.tok_s for speed in self.plan.decode if speed.n == n), None)


def _verdict(row: QuantRow) -> str:
    if row.plan.outcome is not Outcome.COMPLETED:
        return "✗ not planned"
    return "? unknown" if row.plan.fits is None else fit_text(row.plan)


def _kv_per_1k(row: QuantRow) -> int | None:
    per_token = row.plan.kv_bytes_per_token
    return None if per_token is None else per_token * _PER_TOKENS


def _speed(n: int) -> Callable[[QuantRow], str]:
    return lambda row: format_number(row.speed_at(n))


def _measured_tok_s(row: QuantRow) -> float | None:
    return None if row.measured is None or row.measured.latency is None else row.measured.latency.tok_s


COLUMNS: tuple[Column[QuantRow], ...] = (
    Column("quant", "quant", lambda v: plain(v.name), lambda v: v.name, right_aligned=False),
    Column("fits", "fits", _verdict, lambda v: v.plan.left_bytes, right_aligned=False, descending=True),
    Column("n_ctx", "max n_ctx", lambda v: longest_text(v.plan), lambda v: v.plan.planned_n_ctx, descending=True),
    Column("at_1k", "tok/s 1k", _speed(1024), lambda v: v.speed_at(1024), descending=True),
    Column("at_8k", "at 8k", _speed(8192), lambda v: v.speed_at(8192), descending=True),
    Column("file", "size", lambda v: format_bytes(v.plan.file_bytes), lambda v: v.plan.file_bytes),
    Column("place", "file", lambda v: v.place, lambda v: v.place, right_aligned=False),
    Column(
        "w", "measured W", lambda v: w_text(v.measured.fit) if v.measured else UNKNOWN,
        lambda v: v.measured.fit.w_tokens_per_ms if v.measured and v.measured.fit else None, descending=True,
    ),
    Column(
        "b", "B ms", lambda v: b_text(v.measured.fit) if v.measured else UNKNOWN,
        lambda v: v.measured.fit.b_ms if v.measured and v.measured.fit else None,
    ),
    Column("tok_s", "tok/s", lambda v: format_number(_measured_tok_s(v)), _measured_tok_s, descending=True),
    Column("bpw", "BPW", lambda v: format_number(v.plan.bpw), lambda v: v.plan.bpw),
    Column("weights", "weights", lambda v: format_bytes(v.plan.weight_bytes), lambda v: v.plan.weight_bytes),
    Column("kv", "KV/1k", lambda v: format_bytes(_kv_per_1k(v)), _kv_per_1k),
)  # fmt: skip


def latest_decodes(runs: Iterable[Run]) -> LatestDecodes:
    """Return the latest completed decode of each model and quant; `runs` are newest first, as the store lists them."""
    found: LatestDecodes = {}
    for run in runs:
        summary = QuantSummary.of([run])
        if run.is_complete and summary.fit is not None:
            found.setdefault((run.subject.model, run.subject.quant), summary)
    return found


def complete(
    row: QuantRow, entry: ModelEntry, on_disk: Collection[tuple[str, str]], decodes: LatestDecodes
) -> QuantRow:
    """Return the row with its place on this disk, from `quants_on_disk`, and its latest decode."""
    is_here = entry.section is Section.DISK or (entry.model, row.name) in on_disk or bool(row.plan.file)
    measured = decodes.get((plain(entry.model), row.plan.quant))
    return replace(row, is_twin=entry.is_twin, is_here=is_here, measured=measured)


def quants_on_disk(local: Iterable[LocalModel], catalog: Catalog) -> frozenset[tuple[str, str]]:
    """Return (model, quant) of every measurable file on this disk, under every name the Library has for the model."""
    ids = {model.repo.lower(): model.id for model in catalog if model.repo}
    here = set()
    for model in local:
        if model.quant is not None and model.paths and not model.reason:
            here.add((model.model, model.quant))
            if (model_id := ids.get(model.model.lower())) is not None:
                here.add((model_id, model.quant))
    return frozenset(here)
