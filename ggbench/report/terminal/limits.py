"""The theory's limits for people: the machine and the model as facts, then one line for each scheme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.plain import plain
from ggbench.report.columns import ESSENTIAL, UNKNOWN
from ggbench.report.limits_document import knees_text
from ggbench.report.terminal.fitted import Cells, fitted_table
from ggbench.report.terminal.layout import Facts, facts_table
from ggbench.theory.hardware import Hardware
from ggbench.theory.kv_cache import KvCache
from ggbench.theory.limits import DecodePoint, SchemeLimits
from ggbench.theory.parameters import Parameters
from ggbench.theory.prefill import Bound, PrefillCurve
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_compute,
    format_count,
    format_ms,
    format_number,
    format_params,
)

_PREFILL_LENGTHS = (512, 4096, 32768)
_BOUND_LETTERS = {Bound.WEIGHTS: "w", Bound.COMPUTE: "c", Bound.KV: "k"}


def limits_report(
    model: str, parameters: Parameters, kv: KvCache, hardware: Hardware, rows: Sequence[SchemeLimits], *, width: int
) -> RenderableType:
    """Facts, the decode table and, where the compute rate is known, the prefill table; `width` in characters."""
    parts: list[RenderableType] = [
        facts_table(f"{model} on {hardware.name}", _facts(parameters, kv, hardware)),
        Group(_decode_table(rows, width), Text(_decode_notes(rows), style="dim")),
    ]
    if any(row.exact for row in rows):
        parts.append(Group(_prefill_table(rows, width), Text(_prefill_notes(rows), style="dim")))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts[:-1]), parts[-1])


def _facts(parameters: Parameters, kv: KvCache, hardware: Hardware) -> Facts:
    binary = hardware.convention.is_binary
    known = [
        ("memory", hardware.memory_bytes, format_bytes(hardware.memory_bytes), hardware.memory_source),
        (
            "bandwidth",
            hardware.bandwidth_bytes_per_s,
            format_bandwidth(hardware.bandwidth_bytes_per_s, binary=binary),
            hardware.bandwidth_source,
        ),
        (
            "compute",
            hardware.compute_flop_per_s,
            format_compute(hardware.compute_flop_per_s, binary=binary),
            hardware.compute_source,
        ),
    ]
    return [
        ("convention", f"{hardware.convention.value}: {hardware.convention.meaning}"),
        *((name, f"{text} ({source})" if value else "not known") for name, value, text, source in known),
        ("parameters", _parameters(parameters, binary)),
        ("KV cache", _cache(kv)),
    ]


def _parameters(parameters: Parameters, binary: bool) -> str:
    def text(count: int) -> str:
        return format_params(count, binary=binary)

    layers = parameters.layers + parameters.experts
    active = f"{text(parameters.active)} active"
    if parameters.n_expert:
        active += f" with {parameters.n_expert_used} of {parameters.n_expert} experts"
    embedding = f"embedding {text(parameters.embedding)}" if parameters.embedding else "embedding tied to lm_head"
    return f"{text(parameters.total)}: layers {text(layers)}, lm_head {text(parameters.lm_head)}, {embedding}; {active}"


def _cache(kv: KvCache) -> str:
    types = kv.type_k if kv.type_k == kv.type_v else f"K {kv.type_k}, V {kv.type_v}"
    parts = [f"{format_bytes(kv.bytes_per_token)} for each token in {types}"]
    if kv.window:
        parts.append(
            f"of which {format_bytes(kv.windowed.n_bytes)} for the last {format_count(kv.window)} positions alone"
        )
    if kv.remark:
        parts.append(plain(kv.remark))
    return "; ".join(parts)


def _table(title: str, cells: list[Cells], rows: Sequence[SchemeLimits], width: int) -> Table:
    if any(row.batch_size > 1 for row in rows):
        cells.insert(1, _numbers("batch", "", [format_count(row.batch_size) for row in rows], ESSENTIAL))
    labels = [row.scheme for row in rows]
    return fitted_table(cells, labels=labels, dim=[False] * len(rows), title=title, width=width)


def _numbers(header: str, unit: str, texts: Sequence[str], priority: int) -> Cells:
    return Cells(header, tuple(texts), unit, right_aligned=True, priority=priority)


def _schemes(rows: Sequence[SchemeLimits]) -> Cells:
    return Cells("scheme", tuple(plain(row.scheme) for row in rows), is_name=True)


def _decode_table(rows: Sequence[SchemeLimits], width: int) -> Table:
    cells = [
        _schemes(rows),
        _numbers("BPW", "", [format_number(row.weights.bpw) for row in rows], 5),
        _numbers("weights", "", [format_bytes(row.weights.resident_bytes) for row in rows], 3),
        _numbers("fits", "tokens", [_length(row) for row in rows], ESSENTIAL),
    ]
    if rows[0].decode:
        cells += [
            _numbers("W", "tokens/ms", [_w_text(row.w_tokens_per_ms) for row in rows], ESSENTIAL),
            _numbers("B", "ms", [format_ms(row.b_ms) for row in rows], ESSENTIAL),
        ]
    for index, point in enumerate(rows[0].decode):
        texts = [_speed(row.decode[index]) for row in rows]
        cells.append(_numbers(f"at {point.n // 1024}k", "tok/s", texts, 4))
    return _table("Memory and decode", cells, rows, width)


def _decode_notes(rows: Sequence[SchemeLimits]) -> str:
    lines = ["weights: without the table of embeddings; compute buffers are left out, so a little less fits in truth"]
    if rows[0].decode:
        lines.append("latency(n) = (n - 1) / W + B: nothing decodes faster from this memory")
    if any(row.batch_size > 1 for row in rows):
        lines.append("batch: W and B of one step of all sequences, tok/s over all, tokens for each")
    if any(point.fits is False for row in rows for point in row.decode):
        lines.append("*: a context of that length does not fit")
    return "\n".join(lines)


def _w_text(w_tokens_per_ms: float | None) -> str:
    return UNKNOWN if w_tokens_per_ms is None else format_number(w_tokens_per_ms, 4)


def _speed(point: DecodePoint) -> str:
    return f"{format_number(point.tok_s)}{'*' if point.fits is False else ''}"


def _length(row: SchemeLimits) -> str:
    return UNKNOWN if row.fits is None else format_count(row.max_n_ctx) if row.max_n_ctx else "oom"


def _prefill_table(rows: Sequence[SchemeLimits], width: int) -> Table:
    cells = [
        _schemes(rows),
        _numbers("rough knees", "tokens", [knees_text(row.rough) for row in rows], ESSENTIAL),
        _numbers("exact knees", "tokens", [knees_text(row.exact) for row in rows], ESSENTIAL),
    ]
    for length in (length for length in _PREFILL_LENGTHS if length <= _longest(rows)):
        times = [_times(row.exact, length) for row in rows]
        cells.append(_numbers(f"at {format_count(length)}", "ms", [latency for latency, _ in times], 4))
        cells.append(_numbers(f"floor {format_count(length)}", "ms", [floor for _, floor in times], 5))
    return _table("Prefill", cells, rows, width)


def _longest(rows: Sequence[SchemeLimits]) -> int:
    return min(int(row.exact.n[-1]) for row in rows if row.exact)


def _times(curve: PrefillCurve | None, length: int) -> tuple[str, str]:
    if curve is None:
        return UNKNOWN, UNKNOWN
    at = int(np.searchsorted(curve.n, length))
    letter = _BOUND_LETTERS[Bound(int(curve.bounds()[at]))]
    return f"{format_number(float(curve.latency_ms[at]), 4)} {letter}", format_number(float(curve.floor_ms[at]), 4)


def _prefill_notes(rows: Sequence[SchemeLimits]) -> str:
    return (
        "knee: the last length before reading and computing change places, "
        f"looked for up to {format_count(_longest(rows))} tokens\n"
        "rough: lm_head for every token of the prompt; exact, as in the times: once\n"
        "time waits for w: weights, c: compute, k: KV, which each token of the prompt reads by itself\n"
        "floor: with KV read once for the whole prompt, towards which flash attention goes"
    )
