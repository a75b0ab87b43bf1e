"""Measured rows side by side: which is better in what, and what else differs between them.

A number from one run is an estimate. So one row is called better only where its interval lies wholly beyond the
other's; where nothing tells an interval, the larger or the lower is named and nothing claimed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ggbench.plain import plain
from ggbench.records import Environment, Outcome, Row
from ggbench.report.columns import COLUMNS, UNKNOWN, outcome_words
from ggbench.tui.plotting import LETTERS
from ggbench.units import format_bandwidth, format_bytes, format_count, format_number

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end; a count has both at its value, a bound has one at infinity."""


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """One property of every row."""

    header: str
    unit: str
    """Empty where the texts carry their own."""
    texts: tuple[str, ...]
    """One for each row, an em dash where it is not known."""
    better: tuple[bool, ...]
    """Whether a row is better than another, and none is better than it."""
    verdict: str
    """The same in words; empty where no two are known."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs in one respect, a line for each, with the letters of the rows."""

    topic: str
    lines: tuple[str, ...]
    """Empty where nothing differs."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows side by side."""

    names: tuple[str, ...]
    """Model and quant of each row, printable."""
    lines: tuple[ComparedLine, ...]
    differences: tuple[Differences, ...]
    warnings: tuple[str, ...]
    """Why a number should not be trusted, or not be compared; a line for each."""


def compare_rows(rows: Sequence[Row]) -> Comparison:
    """Everything about two rows or more; the n-th is called by the n-th letter."""
    return Comparison(
        names=tuple(plain(f"{row.model} {row.quant}") for row in rows),
        lines=tuple(_compared(metric, rows) for metric in (*_METRICS, *_of_searches(rows))),
        differences=(
            Differences("file", _told(_FILE, rows)),
            Differences("configuration", _told(_CONFIGURATION, rows)),
            Differences("environment", _environment(rows)),
        ),
        warnings=(*_mistrust(rows), *_caveats(rows)),
    )


def letter(index: int) -> str:
    """What the row of that index is called, as the plot calls its curve."""
    return LETTERS[index % len(LETTERS)]


def together_bytes(row: Row) -> int | None:
    """Memory of weights, KV cache, compute and output buffers on all devices; None where the log told none."""
    if not row.buffers:
        return None
    return sum(one.weight_bytes + one.kv_bytes + one.compute_bytes + one.output_bytes for one in row.buffers)


@dataclass(frozen=True, slots=True)
class _Metric:
    """What is compared, and which way is better."""

    header: str
    unit: str
    text: Callable[[Row], str]
    more_is_better: bool
    interval: Callable[[Row], Interval | None] | None = None
    """None where a run tells a value without one."""
    value: Callable[[Row], float | None] = lambda row: None
    """Used where there is no interval."""
    left_out: Callable[[Row], str] = lambda row: "without an interval"
    """Why a row that has none is not compared."""
    exact: bool = False
    """Whether its intervals are single values."""


def _w_interval(row: Row) -> Interval | None:
    if row.fit is None or row.fit.w_ci95 is None:
        return None
    low, high = row.fit.w_ci95
    return low, math.inf if high is None else high


def _b_interval(row: Row) -> Interval | None:
    return None if row.fit is None else row.fit.b_ci95


def _w_ratio_interval(row: Row) -> Interval | None:
    interval = _w_interval(row)
    if interval is None or row.w_ratio is None or row.limit is None or not row.limit.w_tokens_per_ms:
        return None
    low, high = interval
    return low / row.limit.w_tokens_per_ms, high / row.limit.w_tokens_per_ms


def _b_ratio_interval(row: Row) -> Interval | None:
    interval = _b_interval(row)
    if interval is None or row.b_ratio is None or row.limit is None:
        return None
    low, high = interval
    return row.limit.b_ms / high if high else math.inf, row.limit.b_ms / low if low else math.inf


