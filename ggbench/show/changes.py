"""What would make a quant fit that does not: as a table, in words, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.document import Shape, field, of
from ggbench.show.tables import fitted_table, left, right
from ggbench.sizing.plan_record import Change, ChangeKind, PlanRow
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count, format_number


def changes_report(
    title: str, changes: Sequence[Change], *, width: int, is_host_known: bool = True
) -> RenderableType:
    """Return the sufficient changes, best first; if there are none, all, with the memory still missing.

    `is_host_known` says whether changes were checked to have enough main memory beside GPUs.
    """
    enough = [change for change in changes if change.fits]
    shown = enough or changes
    if not enough:
        title += "; no single change is enough: combine some, or use a smaller model"
    if not shown:
        return Text(title)
    cells = [
        left("change", map(change_text, shown), stays=True, wraps=True),
        right("memory", (format_bytes(change.needed_bytes) for change in shown), stays=True),
        left("fits", (left_text(change.left_bytes) for change in shown), stays=True),
        right("max n_ctx", (format_count(change.planned_n_ctx) for change in shown), "tokens", 2),
        right("tok/s", (format_number(change.tok_s) for change in shown), "at best", 3),
        left("costs", map(_cost_text, shown), stays=True, wraps=True),
    ]
    lines = [] if is_host_known else _unknown_host(shown)
    return Group(Text(title), fitted_table(cells, width=width), *lines)


def _unknown_host(changes: Sequence[Change]) -> list[Text]:
    if not any(change.host_bytes for change in changes):
        return []
    return [Text("how much main memory that machine has is not known: --ram 64GiB says it", style="dim")]


COSTS: Mapping[ChangeKind, str] = {
    "KV q8_0": "a little quality",
    "n_cpu_moe": "speed: the CPU reads experts from main memory",
    "quant": "quality",
    "n_ctx": "context",
    "n_gpu_layers": "speed: the CPU reads the other layers from main memory",
}


def _cost_text(change: Change) -> str:
    host = "" if change.host_bytes is None else f" ({format_bytes(change.host_bytes)})"
    return COSTS[change.kind] + host


def change_options(change: Change) -> str:
    """Return the options of a change, `-ctk q8_0 -ctv q8_0`; empty without any."""
    setup = change.setup
    if setup is None:
        return ""
    if change.kind == "KV q8_0":
        return f"-ctk {setup.type_k} -ctv {setup.type_v}{' -fa on' if setup.flash_attn == 'on' else ''}"
    return f"{_FLAGS[change.kind]} {getattr(setup, change.kind)}"


_FLAGS: Mapping[ChangeKind, str] = {"n_cpu_moe": "-ncmoe", "n_ctx": "-c", "n_gpu_layers": "-ngl"}


def change_text(change: Change) -> str:
    """Return a change in a few words: its options, or `q4_0 as planned`."""
    return change_options(change) or f"{sanitize(change.quant)} as planned"


def remedy_text(row: PlanRow) -> str:
    """Return `fits with -ctk q8_0 -ctv q8_0`, the cheapest change of the setup with which it does; else nothing."""
    options = next((change_options(each) for each in row.changes if each.fits and each.setup is not None), "")
    return f"fits with {options}" if options else ""


def left_text(left_bytes: int | None) -> str:
    if left_bytes is None:
        return UNKNOWN
    mark, word = (FITS, "left") if left_bytes >= 0 else (FITS_NOT, "missing")
    return f"{mark} {format_bytes(abs(left_bytes))} {word}"


CHANGE = Shape(
    "Change",
    "What would help if it does not fit.",
    of(Change, "change=kind"),
    field(
        "options",
        str | None,
        "Options, by the names of ggbench and llama.cpp: `-ctk q8_0 -ctv q8_0`.",
        lambda change: change_options(change) or None,
    ),
    of(Change, "quant? needed_bytes host_bytes left_bytes fits planned_n_ctx tok_s"),
    field("costs", str, "What it costs in exchange.", lambda change: COSTS[change.kind]),
)
