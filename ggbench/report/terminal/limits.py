"""The theory's limits for people: the machine and the model as facts, then one line for each scheme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.plain import plain
from ggbench.report.columns import UNKNOWN
from ggbench.report.limits_document import knees_text
from ggbench.report.terminal.layout import Facts, add_column, facts_table, new_table
from ggbench.theory.hardware import Hardware
from ggbench.theory.kv_cache import KvCache
from ggbench.theory.limits import SchemeLimits
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
    model: str, parameters: Parameters, kv: KvCache, hardware: Hardware, rows: Sequence[SchemeLimits]
) -> RenderableType:
    """Facts, the decode table and, where the compute rate is known, the prefill table."""
    parts: list[RenderableType] = [
        facts_table(f"{model} on {hardware.name}", _facts(parameters, kv, hardware)),
        _decode_table(rows, bool(hardware.bandwidth_bytes_per_s)),
    ]
    if any(row.exact for row in rows):
        parts.append(_prefill_table(rows))
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


def _decode_table(rows: Sequence[SchemeLimits], has_speed: bool) -> Table:
    table = new_table("Memory and decode")
    batched = any(row.batch_size > 1 for row in rows)
    add_column(table, "  scheme")
    if batched:
        add_column(table, "batch", right=True)
    add_column(table, "BPW", right=True)
    add_column(table, "weights", right=True)
    add_column(table, "fits", "tokens", right=True)
    add_column(table, "W", "tokens/ms", right=True)
    add_column(table, "B", "ms", right=True)
    positions = [f"{point.n // 1024}k" for point in rows[0].decode]
    for position in positions:
        add_column(table, f"at {position}", "tok/s", right=True)
    for row in rows:
        cells = [f"  {plain(row.scheme)}", *([format_count(row.batch_size)] if batched else [])]
        cells += [format_number(row.weights.bpw), format_bytes(row.weights.resident_bytes), _length(row)]
        cells += [UNKNOWN if row.w_tokens_per_ms is None else format_number(row.w_tokens_per_ms, 4)]
        cells += [format_ms(row.b_ms)]
        cells += [f"{format_number(point.tok_s)}{'*' if point.fits is False else ''}" for point in row.decode]
        table.add_row(*map(Text, cells))
    lines = ["weights without the table of embeddings, and no compute buffers: a little less fits in truth"]
    if has_speed:
        lines.append("latency(n) = (n - 1) / W + B is a limit: no program can decode faster from this memory")
        if batched:
            lines.append("tok/s over all sequences of the batch, W and B for one step of it, tokens for each sequence")
    if any(point.fits is False for row in rows for point in row.decode):
        lines.append("*: a context of that length does not fit")
    table.caption = Text("\n".join(lines))
    return table


def _length(row: SchemeLimits) -> str:
    return UNKNOWN if row.fits is None else format_count(row.max_n_ctx) if row.max_n_ctx else "oom"


def _prefill_table(rows: Sequence[SchemeLimits]) -> Table:
    table = new_table("Prefill")
    batched = any(row.batch_size > 1 for row in rows)
    add_column(table, "  scheme")
    if batched:
        add_column(table, "batch", right=True)
    add_column(table, "knees, rough", "n_prompt", right=True)
    add_column(table, "knees, exact", "n_prompt", right=True)
    longest = min(int(row.exact.n[-1]) for row in rows if row.exact)
    lengths = [length for length in _PREFILL_LENGTHS if length <= longest]
    for length in lengths:
        add_column(table, f"at {format_count(length)}", "ms", right=True)
    for row in rows:
        cells = [f"  {plain(row.scheme)}", *([format_count(row.batch_size)] if batched else [])]
        cells += [knees_text(row.rough), knees_text(row.exact)]
        cells += [_first_token(row.exact, length) for length in lengths]
        table.add_row(*map(Text, cells))
    table.caption = Text(
        "rough: lm_head for every token of the prompt; exact, and the times: once\n"
        f"a knee is the last length before reading and computing change places, up to {format_count(longest)}\n"
        "after a time, what it waits for: w the weights, c compute, k the KV cache"
    )
    return table


def _first_token(curve: PrefillCurve | None, length: int) -> str:
    if curve is None:
        return UNKNOWN
    at = int(np.searchsorted(curve.n, length))
    bound = Bound(int(curve.bounds()[at]))
    return f"{format_number(float(curve.latency_ms[at]), 4)} {_BOUND_LETTERS[bound]}"