def _b_w16_interval(row: Row) -> Interval | None:
    interval = _b_interval(row)
    if interval is None or row.b_w16_ms is None or not row.bpw:
        return None
    low, high = interval
    return low * 16 / row.bpw, high * 16 / row.bpw


def _memory_interval(row: Row) -> Interval | None:
    """Exact; none of a run that ended early, which may not have taken all of its memory, nor of a search, which takes
    what there is.
    """
    is_whole = row.outcome is Outcome.COMPLETED and bool(row.n_gen or row.prefills)
    n_bytes = together_bytes(row) if is_whole else None
    return None if n_bytes is None else (n_bytes, n_bytes)


def _no_memory_to_compare(row: Row) -> str:
    return "searched for the largest n_ctx" if row.outcome is Outcome.COMPLETED else "not completed"


def _max_n_ctx_interval(row: Row) -> Interval | None:
    """Exact where a decode proved it; what was cut short is not the largest."""
    is_answered = row.outcome is Outcome.COMPLETED and row.max_n_ctx_verified
    return (row.max_n_ctx, row.max_n_ctx) if row.max_n_ctx is not None and is_answered else None


def _column(key: str, *, more_is_better: bool, interval: Callable[[Row], Interval | None] | None = None) -> _Metric:
    column = COLUMNS[key]

    def value(row: Row) -> float | None:
        known = column.value(row)
        return known if isinstance(known, int | float) else None

    return _Metric(column.header, column.unit, column.text, more_is_better, interval, value)


_METRICS = (
    _column("w_tokens_per_ms", more_is_better=True, interval=_w_interval),
    _column("w_ratio", more_is_better=True, interval=_w_ratio_interval),
    _column("b_ms", more_is_better=False, interval=_b_interval),
    _column("b_ratio", more_is_better=True, interval=_b_ratio_interval),
    _column("b_w16_ms", more_is_better=False, interval=_b_w16_interval),
    _Metric(
        header="memory",
        unit="",
        text=lambda row: format_bytes(together_bytes(row)),
        more_is_better=False,
        interval=_memory_interval,
        left_out=_no_memory_to_compare,
        exact=True,
    ),
    _column("p50_ms", more_is_better=False),
    _column("p99_ms", more_is_better=False),
    _column("tok_s", more_is_better=True),
)


def _of_searches(rows: Sequence[Row]) -> tuple[_Metric, ...]:
    """What only searches tell; nothing where none is among the rows."""
    searched = any(row.max_n_ctx is not None for row in rows)
    metric = _column("max_n_ctx", more_is_better=True, interval=_max_n_ctx_interval)
    return (replace(metric, left_out=lambda row: "not proven", exact=True),) if searched else ()


def _compared(metric: _Metric, rows: Sequence[Row]) -> ComparedLine:
    texts = tuple(metric.text(row) for row in rows)
    if metric.interval is None:
        better, verdict = (False,) * len(rows), _lead([metric.value(row) for row in rows], metric.more_is_better)
    else:
        intervals = [metric.interval(row) for row in rows]
        better = _better(intervals, metric.more_is_better)
        reasons = [
            metric.left_out(row) if interval is None and text != UNKNOWN else ""
            for row, interval, text in zip(rows, intervals, texts, strict=True)
        ]
        verdict = _verdict(intervals, better, reasons, exact=metric.exact)
    return ComparedLine(metric.header, metric.unit, texts, better, verdict)


def _better(intervals: Sequence[Interval | None], more_is_better: bool) -> tuple[bool, ...]:
    known = [interval for interval in intervals if interval is not None]

    def beats(one: Interval, other: Interval) -> bool:
        return one[0] > other[1] if more_is_better else one[1] < other[0]

    return tuple(
        one is not None and any(beats(one, other) for other in known) and not any(beats(other, one) for other in known)
        for one in intervals
    )


