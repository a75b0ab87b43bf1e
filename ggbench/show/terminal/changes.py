"""A table of what would help where a quant does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.changes import COSTS, change_text
from ggbench.show.terminal.tables import fitted_table, left, right
from ggbench.sizing.plan_record import Change
from ggbench.units import format_bytes, format_count, format_number


def changes_report(title: str, changes: Sequence[Change], *, width: int) -> RenderableType:
    """Return the changes that are enough, the best first; where none is, all, with what is still missing."""
    enough = [change for change in changes if change.fits]
    shown = enough or changes
    if not enough:
        title += "; no single change is enough: combine some, or take a smaller model"
    if not shown:
        return Text(title)
    cells = [
        replace(left("change", map(change_text, shown), stays=True), wraps=True),
        right("memory", (format_bytes(change.needed_bytes) for change in shown), stays=True),
        left("fits", map(_fit_text, shown), stays=True),
        right("max n_ctx", map(_longest_text, shown), "tokens", 2),
        right("tok/s", (format_number(change.tok_s) for change in shown), "at best", 3),
        replace(left("costs", (COSTS[change.kind] for change in shown), stays=True), wraps=True),
    ]
    return Group(Text(title), fitted_table(cells, labels=[], dim=[False] * len(shown), width=width))


def _fit_text(change: Change) -> str:
    verdict = f"{FITS} {{}} left" if change.fits else f"{FITS_NOT} {{}} missing"
    return verdict.format(format_bytes(abs(change.left_bytes)))


def _longest_text(change: Change) -> str:
    return UNKNOWN if change.planned_n_ctx is None else format_count(change.planned_n_ctx)
