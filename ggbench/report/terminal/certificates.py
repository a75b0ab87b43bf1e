"""The largest context of one quant with what it rests on, and those of several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.machine.readings import name_processes
from ggbench.plain import plain
from ggbench.records.context import Probe
from ggbench.records.memory import DeviceBuffers
from ggbench.records.outcome import Outcome
from ggbench.records.run import Certificate
from ggbench.report.columns import ESSENTIAL
from ggbench.report.terminal.fitted import Cells, fitted_table
from ggbench.report.terminal.layout import TWIN_CAPTION, add_column, facts_table, new_table
from ggbench.report.terminal.origin import again_line, environment_line
from ggbench.units import format_bytes, format_count, format_number

_PARTS = "weights", "KV", "compute"
_KINDS = {"alloc": "context", "decode": "decode"}


def certificate_details(certificate: Certificate, *, folded: bool = False) -> RenderableType:
    """The answer, where its memory goes, and every question but the dry ones, which are told in one line.

    `folded` as in `again_line`.
    """
    c = certificate
    asked = [probe for probe in c.probes if probe.kind != "dry"]
    lines = [f"Warning: {warning}" for warning in c.warnings]
    if c.reason:
        lines.append(f"Note: {c.reason}")
    if c.provenance == "twin":
        lines.append(TWIN_CAPTION)
    if c.environment is not None:
        lines.append(f"Measured with {environment_line(c.environment)}")
    parts: list[RenderableType] = [facts_table(f"{c.model} {c.quant}", _facts(c)), Text()]
    if asked:
        parts += [_probes_table(asked), Text()]
    return Group(*parts, *(Text(plain(line)) for line in lines), *again_line(c.command, folded=folded))


def certificates_table(certificates: Sequence[Certificate], *, width: int | None = None) -> Table:
    """One line for each quant, theory and plan beside what works: table 6.3.9 of the article, for one machine."""
    columns: list[tuple[str, str, bool, int, Callable[[Certificate], str]]] = [
        ("quant", "", False, ESSENTIAL, lambda c: c.quant),
        ("weights", "", True, 1, lambda c: format_bytes(c.weight_bytes)),
        ("theory", "tokens", True, ESSENTIAL, lambda c: format_count(c.theory_n_ctx)),
        ("planned", "tokens", True, ESSENTIAL, lambda c: format_count(c.planned_n_ctx)),
        ("works", "tokens", True, ESSENTIAL, lambda c: format_count(c.max_n_ctx)),
        ("fails", "tokens", True, ESSENTIAL, lambda c: format_count(c.first_fail_n_ctx)),
        ("proven", "", False, ESSENTIAL, lambda c: "yes" if c.verified_by_decode else "no"),
        ("KV", "", True, 2, lambda c: format_bytes(c.kv_bytes)),
        ("compute", "", True, 3, lambda c: format_bytes(c.compute_bytes)),
        ("contexts", "made", True, 4, lambda c: format_count(c.n_allocations)),
    ]
    cells = [
        Cells(header, tuple(plain(text(c)) for c in certificates), unit, right_aligned=right, priority=priority)
        for header, unit, right, priority, text in columns
    ]
    cells.append(Cells("note", tuple(plain(c.reason) for c in certificates), is_note=True))
    models = dict.fromkeys(c.model for c in certificates)
    budgets = sorted({c.budget_bytes for c in certificates if c.budget_bytes})
    within = " to ".join(format_bytes(n_bytes) for n_bytes in dict.fromkeys((*budgets[:1], *budgets[-1:])))
    return fitted_table(
        cells,
        labels=[c.quant for c in certificates],
        dim=[c.outcome is not Outcome.COMPLETED for c in certificates],
        title=f"The largest n_ctx of {', '.join(models)}" + (f" within {within}" if within else ""),
        width=width,
        caption=TWIN_CAPTION if any(c.provenance == "twin" for c in certificates) else "",
    )


def _facts(c: Certificate) -> list[tuple[str, str]]:
    config = c.config
    n_ubatch = config.n_ubatch if c.n_ubatch is None else c.n_ubatch
    proof = f"a batch of {n_ubatch} and one more token were decoded at its far end"
    n_dry = sum(probe.kind == "dry" for probe in c.probes)
    attention = {True: "flash attention on", False: "flash attention off", None: ""}[c.flash_attn]
    return [
        ("works", f"n_ctx {format_count(c.max_n_ctx)}; {proof if c.verified_by_decode else 'not proven by a decode'}"),
        ("fails", _failure(c)),
        (
            "expected",
            f"{format_count(c.planned_n_ctx)} planned by {n_dry} dry allocation{'' if n_dry == 1 else 's'}, "
            f"{format_count(c.theory_n_ctx)} by theory",
        ),
        ("budget", _budget(c)),
        ("memory", _memory(c)),
        ("peak", _peak(c)),
        ("held by others", name_processes(c.gpu_processes)),
        (
            "with",
            ", ".join(filter(None, (f"K {config.type_k}, V {config.type_v}", attention, f"n_ubatch {n_ubatch}"))),
        ),
    ]


def _memory(c: Certificate) -> str:
    on_gpu = [each for each in c.buffers if not each.is_host]
    if not on_gpu:
        weight_bytes = sum(each.weight_bytes for each in c.buffers) or c.weight_bytes
        parts = (weight_bytes, c.kv_bytes, c.compute_bytes)
        return ", ".join(f"{name} {format_bytes(n_bytes)}" for name, n_bytes in zip(_PARTS, parts, strict=True))
    in_main_memory = [each for each in c.buffers if each.is_host]
    return f"{_sizes(on_gpu)} on the GPU; {_sizes(in_main_memory)} in main memory"


def _sizes(buffers: Sequence[DeviceBuffers]) -> str:
    """What there is of each part, over several devices."""
    totals = (sum(each.weight_bytes for each in buffers), sum(each.kv_bytes for each in buffers))
    parts = (*totals, sum(each.compute_bytes for each in buffers))
    told = [f"{name} {format_bytes(n_bytes)}" for name, n_bytes in zip(_PARTS, parts, strict=True) if n_bytes]
    return ", ".join(told) or "nothing"


def _peak(c: Certificate) -> str:
    if c.peak_bytes is None:
        return ""
    other = "" if c.other_bytes is None else f", {format_bytes(c.other_bytes)} of it beside the buffers"
    return f"{format_bytes(c.peak_bytes)}{other}"


def _failure(c: Certificate) -> str:
    if c.first_fail_n_ctx is not None:
        return f"n_ctx {format_count(c.first_fail_n_ctx)}"
    if c.max_n_ctx is not None and c.max_n_ctx == c.ceiling_n_ctx:
        return f"none was asked for above {format_count(c.ceiling_n_ctx)}, where the search was to end"
    return ""


def _budget(c: Certificate) -> str:
    if c.budget_bytes is None:
        return ""
    limit = c.config.memory_limit_bytes
    of = "" if limit is None else f"the limit is {format_bytes(limit)}, "
    reserve = f"{format_bytes(c.reserve_bytes)} are kept in reserve, " if c.reserve_bytes else ""
    return f"{format_bytes(c.budget_bytes)}; {of}{reserve}{format_bytes(c.free_bytes)} were free before"


def _probes_table(probes: Sequence[Probe]) -> Table:
    table = new_table()
    for header, unit, right in (
        ("n_ctx", "", True),
        ("asked of", "", False),
        ("ended", "", False),
        ("time", "s", True),
        ("KV", "", True),
        ("compute", "", True),
    ):
        add_column(table, header, unit, right=right)
    for probe in probes:
        texts = (
            format_count(probe.n_ctx),
            _KINDS[probe.kind],
            "works" if probe.passed else probe.outcome.value.replace("_", " "),
            format_number(probe.seconds, 2),
            format_bytes(probe.kv_bytes),
            format_bytes(probe.compute_bytes),
        )
        table.add_row(*map(Text, texts))
    return table