def _verdict(
    intervals: Sequence[Interval | None], better: Sequence[bool], left_out: Sequence[str], *, exact: bool
) -> str:
    """In words; a row that is left out though it shows a value is named with its reason."""
    known = [index for index, interval in enumerate(intervals) if interval is not None]
    best = [index for index in known if better[index]]
    told = []
    if len(known) > 1 and not best:
        told.append("the same" if exact else "the same within the interval")
    elif len(best) == 1:
        told.append(f"{letter(best[0])} is better{' (exact)' if exact else ''}")
    elif best:
        told.append(f"{_letters(best)} are better, and the same{' (exact)' if exact else ' within the interval'}")
    indices = {reason: [index for index, each in enumerate(left_out) if each == reason] for reason in left_out}
    told.extend(f"{_letters(indices[reason])} {reason}" for reason in indices if reason)
    return "; ".join(told)


def _lead(values: Sequence[float | None], more_is_better: bool) -> str:
    """Which value is best and by how much over the next, where no interval tells whether that means anything."""
    known = sorted(((value, index) for index, value in enumerate(values) if value is not None), reverse=more_is_better)
    if len(known) < 2:
        return ""
    (best, index), (next_best, _) = known[:2]
    if best == next_best or not next_best:
        return "the same" if best == next_best else ""
    share = abs(best / next_best - 1) * 100
    return f"{letter(index)} is {format_number(share, 2)} % {'higher' if more_is_better else 'lower'}; no interval"


@dataclass(frozen=True, slots=True)
class _Property:
    """Something that two rows may differ in."""

    name: str
    text: Callable[[Row], str]
    """Empty where it is not known."""


def _threads(row: Row) -> str:
    return "one for each core" if row.config.threads is None else str(row.config.threads)


def _flash_attn(row: Row) -> str:
    got = "" if row.flash_attn is None else "on" if row.flash_attn else "off"
    asked = row.config.flash_attn
    return asked if got in ("", asked) else f"{got} ({asked})"


_FILE = (
    _Property("model", lambda row: row.model),
    _Property("quant", lambda row: row.quant),
    _Property("weights", lambda row: row.provenance),
    _Property("path", lambda row: row.file),
    _Property("size", lambda row: "" if row.file_bytes is None else format_bytes(row.file_bytes)),
    _Property("BPW", lambda row: "" if row.bpw is None else format_number(row.bpw)),
    _Property("header", lambda row: row.header_sha256[:12]),
)

_CONFIGURATION = (
    _Property("n_ctx", lambda row: "" if row.n_ctx is None else format_count(row.n_ctx)),
    _Property("n_prompt", lambda row: "" if row.n_prompt is None else format_count(row.n_prompt)),
    _Property("n_gen", lambda row: "" if row.n_gen is None else format_count(row.n_gen)),
    _Property("n_batch", lambda row: "" if row.n_batch is None else format_count(row.n_batch)),
    _Property("n_ubatch", lambda row: "" if row.n_ubatch is None else format_count(row.n_ubatch)),
    _Property("type_k", lambda row: row.config.type_k),
    _Property("type_v", lambda row: row.config.type_v),
    _Property("flash attention", _flash_attn),
    _Property("n_gpu_layers", lambda row: "all" if row.config.n_gpu_layers < 0 else str(row.config.n_gpu_layers)),
    _Property("main_gpu", lambda row: "all" if row.config.main_gpu is None else str(row.config.main_gpu)),
    _Property("tensor_split", lambda row: " ".join(map(format_number, row.config.tensor_split)) or "llama.cpp's own"),
    _Property("threads", _threads),
    _Property(
        "memory limit",
        lambda row: "none" if row.config.memory_limit_bytes is None else format_bytes(row.config.memory_limit_bytes),
    ),
)


def _of_environment(text: Callable[[Environment], str]) -> Callable[[Row], str]:
    return lambda row: "" if row.environment is None else text(row.environment)


