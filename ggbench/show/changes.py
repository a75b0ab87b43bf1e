"""What would make a quant fit that does not: its figures, and its options in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggbench.engines.llama.flags import changed_flags
from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.answer import Table
from ggbench.show.figure import Figure, figures_type, member
from ggbench.sizing.plan_record import Change, ChangeKind, PlanRow
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_number

_CHANGED: Mapping[ChangeKind, Sequence[str]] = {
    "KV q8_0": ("type_k", "type_v", "flash_attn"),
    "n_cpu_moe": ("n_cpu_moe", "tensor_split"),
    "n_ctx": ("n_ctx",),
    "n_gpu_layers": ("n_gpu_layers", "tensor_split"),
}
"""Fields of a setup that a change sets."""


def change_options(change: Change) -> str:
    """Return the options of a change, `-ctk q8_0 -ctv q8_0`; empty without any."""
    return "" if change.setup is None else " ".join(changed_flags(change.setup, fields=_CHANGED[change.kind]))


def change_text(change: Change) -> str:
    """Return a change in a few words: its options, or `q4_0 as planned`."""
    return change_options(change) or f"{sanitize(change.quant)} as planned"


def cheapest_options(row: PlanRow) -> str:
    """Return the options of the cheapest change of the setup with which a quant fits; empty without one."""
    return next((change_options(each) for each in row.changes if each.fits and each.setup is not None), "")


def left_text(left_bytes: int | None) -> str:
    """Return `✓ 1.20 GiB left` or `✗ 1.20 GiB short`."""
    if left_bytes is None:
        return UNKNOWN
    mark, word = (FITS, "left") if left_bytes >= 0 else (FITS_NOT, "short")
    return f"{mark} {format_bytes(abs(left_bytes))} {word}"


_SHOWN: Sequence[Figure[Change]] = (
    member("needed_bytes", "memory", format_bytes, meaning="Bytes needed in the planned memory."),
    member(
        "left_bytes",
        "fits",
        left_text,
        meaning="Bytes left of the budget; negative if memory is still missing.",
    ),
    member("planned_n_ctx", "max n_ctx", meaning="The longest context with it; null if unknown.", priority=1),
    member(
        "tok_s",
        "tok/s",
        lambda speed: f"~{format_number(speed.value, 2)}",
        "expected",
        is_estimate=True,
        priority=2,
        meaning="Expected speed with a full context [tokens/s]; null if unknown.",
    ),
    member("host_bytes", "in main memory", format_bytes, meaning="Main memory that it takes beside GPUs."),
)
CHANGE_FIGURES: Sequence[Figure[Change]] = (
    member("change", "kind", path="kind"),
    Figure(
        "options",
        "options",
        lambda change: change_options(change) or None,
        meaning="Options, by the names of ggbench and llama.cpp; null for another quant.",
    ),
    Figure("quant", "quant", lambda change: change.quant or None, meaning="The other quant, as planned."),
    *_SHOWN,
    member("fits", "fits", meaning="Whether it is enough."),
)
CHANGE = figures_type("Change", CHANGE_FIGURES, "What would help if a quant does not fit.")


def changes_table(title: str, changes: Sequence[Change]) -> Table[Change]:
    """Return a table of the sufficient changes, best first; of all if none is."""
    what = Figure[Change]("change", "change", change_text)
    return Table((what, *_SHOWN), [change for change in changes if change.fits] or changes, title)
