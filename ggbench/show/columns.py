"""Columns of all tables of runs: header, unit, meaning, value and text, defined once for all outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeAlias

import msgspec

from ggbench.engines.endings import Outcome
from ggbench.machine.records import Environment
from ggbench.runs.summary import QuantSummary
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.glossary import UNSTEADY
from ggbench.show.names import file_name, model_name
from ggbench.show.text import (
    b_text,
    estimate_text,
    on_off,
    tok_s_text,
    w_text,
)
from ggbench.stats.intervals import MeanError
from ggbench.text import sanitize
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_ms,
    format_number,
    format_params,
    format_percent,
)

Value: TypeAlias = "str | int | float | bool | None"


class Column(msgspec.Struct, frozen=True):
    key: str
    header: str
    unit: str
    """Shown below the header; empty if each text has its own unit."""
    doc: str
    value: Callable[[QuantSummary], Value]
    text: Callable[[QuantSummary], str]
    right_aligned: bool = True
    priority: int = 5
    """A narrow table drops the highest first; `ESSENTIAL` stays."""
    after: str = "bandwidth_bytes_per_s"
    """Key of the preceding column, if an experiment adds this one."""

    @property
    def title(self) -> str:
        """Return the header with its unit: `W [tokens/ms]`."""
        return f"{self.header} [{self.unit}]" if self.unit else self.header


def note(summary: QuantSummary, *, is_marked: bool = False) -> str:
    """Return the caveats of a row: why it did not complete or, if it did, what is missing; and what disturbed it.

    With `is_marked` the disturbance is left out, as it is named elsewhere.
    """
    disturbance = "" if is_marked or not summary.unsteady else f"unsteady: {sanitize(summary.unsteady)}"
    if summary.outcome is not Outcome.COMPLETED:
        parts = [sanitize(summary.run.reason) or summary.outcome.text, disturbance]
    else:
        longest = f"max n_ctx: {sanitize(summary.max_n_ctx_reason)}" if summary.max_n_ctx_reason else ""
        parts = [imported_text(summary.environment), _too_few(summary), disturbance, longest]
    return "; ".join(filter(None, parts))


def imported_text(environment: Environment | None) -> str:
    """Return `imported: llama-bench, results.json`; empty for a run measured here. Printable."""
    imported = environment and environment.imported
    return sanitize(f"imported: {imported.tool}, {imported.file}") if imported else ""


def _too_few(summary: QuantSummary) -> str:
    """Return a notice that W needs more tokens; empty if it does not."""
    decode, fit = summary.decode, summary.fit
    if decode is None or fit is None or fit.w_ci95 is not None or fit.is_flat:
        return ""
    from ggbench.stats.linefit import fewest_samples

    enough = format_count(fewest_samples(decode.n_prompt + 1))
    return f"{format_count(fit.n_samples)} tokens are too few for W, which needs at least {enough}"


def speed_text(summary: QuantSummary) -> str:
    """Return `108 ±2`; `! 71 ±13` for an unsteady run."""
    text = tok_s_text(summary.latency)
    return f"{UNSTEADY} {text}" if summary.unsteady and text != UNKNOWN else text


def depths_text(summary: QuantSummary) -> str:
    """Return `0: 108 ±2, 4,096: 69 ±1`; empty without depths."""
    return ", ".join(f"{format_count(each.n_depth)}: {tok_s_text(each)}" for each in summary.depths)


def max_n_ctx_text(summary: QuantSummary) -> str:
    """Return `8,192`; `8,192?` if no decode proved it; an em dash if unknown."""
    unproven = summary.max_n_ctx is not None and not summary.max_n_ctx_verified
    return f"{format_count(summary.max_n_ctx)}{'?' if unproven else ''}"


def reader(
    path: str, of: Callable[[QuantSummary], Any] = lambda summary: summary
) -> Callable[[QuantSummary], Any]:
    """Return a function that reads a path of attributes such as `decode.n_gen`; it returns None if any of them is
    None.
    """
    names = path.split(".")
    return lambda summary: reduce(
        lambda found, name: None if found is None else getattr(found, name), names, of(summary)
    )


def column(
    key: str,
    header: str,
    unit: str,
    doc: str,
    source: str | Callable[[QuantSummary], Any],
    form: Callable[[Any], str],
    priority: int = 5,
) -> Column:
    """Return a column whose text is its value, formatted; `source` is a function or a path of attributes."""
    value = reader(source) if isinstance(source, str) else source
    right_aligned = form not in (sanitize, _yes_no, on_off)
    return Column(key, header, unit, doc, value, lambda s: form(value(s)), right_aligned, priority)


def _yes_no(is_so: bool | None) -> str:
    return {None: UNKNOWN, True: "yes", False: "no"}[is_so]


def interval_columns(
    key: str, name: str, unit: str, path: str, form: Callable[[Any], str]
) -> tuple[Column, ...]:
    ends, rest = reader(path), f"end of the 95 % interval of {name}"

    def end(index: int) -> Callable[[QuantSummary], float | None]:
        return lambda summary: found[index] if (found := ends(summary)) else None

    return (
        column(f"{key}_low", f"{name} from", unit, f"Lower {rest}.", end(0), form),
        column(f"{key}_high", f"{name} to", unit, f"Upper {rest}; — means unbounded.", end(1), form),
    )


def estimate_columns(
    key: str, name: str, header: str, unit: str, what: str, estimate: Callable[[QuantSummary], MeanError | None]
) -> tuple[Column, Column]:
    doc = f"{what[0].upper()}{what[1:]}, with its standard error."
    mean = reader("mean", estimate)
    value = Column(key, header, unit, doc, mean, lambda s: estimate_text(estimate(s)), priority=4)
    error = f"{header} error", unit, f"Standard error of the {what}.", reader("error", estimate), format_number
    return value, column(f"{name}_error", *error)


def _throttle(summary: QuantSummary) -> str | None:
    if summary.gpu_use is None or summary.gpu_use.throttle is None:
        return None
    return sanitize(", ".join(each.reason for each in summary.gpu_use.throttle)) or "none"


_OWN = (
    column(
        "run_id", "run", "", "Number of the run in the store.",
        "run.run_id", lambda run_id: UNKNOWN if run_id is None else str(run_id), 2,
    ),
    Column(
        "model", "model", "", "The model as named; for a path, the file name without the quant.",
        lambda s: s.subject.model, lambda s: model_name(s.subject), right_aligned=False, priority=ESSENTIAL,
    ),
    column("quant", "quant", "", "How the weights are quantized.", "subject.quant", sanitize, ESSENTIAL),
    column(
        "source", "source", "", "Where the weights come from: a file, the Hub, or an untrained twin.",
        "subject.source", sanitize, ESSENTIAL,
    ),
    Column(
        "file", "path", "", "The loaded GGUF file: its name in tables, its path in CSV and JSON.",
        lambda s: s.subject.file, lambda s: file_name(s.subject), right_aligned=False,
    ),
    column("file_bytes", "file", "", "Size of the file, over all shards.", "subject.file_bytes", format_bytes, 4),
    column("n_params", "params", "", "Parameters of all tensors.", "subject.n_params", format_params, 8),
    column("bpw", "BPW", "bits", "Bits per weight: tensor bytes x 8 / parameters.", "subject.bpw", format_number, 1),
    column("weight_bytes", "weights", "", "Bytes of all tensors.", "subject.weight_bytes", format_bytes, 6),
    column("kv_bytes", "KV", "", "Memory of the KV cache at this n_ctx.", "memory.kv_bytes", format_bytes, 5),
    column(
        "kv_bytes_per_token", "KV/token", "", "Memory of the KV cache for one position.",
        "subject.kv_bytes_per_token", format_bytes, 7,
    ),
    column("compute_bytes", "compute", "", "Memory of the compute buffers.", "memory.compute_bytes", format_bytes, 5),
    column(
        "memory_bytes", "memory", "", "Memory of the weights, the KV cache and the compute buffers.",
        "memory.total_bytes", format_bytes,
    ),
    column(
        "other_bytes", "other", "", "Peak memory not in any known buffer; on a CPU usually unknown.",
        "memory.other_bytes", format_bytes, 8,
    ),
    column("n_ctx", "n_ctx", "tokens", "Length of the context.", "memory.n_ctx", format_count, 7),
    Column(
        "max_n_ctx", "max n_ctx", "tokens", "The largest context that works; `?` if not proved by a decode.",
        lambda s: s.max_n_ctx, max_n_ctx_text, priority=1,
    ),
    column(
        "max_n_ctx_verified", "proven", "", "Whether tokens were decoded at the end of the largest context.",
        "max_n_ctx_verified", _yes_no,
    ),
    column("n_prompt", "n_prompt", "tokens", "Tokens of prompt before a decode.", "decode.n_prompt", format_count, 9),
    column("n_gen", "n_gen", "tokens", "Tokens decoded and timed in one repetition.", "n_gen", format_count, 6),
    column("repeat", "repeat", "", "Repetitions of the decode.", "repeat", format_count, 6),
    column(
        "prefill_ms", "prefill", "ms", "Time to read the prompt before the decode.", "decode.prefill_ms", format_ms, 3,
    ),
    Column(
        "w_tokens_per_ms", "W", "tokens/ms",
        "Tokens of context that add 1 ms to a token's latency, with the 95 % interval.",
        reader("fit.w_tokens_per_ms"), lambda s: w_text(s.fit), priority=ESSENTIAL,
    ),
    *interval_columns("w_ci95", "W", "tokens/ms", "fit.w_ci95", format_number),
    column(
        "w_ratio", "W MBU", "", "Measured W / limit of W: the share of the memory bandwidth (MBU).",
        "decode.w_ratio", format_percent, 2,
    ),
    Column(
        "b_ms", "B", "ms", "Latency of the first token, with its 95 % interval.",
        reader("fit.b_ms"), lambda s: b_text(s.fit), priority=ESSENTIAL,
    ),
    *interval_columns("b_ci95", "B", "ms", "fit.b_ci95", format_ms),
    column(
        "b_ratio", "B MBU", "", "Limit of B / measured B: the share of the memory bandwidth (MBU).",
        "decode.b_ratio", format_percent, 2,
    ),
    column("b_w16_ms", "B as w16", "ms", "B x 16 / BPW: B scaled to 16 bits per weight.", "b_w16_ms", format_ms, 3),
    column("r2", "R²", "", "Share of latency variance explained by the fit.", "fit.r2", format_number),
    Column(
        "tok_s", "speed", "tok/s", "Decoded tokens per second, with the 95 % interval; `!` marks an unsteady run.",
        reader("latency.tok_s"), speed_text, priority=ESSENTIAL,
    ),
    *interval_columns("tok_s_ci95", "speed", "tok/s", "latency.tok_s_ci95", format_number),
    column("n_seqs", "users", "", "Users that decoded at once; each had this speed.", "decode.n_seqs", format_count, 1),
    column(
        "tok_s_together", "together", "tok/s", "Tokens per second of all users together.",
        "decode.tok_s_together", format_number, 1,
    ),
    Column(
        "depth_tok_s", "speed at depth", "tok/s", "Speed at the -d depths.",
        lambda s: depths_text(s) or None, lambda s: depths_text(s) or UNKNOWN, right_aligned=False, priority=1,
    ),
    column("p50_ms", "p50", "ms", "Median latency of a token.", "latency.p50_ms", format_ms, 5),
    column("p95_ms", "p95", "ms", "Latency that 95 % of the tokens do not exceed.", "latency.p95_ms", format_ms, 6),
    column("p99_ms", "p99", "ms", "Latency that 99 % of the tokens do not exceed.", "latency.p99_ms", format_ms, 5),
    column(
        "sample_p50_ms", "sampling", "ms", "Median time of the sampler for one token.",
        "latency.sample_p50_ms", format_ms, 8,
    ),
    column(
        "limit_w_tokens_per_ms", "limit of W", "tokens/ms", "W at the memory bandwidth's limit.",
        "limit.w_tokens_per_ms", format_number,
    ),
    column("limit_b_ms", "limit of B", "ms", "B at the memory bandwidth's limit.", "limit.b_ms", format_ms),
    column(
        "bandwidth_bytes_per_s", "bandwidth", "", "Memory bandwidth from which the limits are computed.",
        "limit.bandwidth_bytes_per_s", format_bandwidth,
    ),
    column(
        "gpu_temperature_max_c", "max temp", "°C", "Highest GPU temperature during timing.",
        "gpu_use.temperature_max_c", format_number,
    ),
    column(
        "gpu_sm_clock_min_mhz", "min clock", "MHz", "Lowest GPU SM clock during timing.",
        "gpu_use.sm_clock_min_mhz", format_number,
    ),
    column(
        "gpu_sm_clock_median_mhz", "SM clock", "MHz", "Median GPU SM clock during timing.",
        "gpu_use.sm_clock_median_mhz", format_number,
    ),
    column(
        "gpu_power_mean_w", "power", "W", "Mean GPU power during timing.",
        "gpu_use.power_mean_w", format_number,
    ),
    column(
        "gpu_energy_per_token_mj", "energy", "mJ/token", "Energy per decoded token, from the GPU's energy counter.",
        "gpu_use.energy_per_token_mj", format_number,
    ),
    Column(
        "gpu_throttle", "throttle reason", "", "Why GPU clocks were reduced; `none` if they were not.",
        _throttle, lambda s: _throttle(s) or UNKNOWN, right_aligned=False,
    ),
    column("flash_attn", "flash", "", "Whether flash attention was on.", "memory.flash_attn", on_off),
    Column(
        "outcome", "outcome", "", "How the run ended.",
        lambda s: s.outcome.value, lambda s: s.outcome.text, right_aligned=False, priority=4,
    ),
    column("note", "note", "", "Why the run failed or is not trustworthy.", note, sanitize, ESSENTIAL),
    column("command", "command", "", "Command that repeats the measurement.", "run.head.command", sanitize, 9),
)  # fmt: skip

COLUMNS = {each.key: each for each in _OWN}
"""The columns shared by all kinds of runs, by key."""


BENCH = (
    "model", "quant", "source", "file_bytes", "bpw", "weight_bytes", "kv_bytes", "compute_bytes", "other_bytes",
    "n_ctx", "n_gen", "prefill_ms", "w_tokens_per_ms", "w_ratio", "b_ms", "b_ratio", "b_w16_ms", "tok_s", "p99_ms",
    "note",
)  # fmt: skip

ANSWERS = ("w_tokens_per_ms", "b_ms", "tok_s")


def bench_columns(summaries: Iterable[QuantSummary]) -> tuple[str, ...]:
    """Return `BENCH`, plus the largest context and what several users get if any row has them."""
    rows, keys = list(summaries), list(BENCH)
    if any(row.decode is not None and row.decode.n_seqs > 1 for row in rows):
        keys[keys.index("tok_s") : keys.index("tok_s") + 1] = ["n_seqs", "tok_s", "tok_s_together"]
    if any(row.depths for row in rows):
        keys.insert(keys.index("tok_s") + 1, "depth_tok_s")
    if any(row.max_n_ctx is not None or row.max_n_ctx_reason for row in rows):
        keys.insert(keys.index("n_ctx") + 1, "max_n_ctx")
    return tuple(keys)
