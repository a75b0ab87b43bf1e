"""One row in full: the story of a decode or of a series of prompts, from the file to the line that repeats it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.machine.readings import name_processes
from ggbench.plain import plain
from ggbench.records.machine import GpuUse
from ggbench.records.memory import DeviceBuffers
from ggbench.records.outcome import Outcome
from ggbench.report.columns import COLUMNS, note, outcome_words, w_text
from ggbench.report.terminal.layout import TWIN_CAPTION, Facts, add_column, facts_table, new_table
from ggbench.report.terminal.origin import again_line, environment_line
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_ms,
    format_number,
    format_params,
    format_percent,
)


def row_details(row: Row, *, folded: bool = False) -> RenderableType:
    """All that is known of one run: file, memory on each device, latency, its limit, environment, command.

    `folded` as in `again_line`.
    """
    parts: list[RenderableType] = [_heading(row), facts_table("Model", _model(row))]
    if row.buffers:
        parts.append(_memory_table(row))
    if row.prefills:
        parts.append(_prefills(row))
    if row.fit or row.latency or row.prefill_ms is not None:
        parts.append(facts_table("Latency", _latency(row)))
    if row.limit:
        parts.append(facts_table("Limit of this machine's memory", _limit(row)))
    if row.gpu_use:
        parts.append(facts_table("GPU while it was timed", _gpu(row.gpu_use)))
    return _spaced(parts, row, folded=folded)


def prefill_table(row: Row) -> RenderableType:
    """The time to read prompts of several lengths."""
    return _spaced([_heading(row), facts_table("Model", _model(row)), _prefills(row)], row, folded=False)


def _spaced(parts: Sequence[RenderableType], row: Row, *, folded: bool) -> Group:
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts), *_origin(row, folded=folded))


def _heading(row: Row) -> Text:
    heading = Text(f"{plain(row.model)} {plain(row.quant)}", style="bold")
    heading.append(f"  {outcome_words(row.outcome)}", style="" if row.outcome is Outcome.COMPLETED else "bold red")
    if note(row):
        heading.append(f"\n{note(row)}", style="yellow")
    if row.provenance == "twin":
        heading.append(f"\n{TWIN_CAPTION}", style="not bold dim")
    return heading


def _model(row: Row) -> Facts:
    config = row.config
    cache = config.type_k if config.type_k == config.type_v else f"K {config.type_k}, V {config.type_v}"
    flash = "" if row.flash_attn is None else f", flash attention {'on' if row.flash_attn else 'off'}"
    per_token = "" if row.kv_bytes_per_token is None else f", {format_bytes(row.kv_bytes_per_token)} for each token"
    run = [f"{format_count(row.n_ctx)} tokens"] if row.n_ctx else []
    run += [f"prompt {format_count(row.n_prompt)}"] if row.n_prompt else []
    run += [f"decoded {format_count(row.n_gen)}"] if row.n_gen else []
    return [
        ("file", row.file),
        ("weights", f"{row.provenance}, {format_bytes(row.file_bytes)}"),
        ("header", f"sha256 {row.header_sha256}" if row.header_sha256 else ""),
        ("parameters", f"{format_params(row.n_params)} at {format_number(row.bpw)} BPW"),
        ("context", ", ".join(run)),
        ("largest", _largest_context(row)),
        ("KV cache", f"{cache}{per_token}{flash}"),
        ("batches", _batches(row)),
        ("threads", format_count(config.threads) if config.threads else ""),
        ("limited to", "" if config.memory_limit_bytes is None else format_bytes(config.memory_limit_bytes)),
    ]


def _batches(row: Row) -> str:
    """What llama.cpp took; what it was asked for where there was no context, or nobody wrote down what it took."""
    if row.n_batch is None or row.n_ubatch is None:
        return f"n_batch {row.config.n_batch}, n_ubatch {row.config.n_ubatch} asked for"
    return f"n_batch {row.n_batch}, n_ubatch {row.n_ubatch}"


def _largest_context(row: Row) -> str:
    if row.max_n_ctx is None:
        return ""
    return f"{format_count(row.max_n_ctx)} tokens, {'proven by a decode' if row.max_n_ctx_verified else 'not proven'}"


def _memory_table(row: Row) -> Table:
    table = new_table("Memory")
    add_column(table, "  device")
    for header in ("weights", "KV", "compute", "output", "together"):
        add_column(table, header, right=True)
    for buffers in row.buffers:
        _add_memory(table, buffers.device, _split(buffers))
    if len(row.buffers) > 1:
        _add_memory(table, "all", [sum(part) for part in zip(*map(_split, row.buffers), strict=True)])
    for name, n_bytes in (("other", row.other_bytes), ("resident at most", row.peak_bytes)):
        if n_bytes is not None:
            table.add_row(f"  {name}", "", "", "", "", Text(format_bytes(n_bytes)))
    return table


def _split(buffers: DeviceBuffers) -> list[int]:
    return [buffers.weight_bytes, buffers.kv_bytes, buffers.compute_bytes, buffers.output_bytes]


def _add_memory(table: Table, name: str, parts: list[int]) -> None:
    sizes = [format_bytes(part) if part else "" for part in parts]
    table.add_row(Text(f"  {plain(name)}"), *map(Text, sizes), Text(format_bytes(sum(parts))))


def _prefills(row: Row) -> Table:
    table = new_table("Prefill")
    add_column(table, "  prompt", "  tokens", right=True)
    add_column(table, "time", "ms", right=True)
    add_column(table, "speed", "tok/s", right=True)
    add_column(table, "timings", right=True)
    for prefill in row.prefills:
        texts = (
            format_count(prefill.n_prompt),
            format_ms(prefill.prefill_ms),
            format_number(prefill.tok_s),
            format_count(prefill.repeat),
        )
        table.add_row(*map(Text, texts))
    return table


def _latency(row: Row) -> Facts:
    facts: list[tuple[str, str]] = []
    if row.prefill_ms is not None:
        speed = (
            f", {format_number(row.n_prompt * 1e3 / row.prefill_ms)} tok/s" if row.n_prompt and row.prefill_ms else ""
        )
        facts.append(("prefill", f"{format_ms(row.prefill_ms)} ms for {format_count(row.n_prompt)} tokens{speed}"))
    if row.fit is not None:
        fit = row.fit
        facts += [
            ("W", f"{w_text(fit)} tokens/ms{_share(row.w_ratio)}"),
            (
                "robust W",
                f"{format_number(fit.robust_w_tokens_per_ms)} tokens/ms" if fit.robust_w_tokens_per_ms else "",
            ),
            ("B", f"{COLUMNS['b_ms'].text(row)} ms{_share(row.b_ratio)}"),
            ("B as w16", "" if row.b_w16_ms is None else f"{format_ms(row.b_w16_ms)} ms"),
            ("R²", f"{format_number(fit.r2)} over {format_count(fit.n_samples)} samples"),
        ]
    if row.latency is not None:
        told = row.latency
        percentiles = f"p50 {format_ms(told.p50_ms)}, p95 {format_ms(told.p95_ms)}, p99 {format_ms(told.p99_ms)} ms"
        facts += [("token", percentiles), ("speed", f"{format_number(told.tok_s)} tok/s")]
        if told.sample_p50_ms is not None:
            facts.append(("sampling", f"{format_ms(told.sample_p50_ms)} ms for each token, not in the above"))
    return facts


def _share(ratio: float | None) -> str:
    return "" if ratio is None else f", {format_percent(ratio)} of the limit"


def _limit(row: Row) -> Facts:
    limit = row.limit
    if limit is None:
        return []
    return [
        ("bandwidth", f"{format_bandwidth(limit.bandwidth_bytes_per_s)}, {limit.bandwidth_source}"),
        ("W", f"{format_number(limit.w_tokens_per_ms)} tokens/ms"),
        ("B", f"{format_ms(limit.b_ms)} ms"),
    ]


def _gpu(use: GpuUse) -> Facts:
    clocks = f"{format_count(use.sm_clock_min_mhz)} MHz at least" if use.sm_clock_min_mhz else ""
    if use.sm_clock_median_mhz:
        clocks += f", median {format_count(round(use.sm_clock_median_mhz))} MHz"
    energy = use.energy_per_token_mj
    throttle = "" if use.throttle is None else "nothing"
    if use.throttle:
        throttle = ", ".join(f"{each.reason} in {format_count(each.n_readings)}" for each in use.throttle)
    others = use.other_processes
    return [
        ("readings", format_count(use.n_readings)),
        ("hottest", "" if use.temperature_max_c is None else f"{format_number(use.temperature_max_c)} °C"),
        ("SM clock", clocks),
        ("power", "" if use.power_mean_w is None else f"{format_number(use.power_mean_w)} W on average"),
        ("energy", "" if energy is None else f"{format_number(energy / 1e3)} J for each token"),
        ("slowed by", throttle),
        ("held", "" if use.worker_bytes is None else f"{format_bytes(use.worker_bytes)} at most"),
        ("others", "" if others is None else name_processes(others) or "none holds its memory"),
    ]


def _origin(row: Row, *, folded: bool) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if row.environment is not None:
        system_info = plain(row.environment.system_info)
        lines.append(Text(f"Measured with {environment_line(row.environment)}; {system_info}", style="dim"))
    return [*lines, *again_line(row.command, folded=folded)]
