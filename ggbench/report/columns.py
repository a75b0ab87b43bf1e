"""What a row says, column by column: key, header, unit, meaning, value and text, defined here once for every output.

A value is for programs and never rounded; a text is for people and formatted by `ggbench.units`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from ggbench.plain import plain
from ggbench.records.machine import GpuUse
from ggbench.records.outcome import Outcome
from ggbench.records.speed import DecodeLimit, LatencySummary, LineFit
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_interval,
    format_ms,
    format_number,
    format_params,
    format_percent,
)

UNKNOWN = "—"
ESSENTIAL = 0
"""The priority of a column that no table leaves out."""

Value: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of any table of rows."""

    key: str
    """Name in CSV files and in options."""
    header: str
    unit: str
    """Of the text, for a second line of header; empty where the text carries its own."""
    doc: str
    value: Callable[[Row], Value]
    """What CSV has; None is unknown."""
    text: Callable[[Row], str]
    """What people read."""
    right_aligned: bool = True
    priority: int = 5
    """A narrow table leaves out the highest first; `ESSENTIAL` stays."""


def note(row: Row) -> str:
    """What a person has to know before trusting the row: why it did not complete, else what it lacks."""
    if row.outcome is not Outcome.COMPLETED:
        return plain(row.reason) or outcome_words(row.outcome)
    told = {"unsteady": row.unsteady, "max n_ctx": row.max_n_ctx_reason}
    return "; ".join([*_too_few(row), *(f"{what}: {plain(text)}" for what, text in told.items() if text)])


def _too_few(row: Row) -> list[str]:
    """That there is no W, where nothing but more tokens would make one."""
    fit = row.fit
    if fit is None or row.n_prompt is None or (fit.w_tokens_per_ms, fit.w_ci95, fit.b_ci95) != (None, None, None):
        return []
    from ggbench.stats.linefit import fewest_samples

    enough = format_count(fewest_samples(row.n_prompt + 1))
    return [f"{format_count(fit.n_samples)} tokens are too few for W; a decode of {enough} is enough"]


def outcome_words(outcome: Outcome) -> str:
    """`out of memory` for `out_of_memory`."""
    return outcome.value.replace("_", " ")


def w_text(fit: LineFit | None) -> str:
    """`205 ±4`; `> 1234` where the slope cannot be told from zero; an em dash without a fit or a bound."""
    if fit is None:
        return UNKNOWN
    if fit.w_ci95 is None:
        return format_number(fit.w_tokens_per_ms)
    low, high = fit.w_ci95
    if fit.w_tokens_per_ms is None or high is None:
        return f"> {format_number(low)}"
    return format_interval(fit.w_tokens_per_ms, low, high)


def b_text(fit: LineFit | None) -> str:
    """`10.92 ±0.08`; `< 230` where the line falls below zero, so that only a bound is left."""
    if fit is None:
        return UNKNOWN
    if fit.b_ci95 is None:
        return format_ms(fit.b_ms)
    low, high = fit.b_ci95
    return f"< {format_number(high)}" if fit.b_ms is None else format_interval(fit.b_ms, low, high, digits=4)


def max_n_ctx_text(row: Row) -> str:
    """`8,192`; `8,192?` where no decode proved it; an em dash where none is known."""
    unproven = row.max_n_ctx is not None and not row.max_n_ctx_verified
    return f"{format_count(row.max_n_ctx)}{'?' if unproven else ''}"


def _name(key: str, header: str, doc: str, value: Callable[[Row], str], priority: int = 5) -> Column:
    return Column(key, header, "", doc, value, lambda row: plain(value(row)), right_aligned=False, priority=priority)


def _bytes(key: str, header: str, doc: str, value: Callable[[Row], int | None], priority: int = 5) -> Column:
    return Column(key, header, "", doc, value, lambda row: format_bytes(value(row)), priority=priority)


def _count(key: str, header: str, unit: str, doc: str, value: Callable[[Row], int | None], priority: int = 5) -> Column:
    return Column(key, header, unit, doc, value, lambda row: format_count(value(row)), priority=priority)


def _ms(key: str, header: str, doc: str, value: Callable[[Row], float | None], priority: int = 5) -> Column:
    return Column(key, header, "ms", doc, value, lambda row: format_ms(value(row)), priority=priority)


def _number(
    key: str, header: str, unit: str, doc: str, value: Callable[[Row], float | None], priority: int = 5
) -> Column:
    return Column(key, header, unit, doc, value, lambda row: format_number(value(row)), priority=priority)


def _percent(key: str, header: str, doc: str, value: Callable[[Row], float | None], priority: int = 5) -> Column:
    return Column(key, header, "", doc, value, lambda row: format_percent(value(row)), priority=priority)


def _of_fit(part: Callable[[LineFit], float | None]) -> Callable[[Row], float | None]:
    return lambda row: None if row.fit is None else part(row.fit)


