"""A plan for people: what is planned for and how as facts, then a line for each quant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.plan import Budget, PlannedSpeed, PlanRow
from ggbench.records.setup import LlamaSetup
from ggbench.records.subject import Subject
from ggbench.report import UNKNOWN
from ggbench.report.columns import swa_text
from ggbench.report.names import model_name
from ggbench.report.terminal.tables import Cells, Facts, facts_table, fitted_table, left, names, notes, right
from ggbench.units import format_bandwidth, format_bytes, format_count, format_ms, format_number

FITS, FITS_NOT = "✓", "✗"


def plan_report(
    budget: Budget, config: LlamaSetup, sources: Mapping[str, str], rows: Sequence[PlanRow], *, width: int
) -> RenderableType:
    """The facts and the table, no wider than `width` characters."""
    models = list(dict.fromkeys(map(_model_name, rows)))
    title = f"{', '.join(models)} on {budget.device}"
    shared = _shared_notes(rows)
    parts: list[RenderableType] = [
        Padding(facts_table(title, _facts(budget, config, sources, rows, shared)), (0, 0, 1, 0)),
        fitted_table(_cells(rows, budget, shared), dim=[row.fits is not True for row in rows], width=width),
    ]
    if legend := _legend(rows, budget):
        parts.append(Text(legend, style="dim"))
    return Group(*parts)


def _model_name(row: PlanRow) -> str:
    return model_name(Subject(model=row.model, quant=row.quant, source=row.provenance, file=row.file))


def fit_text(row: PlanRow) -> str:
    """`✓ 19.2 GiB left`, `✗ 1.5 GiB missing`; an em dash when unknown."""
    if row.left_bytes is None or row.fits is None:
        return UNKNOWN
    if row.fits:
        return f"{FITS} {format_bytes(row.left_bytes)} left"
    return f"{FITS_NOT} {format_bytes(-row.left_bytes)} missing"


def longest_text(row: PlanRow) -> str:
    """`50,176`, with a star beyond the training context; `≥ 1,048,576` where the search ended; an em dash for none."""
    if row.planned_n_ctx is None:
        return UNKNOWN
    star = "*" if row.exceeds_training else ""
    return f"{'≥ ' if row.reached_ceiling else ''}{format_count(row.planned_n_ctx)}{star}"


def _facts(
    budget: Budget, config: LlamaSetup, sources: Mapping[str, str], rows: Sequence[PlanRow], shared: Sequence[str]
) -> Facts:
    bandwidth = budget.bandwidth
    return [
        ("memory", f"{format_bytes(budget.memory_bytes)} ({budget.memory_source})"),
        ("reserve", f"{format_bytes(budget.reserve_bytes)} ({budget.reserve_source}; --reserve)"),
        ("budget", format_bytes(budget.usable_bytes)),
        ("bandwidth", f"{format_bandwidth(bandwidth.bytes_per_s)} ({bandwidth.source})" if bandwidth else "not known"),
        ("planned at", _setting(config, rows)),
        *((name.replace("_", " "), text) for name, text in sources.items()),
        *(("note", note) for note in shared),
    ]


def _setting(config: LlamaSetup, rows: Sequence[PlanRow]) -> str:
    lengths = sorted({row.n_ctx for row in rows if row.n_ctx is not None})
    flash = {row.flash_attn for row in rows if row.flash_attn is not None}
    cache = config.type_k if config.type_k == config.type_v else f"K {config.type_k}, V {config.type_v}"
    parts = [f"n_ctx {' and '.join(map(format_count, lengths))}"] if lengths else []
    n_ubatch = min(config.n_ubatch, config.n_batch, *lengths[-1:])  # llama.cpp clamps it to n_batch, and that to n_ctx
    parts += [f"KV cache {cache}", *_windows(rows), f"n_ubatch {format_count(n_ubatch)}"]
    if flash:
        parts.append(f"flash attention {'on' if flash == {True} else 'off' if flash == {False} else 'on or off'}")
    return ", ".join(parts)


def _windows(rows: Sequence[PlanRow]) -> list[str]:
    """What the caches of sliding-window layers hold, for each way that there is."""
    return list(dict.fromkeys(text for row in rows if (text := swa_text(row.swa_cells, row.n_ctx))))


def _cells(rows: Sequence[PlanRow], budget: Budget, shared: Sequence[str]) -> list[Cells]:
    cells = [
        names("quant", (row.quant for row in rows)),
        right("file", (format_bytes(row.file_bytes) for row in rows), priority=6),
        right("BPW", (format_number(row.bpw) for row in rows), "bits", 5),
        right("on GPU" if budget.on_gpu else "weights", (format_bytes(row.device_weight_bytes) for row in rows), "", 3),
    ]
    if budget.on_gpu:
        cells.append(right("on CPU", (format_bytes(row.host_weight_bytes) for row in rows), priority=7))
    cells += [
        right("KV", (format_bytes(row.device_kv_bytes) for row in rows), priority=4),
        *_kv_elsewhere(rows),
        right("compute", (format_bytes(row.compute_bytes) for row in rows), priority=5),
        left("fits", map(fit_text, rows)),
        right("max n_ctx", map(longest_text, rows), "tokens"),
    ]
    limits = [row.limit for row in rows]
    if any(limits):
        cells += [
            right(
                "W", (format_number(limit.w_tokens_per_ms if limit else None, 4) for limit in limits), "tokens/ms", 2
            ),
            right("B", (format_ms(limit.b_ms if limit else None) for limit in limits), "ms", 1),
        ]
    positions = next((row.decode for row in rows if row.decode), ())
    for index, speed in enumerate(positions):
        texts = (_speed(row.decode[index]) if row.decode else UNKNOWN for row in rows)
        cells.append(right(f"at {speed.n // 1024}k", texts, "tok/s", 4))
    return [*cells, notes(_note(row, shared) for row in rows)]


def _kv_elsewhere(rows: Sequence[PlanRow]) -> list[Cells]:
    """The part of the cache that is in main memory, where the plan is for a GPU and any is."""
    sizes = [None if row.kv_bytes is None else row.kv_bytes - (row.device_kv_bytes or 0) for row in rows]
    return [right("KV on CPU", map(format_bytes, sizes), priority=4)] if any(sizes) else []


def _speed(speed: PlannedSpeed) -> str:
    return f"{format_number(speed.tok_s)}{FITS_NOT if speed.fits is False else ''}"


def _shared_notes(rows: Sequence[PlanRow]) -> list[str]:
    """Notes that every row has, to be shown once."""
    if len(rows) < 2:
        return []
    return [plain(note) for note in rows[0].notes if all(note in row.notes for row in rows)]


def _note(row: PlanRow, shared: Sequence[str]) -> str:
    if row.outcome is not Outcome.COMPLETED:
        return plain(row.reason)
    return "; ".join(text for note in row.notes if (text := plain(note)) not in shared)


def _legend(rows: Sequence[PlanRow], budget: Budget) -> str:
    lines = []
    if budget.on_gpu:
        lines.append("on GPU, on CPU: where llama.cpp puts the weights; the input embedding stays with the CPU")
    if any(row.exceeds_training for row in rows):
        trained = sorted({row.n_ctx_train for row in rows if row.n_ctx_train})
        lines.append(f"*: beyond the training context of {' and '.join(map(format_count, trained))}")
    if any(row.decode for row in rows):
        lines.append("W, B, tok/s: what the memory's bandwidth allows at most; latency(n) = (n - 1) / W + B")
    if any(speed.fits is False for row in rows for speed in row.decode):
        lines.append(f"{FITS_NOT} at a speed: a context of that length does not fit")
    return "\n".join(lines)