_ENVIRONMENT = (
    _Property("ggbench", _of_environment(lambda environment: environment.ggbench)),
    _Property("llama.cpp", _of_environment(lambda environment: environment.llama_cpp)),
    _Property("llama-cpp-python", _of_environment(lambda environment: environment.llama_cpp_python)),
    _Property("Python", _of_environment(lambda environment: environment.python)),
    _Property("system", _of_environment(lambda environment: environment.os)),
    _Property("processor", _of_environment(lambda environment: environment.cpu)),
    _Property("cores", _of_environment(lambda environment: str(environment.n_cores))),
    _Property("RAM", _of_environment(lambda environment: format_bytes(environment.ram_bytes))),
    _Property(
        "GPUs",
        _of_environment(
            lambda environment: (
                " + ".join(f"{gpu.name} {format_bytes(gpu.total_bytes)}" for gpu in environment.gpus) or "none"
            )
        ),
    ),
    _Property(
        "GPU driver",
        _of_environment(lambda environment: " + ".join(sorted({gpu.driver or "" for gpu in environment.gpus}))),
    ),
)


def _told(properties: Sequence[_Property], rows: Sequence[Row]) -> tuple[str, ...]:
    """A line for each property that is not the same in all rows: `threads: 2 in a and c, 4 in b`."""
    lines = (_difference(one.name, [plain(one.text(row)) for row in rows]) for one in properties)
    return tuple(line for line in lines if line)


def _difference(name: str, texts: Sequence[str]) -> str:
    holders: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        holders.setdefault(text, []).append(index)
    if len(holders) == 1:
        return ""
    return f"{name}: " + ", ".join(
        f"{text} in {_letters(who)}" if text else f"not known of {_letters(who)}" for text, who in holders.items()
    )


def _environment(rows: Sequence[Row]) -> tuple[str, ...]:
    unknown = [index for index, row in enumerate(rows) if row.environment is None]
    if unknown:
        return (f"not known of {_letters(unknown)}",)
    builds = [_build_parts(row.environment) for row in rows]
    common = frozenset.intersection(*builds)
    # Builds list dozens of instruction sets: only those that are not in all are worth a word.
    parts = [", ".join(sorted(build - common)) or "nothing more" for build in builds]
    build = _difference("compiled in", [plain(part) for part in parts])
    bandwidths = ["" if row.limit is None else format_bandwidth(row.limit.bandwidth_bytes_per_s) for row in rows]
    bandwidth = _difference("bandwidth of the limits", bandwidths)
    return tuple(line for line in (*_told(_ENVIRONMENT, rows), build, bandwidth) if line)


def _build_parts(environment: Environment | None) -> frozenset[str]:
    text = "" if environment is None else environment.system_info
    return frozenset(part.strip() for part in text.replace(" : ", " | ").split("|") if part.strip())


def _mistrust(rows: Sequence[Row]) -> tuple[str, ...]:
    """Rows that did not complete, or on a machine that did not hold still."""
    lines = []
    for index, row in enumerate(rows):
        if row.outcome is not Outcome.COMPLETED:
            reason = plain(row.reason)
            lines.append(f"{letter(index)} did not complete: {reason or outcome_words(row.outcome)}")
        elif row.unsteady:
            lines.append(f"{letter(index)} was not steady: {plain(row.unsteady)}")
    return tuple(lines)


def _caveats(rows: Sequence[Row]) -> tuple[str, ...]:
    """Numbers that are not of the same thing."""

    def vary(value: Callable[[Row], object]) -> bool:
        return len({value(row) for row in rows if value(row) is not None}) > 1

    lines = []
    if vary(lambda row: row.model):
        lines.append("different models: less memory or a lower B may only mean a smaller model")
    if vary(lambda row: row.n_gen) or vary(lambda row: row.n_prompt):
        lines.append("different lengths: p50, p99 and tok/s are over different positions")
    if vary(lambda row: row.n_ctx):
        lines.append("different n_ctx: memory counts KV caches of different lengths")
    return tuple(lines)


def _letters(indices: Sequence[int]) -> str:
    names = [letter(index) for index in indices]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
