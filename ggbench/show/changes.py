"""What would make a quant fit that does not: as a table, in words, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.machine.readings import Program
from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.document import Shape, field, of
from ggbench.show.tables import fitted_table, left, right
from ggbench.sizing.plan_record import Change, ChangeKind
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes, format_count, format_number


def changes_report(title: str, changes: Sequence[Change], *, width: int, is_host_known: bool = True) -> RenderableType:
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
    table = fitted_table(cells, labels=[], dim=[False] * len(shown), width=width)
    needs_host = not is_host_known and any(change.host_bytes for change in shown)
    how_much = "how much main memory that machine has is not known: --ram 64GiB says it"
    return Group(Text(title), table, *([Text(how_much, style="dim")] if needs_host else []))


COSTS: Mapping[ChangeKind, str] = {
    "close programs": "none for the model",
    "n_ubatch": "slower prompts",
    "flash attention": "nothing",
    "KV q8_0": "a little quality",
    "draft": "the speed that drafting gains",
    "n_cpu_moe": "speed: the CPU reads experts from main memory",
    "quant": "quality",
    "n_ctx": "context",
    "KV q4_0": "quality, most in long contexts",
    "n_gpu_layers": "speed: the CPU reads the other layers from main memory",
}


def _cost_text(change: Change) -> str:
    host = "" if change.host_bytes is None else f" ({format_bytes(change.host_bytes)})"
    return COSTS[change.kind] + host


def change_options(change: Change) -> str:
    """Return the options of a change, `-ctk q8_0 -ctv q8_0`; empty without any."""
    setup = change.setup
    if setup is None or change.kind == "draft":
        return ""
    if change.kind in ("KV q8_0", "KV q4_0"):
        return f"-ctk {setup.type_k} -ctv {setup.type_v}{' -fa on' if setup.flash_attn == 'on' else ''}"
    flag, field = _OPTIONS[change.kind]
    return f"{flag} {getattr(setup, field)}"


_OPTIONS: Mapping[ChangeKind, tuple[str, str]] = {
    "n_ubatch": ("-ub", "n_ubatch"),
    "flash attention": ("-fa", "flash_attn"),
    "n_cpu_moe": ("-ncmoe", "n_cpu_moe"),
    "n_ctx": ("-c", "n_ctx"),
    "n_gpu_layers": ("-ngl", "n_gpu_layers"),
}


def change_text(change: Change) -> str:
    """Return a change in a few words: its options, `q4_0 as planned`, or the programs to close."""
    if change.programs:
        return f"close {in_words(list(map(_program_text, change.programs)))}"
    if change.kind == "draft":
        return "without a draft"
    return change_options(change) or f"{sanitize(change.quant)} as planned"


def _program_text(program: Program) -> str:
    """Return `firefox (3.20 GiB in 12 processes)`, `python (pid 4242, 1.10 GiB)`."""
    size, n_pids = format_bytes(program.held_bytes), len(program.pids)
    where = f"{size} in {format_count(n_pids)} processes" if n_pids > 1 else f"pid {program.pids[0]}, {size}"
    return f"{sanitize(program.name)} ({where})"


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
    of(Change, "quant? programs needed_bytes host_bytes left_bytes fits planned_n_ctx tok_s"),
    field("costs", str, "What it costs in exchange.", lambda change: COSTS[change.kind]),
)
