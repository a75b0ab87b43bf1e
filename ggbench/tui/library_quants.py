"""Rows and columns of the Library's table of quants: what it needs, how long a context, how fast, measured or planned.

Columns stand in the order in which they answer the question, since a narrow table shows the first ones. A figure that
was not measured carries a mark, and the legend explains the marks that are in view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.catalog import Catalog
from ggbench.models.disk import LocalModel
from ggbench.runs.summary import QuantSummary
from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.columns import b_text, planned_speed_text, speed_text, w_text
from ggbench.show.glossary import UNSTEADY
from ggbench.show.plot.curves import Line, fitted_line
from ggbench.show.terminal.plan import longest_text
from ggbench.sizing.plan_record import PlanRow
from ggbench.sizing.theory.limits import DECODE_POSITIONS
from ggbench.stats.decode_timing import LineFit
from ggbench.text import plain
from ggbench.tui.library_models import ModelEntry, Section
from ggbench.tui.library_results import LatestResults
from ggbench.tui.tables import Column
from ggbench.units import format_bytes, format_count, format_length, format_ms, format_number

_TO_DOWNLOAD, _PROVEN, _BEYOND_TRAINING, _EXTRAPOLATED = "↓", FITS, "*", "~"
_AT_MOST, _AT_LEAST = "≤", "≥"
_BASES = {"measured": "from runs", "forecast": "from a forecast", "other runs": "from other models' runs"}


class QuantRow(msgspec.Struct, frozen=True):
    """One quant of the chosen model."""

    name: str
    """The QUANT argument that selects it alone among the quants of its model."""
    plan: PlanRow
    is_here: bool = False
    """Whether its file is on this disk, or a server has it: there is nothing to download."""
    is_twin: bool = False
    """Whether it is a twin, which ggbench writes itself: there is nothing to download."""
    measured: QuantSummary | None = None
    """The latest completed decode of the same quant, loaded as it is planned."""
    searched: QuantSummary | None = None
    """The latest completed search for its largest context, loaded in the same way."""
    label: str = ""
    """What the table calls it where several quants have its name; printable."""

    @property
    def title(self) -> str:
        """What the table calls it: the label, else the quant; printable."""
        return self.label or plain(self.plan.quant)

    @property
    def fit(self) -> LineFit | None:
        """W and B as measured, or their bounds."""
        return None if self.measured is None else self.measured.fit

    @property
    def line(self) -> Line | None:
        """The line of W and B as measured; None where either is unknown, so that the bounds are shown."""
        return fitted_line(self.fit)

    @property
    def max_n_ctx(self) -> int | None:
        """The largest n_ctx that was proven here, else the planned one."""
        return self.plan.planned_n_ctx if self.searched is None else self.searched.max_n_ctx

    @property
    def tok_s(self) -> float | None:
        """Speed with the context filled to the planned n_ctx: by the measured W and B, else the bandwidth's bound."""
        n, line = self.plan.n_ctx, self.line
        return self.bound_at(n) if n is None or line is None else 1e3 / float(line.ms(n))

    @property
    def is_extrapolated(self) -> bool:
        """Whether the planned n_ctx lies beyond the positions that were measured."""
        decode = None if self.measured is None else self.measured.decode
        return decode is not None and (self.plan.n_ctx or 0) > decode.n_prompt + decode.n_gen

    @property
    def is_unsteady(self) -> bool:
        """Whether the decode that W and B are from was not steady."""
        return self.measured is not None and bool(self.measured.unsteady)

    def is_called(self, name: str) -> bool:
        """Return whether the name, in any case, is its argument, its quant or that of its file."""
        return name.casefold() in (self.name.casefold(), self.plan.quant, PurePath(self.plan.file).name.casefold())

    def bound_at(self, n: int | None) -> float | None:
        """Return the tokens/s that the memory's bandwidth allows at position n; None where that is not planned."""
        speeds = (*self.plan.decode, *([self.plan.at_n_ctx] if self.plan.at_n_ctx else []))
        return next((speed.tok_s for speed in speeds if speed.n == n), None)


def _verdict(row: QuantRow) -> str:
    if row.plan.outcome is not Outcome.COMPLETED:
        return f"{FITS_NOT} not planned"
    return {None: "?", True: FITS, False: FITS_NOT}[row.plan.fits]


def _longest(row: QuantRow) -> str:
    if row.searched is None:
        return longest_text(row.plan)
    star = _BEYOND_TRAINING if (row.max_n_ctx or 0) > (row.plan.n_ctx_train or row.max_n_ctx or 0) else ""
    return f"{format_count(row.max_n_ctx)}{_PROVEN if row.searched.max_n_ctx_verified else '?'}{star}"


def _speed(row: QuantRow) -> str:
    if row.tok_s is None or row.line is None:
        return _bound(_AT_MOST, format_number(row.tok_s))
    mark = f"{UNSTEADY} " if row.is_unsteady else ""
    return f"{mark}{_EXTRAPOLATED if row.is_extrapolated else ''}{format_number(row.tok_s)}"


def _bound(sign: str, text: str) -> str:
    return text if text == UNKNOWN else f"{sign} {text}"


def _w(row: QuantRow) -> str:
    text, limit = w_text(row.fit), row.plan.limit
    return _bound(_AT_MOST, format_number(limit.w_tokens_per_ms if limit else None)) if text == UNKNOWN else text


def _b(row: QuantRow) -> str:
    text, limit = b_text(row.fit), row.plan.limit
    return _bound(_AT_LEAST, format_ms(limit.b_ms if limit else None)) if text == UNKNOWN else text


def _device_weights(row: QuantRow) -> float | None:
    return row.plan.device_weight_bytes


def _decoded(row: QuantRow) -> str:
    return UNKNOWN if row.measured is None else speed_text(row.measured)


