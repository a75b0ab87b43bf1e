"""A quant in the Library's table: its row and its figures."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.record import Candidate
from ggbench.decisions.pick.show import FIGURES as PICK_FIGURES
from ggbench.engines.endings import Outcome
from ggbench.show import ESSENTIAL, FITS, FITS_NOT
from ggbench.show.figure import Figure
from ggbench.sizing.plan_record import PlanRow
from ggbench.text import sanitize, shorten
from ggbench.units import format_bytes

_TO_DOWNLOAD = "↓"
_WIDEST = 24
"""Characters of a name or of how a quant is run; longer texts end with `…`."""


class QuantRow(msgspec.Struct, frozen=True):
    """A quant, run in the best way for the needs."""

    candidate: Candidate
    is_here: bool = False
    """Whether its file is on this disk."""
    is_twin: bool = False
    """Whether ggbench has to write a twin to run it, as that was asked for, or nobody published the model."""
    is_slow: bool = False
    """Whether it answers more slowly than the workload's comfort asks, also at the upper end of its speed."""
    label: str = ""
    """Name in the table if several quants share one; printable."""

    @property
    def name(self) -> str:
        """The QUANT argument that selects only this quant of its model."""
        return self.candidate.quant

    @property
    def plan(self) -> PlanRow:
        return self.candidate.row

    @property
    def title(self) -> str:
        """Name in the table; printable."""
        return self.label or sanitize(self.plan.quant)

    def is_called(self, name: str) -> bool:
        """Return whether the name, in any case, is its QUANT argument, its quant or its file's name."""
        return name.casefold() in (
            self.name.casefold(),
            self.plan.quant,
            PurePath(self.plan.file).name.casefold(),
        )


def _fits(row: QuantRow) -> str:
    if row.plan.outcome is not Outcome.COMPLETED:
        return f"{FITS_NOT} failed"
    fits = {None: "?", True: FITS, False: FITS_NOT}[row.plan.fits]
    state = "! slow" if row.plan.fits and row.is_slow else fits
    return shorten(f"{state} {row.candidate.options}".rstrip(), _WIDEST)


def _file(row: QuantRow) -> str:
    if row.is_here:
        return "here"
    return "twin" if row.is_twin else f"{_TO_DOWNLOAD}{format_bytes(row.plan.file_bytes)}"


def _of_pick(key: str, priority: int = ESSENTIAL) -> Figure[Any]:
    """Return a figure of a pick's table, whose rows too have a candidate."""
    return next(replace(figure, priority=priority) for figure in PICK_FIGURES if figure.key == key)


FIGURES: tuple[Figure[QuantRow], ...] = (
    Figure("quant", "quant", lambda row: shorten(row.title, _WIDEST)),
    Figure("fits", "fits", _fits),
    _of_pick("tok_s"),
    _of_pick("kld"),
    _of_pick("max_n_ctx", 3),
    Figure("file", "file", _file, priority=1),
    _of_pick("cache", 4),
    _of_pick("left_bytes", 5),
)
