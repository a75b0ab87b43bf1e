"""What is known of a quant, column by column: key, header, unit, meaning, value and text, once for every output.

A value is for programs and never rounded; a text is for people and formatted by `ggbench.units`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ggbench.plain import plain
from ggbench.records.decode import DecodeResult
from ggbench.records.machine import GpuUse
from ggbench.records.outcome import Outcome
from ggbench.records.speed import DecodeLimit, LatencySummary, LineFit
from ggbench.records.summary import QuantSummary
from ggbench.report.names import file_name, model_name
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

_V = TypeVar("_V")

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
    value: Callable[[QuantSummary], Value]
    """What CSV has; None is unknown."""
    text: Callable[[QuantSummary], str]
    """What people read."""
    right_aligned: bool = True
    priority: int = 5
    """A narrow table leaves out the highest first; `ESSENTIAL` stays."""


def note(summary: QuantSummary) -> str:
    """What a person has to know before trusting the row: why it did not complete, else what it lacks."""
    if summary.outcome is not Outcome.COMPLETED:
        return plain(summary.run.reason) or summary.outcome.text
    unsteady = summary.decode.unsteady if summary.decode else ""
    lacks = {"unsteady": unsteady, "max n_ctx": summary.max_n_ctx_reason}
    return "; ".join([*_too_few(summary), *(f"{what}: {plain(text)}" for what, text in lacks.items() if text)])


def _too_few(summary: QuantSummary) -> list[str]:
    """That there is no W, where nothing but more tokens would make one."""
    decode, fit = summary.decode, summary.fit
    if decode is None or fit is None or (fit.w_tokens_per_ms, fit.w_ci95, fit.b_ci95) != (None, None, None):
        return []
    from ggbench.stats.linefit import fewest_samples

    enough = format_count(fewest_samples(decode.n_prompt + 1))
    return [f"{format_count(fit.n_samples)} tokens are too few for W; a decode of {enough} is enough"]


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


def max_n_ctx_text(summary: QuantSummary) -> str:
    """`8,192`; `8,192?` where no decode proved it; an em dash where none is known."""
    unproven = summary.max_n_ctx is not None and not summary.max_n_ctx_verified
    return f"{format_count(summary.max_n_ctx)}{'?' if unproven else ''}"


def _name(key: str, header: str, doc: str, value: Callable[[QuantSummary], str], priority: int = 5) -> Column:
    return Column(key, header, "", doc, value, lambda s: plain(value(s)), right_aligned=False, priority=priority)


def _bytes(key: str, header: str, doc: str, value: Callable[[QuantSummary], int | None], priority: int = 5) -> Column:
    return Column(key, header, "", doc, value, lambda s: format_bytes(value(s)), priority=priority)


def _count(
    key: str, header: str, unit: str, doc: str, value: Callable[[QuantSummary], int | None], priority: int = 5
) -> Column:
    return Column(key, header, unit, doc, value, lambda s: format_count(value(s)), priority=priority)


def _ms(key: str, header: str, doc: str, value: Callable[[QuantSummary], float | None], priority: int = 5) -> Column:
    return Column(key, header, "ms", doc, value, lambda s: format_ms(value(s)), priority=priority)


def _number(
    key: str, header: str, unit: str, doc: str, value: Callable[[QuantSummary], float | None], priority: int = 5
) -> Column:
    return Column(key, header, unit, doc, value, lambda s: format_number(value(s)), priority=priority)


def _percent(
    key: str, header: str, doc: str, value: Callable[[QuantSummary], float | None], priority: int = 5
) -> Column:
    return Column(key, header, "", doc, value, lambda s: format_percent(value(s)), priority=priority)


def _of_fit(part: Callable[[LineFit], float | None]) -> Callable[[QuantSummary], float | None]:
    return lambda s: None if s.fit is None else part(s.fit)


def _of_decode(part: Callable[[DecodeResult], _V]) -> Callable[[QuantSummary], _V | None]:
    return lambda s: None if s.decode is None else part(s.decode)


def _of_latency(part: Callable[[LatencySummary], float | None]) -> Callable[[QuantSummary], float | None]:
    return lambda s: None if s.latency is None else part(s.latency)


def _of_limit(part: Callable[[DecodeLimit], float | None]) -> Callable[[QuantSummary], float | None]:
    return lambda s: None if s.limit is None else part(s.limit)


def _of_gpu(part: Callable[[GpuUse], float | None]) -> Callable[[QuantSummary], float | None]:
    return lambda s: None if s.gpu_use is None else part(s.gpu_use)


def _throttle(summary: QuantSummary) -> str | None:
    if summary.gpu_use is None or summary.gpu_use.throttle is None:
        return None
    return plain(", ".join(each.reason for each in summary.gpu_use.throttle)) or "none"


_bandwidth = _of_limit(lambda limit: limit.bandwidth_bytes_per_s)


_ALL = (
    Column(
        "run_id", "run", "", "Number of the run in the store.",
        lambda s: s.run.run_id, lambda s: UNKNOWN if s.run.run_id is None else str(s.run.run_id), priority=2,
    ),
    Column(
        "model", "model", "", "The model as it was named; of a path the name of the file or folder.",
        lambda s: s.subject.model, lambda s: model_name(s.subject), right_aligned=False, priority=ESSENTIAL,
    ),
    _name("quant", "quant", "How the weights are quantized.", lambda s: s.subject.quant, ESSENTIAL),
    _name(
        "source", "source", "Where the weights come from: a file, the Hub, or an untrained twin.",
        lambda s: s.subject.source, ESSENTIAL,
    ),
    Column(
        "file", "path", "", "The GGUF file that was loaded: in tables its name, for programs its path.",
        lambda s: s.subject.file, lambda s: file_name(s.subject), right_aligned=False,
    ),
    _bytes("file_bytes", "file", "Size of the file, over all shards.", lambda s: s.subject.file_bytes, 4),
    Column(
        "n_params", "params", "", "Parameters of all tensors.",
        lambda s: s.subject.n_params, lambda s: format_params(s.subject.n_params), priority=8,
    ),
    _number("bpw", "BPW", "bits", "Bits per weight: tensor bytes x 8 / parameters.", lambda s: s.subject.bpw, 1),
    _bytes("weight_bytes", "weights", "Bytes of all tensors.", lambda s: s.subject.weight_bytes, 6),
    _bytes("kv_bytes", "KV", "Memory of the KV cache at this n_ctx.", lambda s: s.memory.kv_bytes, 5),
    _bytes(
        "kv_bytes_per_token", "KV/token", "Memory of the KV cache for one position.",
        lambda s: s.subject.kv_bytes_per_token, 7,
    ),
    _bytes("compute_bytes", "compute", "Memory of the compute buffers.", lambda s: s.memory.compute_bytes, 5),
    _bytes("other_bytes", "other", "Peak memory that no buffer explains.", lambda s: s.memory.other_bytes, 8),
    _count("n_ctx", "n_ctx", "tokens", "Length of the context.", lambda s: s.memory.n_ctx, 7),
    Column(
        "max_n_ctx", "max n_ctx", "tokens", "The largest context that works; `?` where no decode proved it.",
        lambda s: s.max_n_ctx, max_n_ctx_text, priority=1,
    ),
    Column(
        "max_n_ctx_verified", "proven", "", "Whether tokens were decoded at the far end of the largest context.",
        lambda s: s.max_n_ctx_verified,
        lambda s: UNKNOWN if s.max_n_ctx_verified is None else "yes" if s.max_n_ctx_verified else "no",
        right_aligned=False,
    ),
    _count("n_prompt", "n_prompt", "tokens", "Tokens of prompt before a decode.", _of_decode(lambda d: d.n_prompt), 9),
    _count("n_gen", "n_gen", "tokens", "Tokens decoded and timed.", _of_decode(lambda d: d.n_gen), 6),
    _ms("prefill_ms", "prefill", "Time to read the prompt before the decode.", _of_decode(lambda d: d.prefill_ms), 3),
    Column(
        "w_tokens_per_ms", "W", "tokens/ms",
        "Tokens until one takes 1 ms longer, with its 95 % interval: the cost of reading the KV cache.",
        _of_fit(lambda fit: fit.w_tokens_per_ms), lambda s: w_text(s.fit), priority=ESSENTIAL,
    ),
    _number(
        "w_ci95_low", "W from", "tokens/ms", "Lower end of W's 95 % interval.",
        _of_fit(lambda fit: fit.w_ci95 and fit.w_ci95[0]),
    ),
    _number(
        "w_ci95_high", "W to", "tokens/ms", "Upper end of W's 95 % interval; unknown is unbounded.",
        _of_fit(lambda fit: fit.w_ci95 and fit.w_ci95[1]),
    ),
    _percent("w_ratio", "W%", "W over the limit of the memory's bandwidth.", _of_decode(lambda d: d.w_ratio), 2),
    Column(
        "b_ms", "B", "ms", "Latency of the first token, with its 95 % interval: the cost of reading the weights.",
        _of_fit(lambda fit: fit.b_ms), lambda s: b_text(s.fit), priority=ESSENTIAL,
    ),
    _ms("b_ci95_low", "B from", "Lower end of B's 95 % interval.", _of_fit(lambda fit: fit.b_ci95 and fit.b_ci95[0])),
    _ms("b_ci95_high", "B to", "Upper end of B's 95 % interval.", _of_fit(lambda fit: fit.b_ci95 and fit.b_ci95[1])),
    _percent("b_ratio", "B%", "The limit of the memory's bandwidth over B.", _of_decode(lambda d: d.b_ratio), 2),
    _ms("b_w16_ms", "B as w16", "B x 16 / BPW: B as if every weight had 16 bits.", lambda s: s.b_w16_ms, 3),
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
        _bandwidth, lambda s: format_bandwidth(_bandwidth(s)),
    ),
    _number(
        "gpu_temperature_max_c", "max temp", "°C", "Highest temperature of the GPU while it was timed.",
        _of_gpu(lambda use: use.temperature_max_c),
    ),
    _number(
        "gpu_sm_clock_min_mhz", "min clock", "MHz", "Lowest SM clock of the GPU while it was timed.",
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
        "gpu_throttle", "throttle reason", "", "Why the GPU's clocks were held down; `nothing` where they were not.",
        _throttle, lambda s: _throttle(s) or UNKNOWN, right_aligned=False,
    ),
    Column(
        "flash_attn", "flash", "", "Whether flash attention was on.",
        lambda s: s.memory.flash_attn, lambda s: {None: UNKNOWN, True: "on", False: "off"}[s.memory.flash_attn],
        right_aligned=False,
    ),
    Column(
        "outcome", "outcome", "", "How the run ended.",
        lambda s: s.outcome.value, lambda s: s.outcome.text, right_aligned=False, priority=4,
    ),
    _name("note", "note", "Why it did not complete, or should not be trusted.", note, ESSENTIAL),
    _name("command", "command", "The line that measures it again.", lambda s: s.run.head.command, 9),
)  # fmt: skip

COLUMNS: dict[str, Column] = {column.key: column for column in _ALL}
"""Every column by its key, in the order of a CSV file."""

BENCH = (
    "model", "quant", "source", "file_bytes", "bpw", "weight_bytes", "kv_bytes", "compute_bytes", "other_bytes",
    "n_ctx", "n_gen", "prefill_ms", "w_tokens_per_ms", "w_ratio", "b_ms", "b_ratio", "b_w16_ms", "tok_s", "p99_ms",
    "note",
)  # fmt: skip
"""What `ggbench bench` answers."""

ANSWERS = ("w_tokens_per_ms", "b_ms", "tok_s")
"""What a list of runs of any kind has."""


def bench_columns(summaries: Iterable[QuantSummary]) -> tuple[str, ...]:
    """`BENCH`, with the largest context after its length where it was searched for."""
    if not any(summary.max_n_ctx is not None or summary.max_n_ctx_reason for summary in summaries):
        return BENCH
    place = BENCH.index("n_ctx") + 1
    return (*BENCH[:place], "max_n_ctx", *BENCH[place:])