def _measured_tok_s(row: QuantRow) -> float | None:
    return row.measured.latency.tok_s if row.measured and row.measured.latency else None


def _expected_tok_s(row: QuantRow) -> float | None:
    return row.plan.expected.tok_s if row.plan.expected else None


def _size(row: QuantRow) -> str:
    text = format_bytes(row.plan.file_bytes)
    return text if row.is_here or row.is_twin or text == UNKNOWN else f"{_TO_DOWNLOAD} {text}"


def _expected(row: QuantRow) -> str:
    return planned_speed_text(row.plan.expected)


def quant_columns(n_ctx: int | None, *, has_expected: bool = False) -> tuple[Column[QuantRow], ...]:
    """Return the columns of a plan for this n_ctx, the most important first; a unit is on a header's second line.

    `has_expected` is whether a speed is expected of any quant.
    """
    expected = Column("expected", "expected\ntok/s", _expected, _expected_tok_s, descending=True)
    there = "" if n_ctx is None else f"\nat {format_length(n_ctx)}"
    return (
        Column("quant", "quant", lambda v: v.title, lambda v: v.title, right_aligned=False),
        Column("bpw", "BPW\nbits", lambda v: format_number(v.plan.bpw), lambda v: v.plan.bpw),
        Column("memory", f"memory{there}", lambda v: format_bytes(v.plan.needed_bytes), lambda v: v.plan.needed_bytes),
        Column("fits", "fits", _verdict, lambda v: v.plan.left_bytes, right_aligned=False, descending=True),
        Column("n_ctx", "max\nn_ctx", _longest, lambda v: v.max_n_ctx, descending=True),
        *([expected] if has_expected else []),
        Column("speed", f"tok/s{there}", _speed, lambda v: v.tok_s, descending=True),
        Column("w", "W\ntok/ms", _w, _either("w_tokens_per_ms"), descending=True),
        Column("b", "B\nms", _b, _either("b_ms")),
        Column("file", "size", _size, lambda v: v.plan.file_bytes),
        Column("tok_s", "decoded\ntok/s", _decoded, _measured_tok_s, descending=True),
        Column("weights", "weights", lambda v: format_bytes(v.plan.device_weight_bytes), _device_weights),
        Column("kv", f"KV{there}", lambda v: format_bytes(v.plan.device_kv_bytes), lambda v: v.plan.device_kv_bytes),
        Column("compute", "compute", lambda v: format_bytes(v.plan.compute_bytes), lambda v: v.plan.compute_bytes),
        *(_bound_at(n) for n in DECODE_POSITIONS if n != n_ctx),
    )


def _bound_at(n: int) -> Column[QuantRow]:
    def text(row: QuantRow) -> str:
        return _bound(_AT_MOST, format_number(row.bound_at(n)))

    header = f"tok/s\nat {format_length(n)}"
    return Column(f"at_{n}", header, text, lambda row: row.bound_at(n), descending=True)


def _either(name: str) -> Callable[[QuantRow], float | None]:
    """Return what reads a field of the measured line, else of the bound."""

    def value(row: QuantRow) -> float | None:
        found: float | None = getattr(row.line or row.plan.limit, name, None)
        return found

    return value


def legend(rows: Sequence[QuantRow], *, has_bandwidth: bool = True) -> str:
    """Return what the marks of these rows mean, and why there are no speeds, in one line; empty without either."""
    texts = [column.text(row) for row in rows for column in quant_columns(None)[1:]]
    trained = sorted({row.plan.n_ctx_train for row in rows if row.plan.n_ctx_train})
    meanings = {
        _AT_MOST: "≤ ≥ the bandwidth's bound, not measured",
        UNSTEADY: f"{UNSTEADY} not steady",
        _EXTRAPOLATED: "~ from W and B, beyond what was measured",
        _BEYOND_TRAINING: f"* beyond the trained {' and '.join(map(format_count, trained))}",
        _TO_DOWNLOAD: "↓ to download",
    }
    parts = [meaning for mark, meaning in meanings.items() if any(mark in text for text in texts)]
    if any(row.plan.reached_ceiling for row in rows):
        parts.append("≥ before an n_ctx: none longer was tried")
    if any(row.searched is not None for row in rows):
        parts.insert(0, f"max n_ctx {_PROVEN} found by maxctx, ? not proven by a decode")
    if bases := dict.fromkeys(row.plan.expected.speed_basis for row in rows if row.plan.expected):
        parts.append(f"expected: {', '.join(_BASES[basis] for basis in bases)}")
    if not has_bandwidth:
        parts.append("no speeds for a size alone: g chooses a card")
    return " · ".join(parts)


def labelled(rows: Iterable[QuantRow]) -> tuple[QuantRow, ...]:
    """Return the rows with their names as labels where several have the same quant, and of a server's models."""
    rows = tuple(rows)
    times = Counter(row.plan.quant for row in rows)
    named = [times[row.plan.quant] > 1 or row.plan.provenance == "endpoint" for row in rows]
    return tuple(
        replace(row, label=plain(row.name) if is_named else "") for row, is_named in zip(rows, named, strict=True)
    )


def complete(
    row: QuantRow, entry: ModelEntry, on_disk: Collection[tuple[str, str]], results: LatestResults, setup: LlamaConfig
) -> QuantRow:
    """Return the row with whether its file is on this disk, from `quants_on_disk`, and what was measured of it."""
    is_here = (
        entry.section in (Section.DISK, Section.SERVERS) or (entry.model, row.name) in on_disk or bool(row.plan.file)
    )
    known = entry.model, row.plan.quant, row.plan.file, setup
    return replace(
        row,
        is_twin=entry.is_twin,
        is_here=is_here,
        measured=results.decode(*known),
        searched=results.search(*known),
    )


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