def _of_latency(part: Callable[[LatencySummary], float | None]) -> Callable[[Row], float | None]:
    return lambda row: None if row.latency is None else part(row.latency)


def _of_limit(part: Callable[[DecodeLimit], float | None]) -> Callable[[Row], float | None]:
    return lambda row: None if row.limit is None else part(row.limit)


def _of_gpu(part: Callable[[GpuUse], float | None]) -> Callable[[Row], float | None]:
    return lambda row: None if row.gpu_use is None else part(row.gpu_use)


def _throttle(row: Row) -> str | None:
    if row.gpu_use is None or row.gpu_use.throttle is None:
        return None
    return plain(", ".join(each.reason for each in row.gpu_use.throttle)) or "nothing"


_bandwidth = _of_limit(lambda limit: limit.bandwidth_bytes_per_s)


_ALL = (
    Column(
        "run_id", "run", "", "Number of the run in the store.",
        lambda row: row.run_id, lambda row: UNKNOWN if row.run_id is None else str(row.run_id), priority=2,
    ),
    _name("model", "model", "The model, as it was asked for.", lambda row: row.model, ESSENTIAL),
    _name("quant", "quant", "How the weights are quantized.", lambda row: row.quant, ESSENTIAL),
    _name("weights", "weights", "A file's, the Hub's, or an untrained twin's.", lambda row: row.provenance, ESSENTIAL),
    _name("file", "path", "The GGUF file that was loaded.", lambda row: row.file),
    _bytes("file_bytes", "file", "Size of the file, over all shards.", lambda row: row.file_bytes, 4),
    Column(
        "n_params", "params", "", "Parameters of all tensors.",
        lambda row: row.n_params, lambda row: format_params(row.n_params), priority=8,
    ),
    _number("bpw", "BPW", "bits", "Bits per weight: tensor bytes x 8 / parameters.", lambda row: row.bpw, 1),
    _bytes("weight_bytes", "tensors", "Bytes of all tensors.", lambda row: row.weight_bytes, 6),
    _bytes("kv_bytes", "KV", "Memory of the KV cache at this n_ctx.", lambda row: row.kv_bytes, 5),
    _bytes(
        "kv_bytes_per_token", "KV/token", "Memory of the KV cache for one position.",
        lambda row: row.kv_bytes_per_token, 7,
    ),
    _bytes("compute_bytes", "compute", "Memory of the compute buffers.", lambda row: row.compute_bytes, 5),
    _bytes("other_bytes", "other", "Peak memory that no buffer explains.", lambda row: row.other_bytes, 8),
    _count("n_ctx", "n_ctx", "tokens", "Length of the context.", lambda row: row.n_ctx, 7),
    Column(
        "max_n_ctx", "max n_ctx", "tokens", "The largest context that works; `?` where no decode proved it.",
        lambda row: row.max_n_ctx, max_n_ctx_text, priority=1,
    ),
    Column(
        "max_n_ctx_verified", "proven", "", "Whether tokens were decoded at the far end of the largest context.",
        lambda row: row.max_n_ctx_verified,
        lambda row: UNKNOWN if row.max_n_ctx_verified is None else "yes" if row.max_n_ctx_verified else "no",
        right_aligned=False,
    ),
    _count("n_prompt", "n_prompt", "tokens", "Tokens of prompt before the decode.", lambda row: row.n_prompt, 9),
    _count("n_gen", "n_gen", "tokens", "Tokens decoded and timed.", lambda row: row.n_gen, 6),
    _ms("prefill_ms", "prefill", "Time to read the prompt before the decode.", lambda row: row.prefill_ms, 3),
    Column(
        "w_tokens_per_ms", "W", "tokens/ms",
        "Tokens until one takes 1 ms longer, with its 95 % interval: the cost of reading the KV cache.",
        _of_fit(lambda fit: fit.w_tokens_per_ms), lambda row: w_text(row.fit), priority=ESSENTIAL,
    ),
    _number(
        "w_ci95_low", "W from", "tokens/ms", "Lower end of W's 95 % interval.",
        _of_fit(lambda fit: fit.w_ci95 and fit.w_ci95[0]),
    ),
    _number(
        "w_ci95_high", "W to", "tokens/ms", "Upper end of W's 95 % interval; unknown is unbounded.",
        _of_fit(lambda fit: fit.w_ci95 and fit.w_ci95[1]),
    ),
    _percent("w_ratio", "W%", "W over the limit of the memory's bandwidth.", lambda row: row.w_ratio, 2),
    Column(
        "b_ms", "B", "ms", "Latency of the first token, with its 95 % interval: the cost of reading the weights.",
        _of_fit(lambda fit: fit.b_ms), lambda row: b_text(row.fit), priority=ESSENTIAL,
    ),
    _ms("b_ci95_low", "B from", "Lower end of B's 95 % interval.", _of_fit(lambda fit: fit.b_ci95 and fit.b_ci95[0])),
    _ms("b_ci95_high", "B to", "Upper end of B's 95 % interval.", _of_fit(lambda fit: fit.b_ci95 and fit.b_ci95[1])),
    _percent("b_ratio", "B%", "The limit of the memory's bandwidth over B.", lambda row: row.b_ratio, 2),
    _ms("b_w16_ms", "B as w16", "B x 16 / BPW: B as if every weight had 16 bits.", lambda row: row.b_w16_ms, 3),
    _number("r2", "R²", "", "Share of the latency's variance that the line explains.", _of_fit(lambda fit: fit.r2)),
    _number(
        "robust_w_tokens_per_ms", "robust W", "tokens/ms", "W from a Theil-Sen slope, as a cross-check.",
        _of_fit(lambda fit: fit.robust_w_tokens_per_ms),
    ),
    _number("tok_s", "speed", "tok/s", "Tokens decoded in a second.", _of_latency(lambda latency: latency.tok_s), 1),
    _ms("p50_ms", "p50", "Median latency of a token.", _of_latency(lambda latency: latency.p50_ms), 5),
    _ms("p95_ms", "p95", "Latency that 95 % of the tokens keep.", _of_latency(lambda latency: latency.p95_ms), 6),
    _ms("p99_ms", "p99", "Latency that 99 % of the tokens keep.", _of_latency(lambda latency: latency.p99_ms), 5),
    _ms(
        "sample_p50_ms", "sampling", "Median time of the sampler for one token.",
        _of_latency(lambda latency: latency.sample_p50_ms), 8,
    ),
    _number(
        "limit_w_tokens_per_ms", "limit of W", "tokens/ms", "W that the memory's bandwidth allows.",
        _of_limit(lambda limit: limit.w_tokens_per_ms),
    ),
    _ms("limit_b_ms", "limit of B", "B that the memory's bandwidth allows.", _of_limit(lambda limit: limit.b_ms)),
    Column(
        "bandwidth_bytes_per_s", "bandwidth", "", "Memory bandwidth that the limits are computed from.",
        _bandwidth, lambda row: format_bandwidth(_bandwidth(row)),
    ),
    _number(
        "gpu_temperature_max_c", "hottest", "°C", "Highest temperature of the GPU while it was timed.",
        _of_gpu(lambda use: use.temperature_max_c),
    ),
    _number(
        "gpu_sm_clock_min_mhz", "least clock", "MHz", "Lowest SM clock of the GPU while it was timed.",
        _of_gpu(lambda use: use.sm_clock_min_mhz),
    ),
    _number(
        "gpu_sm_clock_median_mhz", "SM clock", "MHz", "Median SM clock of the GPU while it was timed.",
        _of_gpu(lambda use: use.sm_clock_median_mhz),
    ),
    _number(
        "gpu_power_mean_w", "power", "W", "Mean power of the GPU while it was timed.",
        _of_gpu(lambda use: use.power_mean_w),
    ),
    _number(
        "gpu_energy_per_token_mj", "energy", "mJ/token", "Of each decoded token, from the GPU's energy counter.",
        _of_gpu(lambda use: use.energy_per_token_mj),
    ),
    Column(
        "gpu_throttle", "slowed by", "", "Why the GPU's clocks were held down; `nothing` where they were not.",
        _throttle, lambda row: _throttle(row) or UNKNOWN, right_aligned=False,
    ),
    Column(
        "flash_attn", "flash", "", "Whether flash attention was on.",
        lambda row: row.flash_attn,
        lambda row: UNKNOWN if row.flash_attn is None else "on" if row.flash_attn else "off", right_aligned=False,
    ),
    Column(
        "outcome", "outcome", "", "How the run ended.",
        lambda row: row.outcome.value, lambda row: outcome_words(row.outcome), right_aligned=False, priority=4,
    ),
    _name("note", "note", "Why it did not complete, or should not be trusted.", note, ESSENTIAL),
    _name("command", "command", "The line that measures it again.", lambda row: row.command, 9),
)  # fmt: skip

COLUMNS: dict[str, Column] = {column.key: column for column in _ALL}
"""Every column by its key, in the order of a CSV file."""

BENCH = (
    "model", "quant", "weights", "file_bytes", "bpw", "weight_bytes", "kv_bytes", "compute_bytes", "other_bytes",
    "n_ctx", "n_gen", "prefill_ms", "w_tokens_per_ms", "w_ratio", "b_ms", "b_ratio", "b_w16_ms", "tok_s", "p99_ms",
    "note",
)  # fmt: skip
"""What `ggbench bench` answers."""


def bench_columns(rows: Iterable[Row]) -> tuple[str, ...]:
    """`BENCH`, with the largest context after its length where it was searched for."""
    if not any(row.max_n_ctx is not None or row.max_n_ctx_reason for row in rows):
        return BENCH
    place = BENCH.index("n_ctx") + 1
    return (*BENCH[:place], "max_n_ctx", *BENCH[place:])
