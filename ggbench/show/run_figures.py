"""Figures of runs: what tables, CSV, JSON and comparisons show of a measured quant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Protocol, TypeVar

from ggbench.engines.endings import Outcome
from ggbench.machine.records import Environment
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, others_text
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.figure import Figure, bounded_text, interval_key, reader
from ggbench.show.glossary import UNSTEADY
from ggbench.show.names import model_names
from ggbench.show.text import on_off
from ggbench.show.words import say
from ggbench.stats.decode_timing import LatencyLine, LineFit
from ggbench.stats.intervals import Estimate
from ggbench.text import in_words, sanitize
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_ms,
    format_params,
    format_percent,
)


class _OfSubject(Protocol):
    @property
    def subject(self) -> Subject: ...


_Row = TypeVar("_Row", bound=_OfSubject)


def estimate(value: float | None, ends: tuple[float, float | None] | None) -> Estimate | float | None:
    """Return a value with its interval: NaN if only bounded, and a plain number without an interval."""
    if ends is None:
        return value
    low, high = ends
    return Estimate(math.nan if value is None else value, low, math.inf if high is None else high)


def estimated(path: str, name: str) -> Callable[[Any], Any]:
    """Return a function that reads member `name` of the object at a path, with its interval `name_ci95`."""
    value: Callable[[Any], Any] = reader(f"{path}.{name}")
    ends: Callable[[Any], Any] = reader(f"{path}.{interval_key(name)}")
    return lambda row: estimate(value(row), ends(row))


def measured_text(found: object, name: str, digits: int = 3) -> str:
    """Return member `name` of a timing or a fit with its interval; an em dash if there is none."""
    if found is None:
        return UNKNOWN
    value = estimate(getattr(found, name), getattr(found, interval_key(name), None))
    return UNKNOWN if value is None else bounded_text(value, digits)


def w_text(line: LineFit | LatencyLine) -> str:
    """Return W up to each break and beyond, as far as known: `271, then 1,900 from 2,048`, `271 up to 2,048`."""
    found, *others = (measured_text(each, "w_tokens_per_ms") for each in (*line.breaks, line))
    for each, text in zip(line.breaks, others, strict=True):
        n = format_count(each.n)
        found += f" up to {n}" if text == UNKNOWN else f", then {text} from {n}"
    return found


def rows_of(
    rows: Sequence[_Row],
) -> tuple[Figure[_Row], ...]:
    """Return the figures that tell rows apart: the quant, preceded by the model unless all have the same."""
    names = model_names([row.subject for row in rows])
    by_row = dict(zip(map(id, rows), names, strict=True))
    model = Figure[_Row]("model", "model", lambda row: by_row[id(row)])
    quant = Figure[_Row]("quant", "quant", lambda row: row.subject.quant)
    return (quant,) if len(set(names)) == 1 else (model, quant)


def note(run: Run) -> str:
    """Return the caveats of a row, and what disturbed it."""
    disturbance = [f"unsteady: {sanitize(run.unsteady)}"] if run.unsteady else []
    return "; ".join([*caveats(run), *disturbance])


def caveats(run: Run) -> list[str]:
    """Return why a row did not complete or, if it did, what is missing."""
    if run.outcome is not Outcome.COMPLETED:
        return [sanitize(run.reason) or run.outcome.text]
    found = [imported_text(run.environment)]
    decode, fit, n_gen = run.decode, run.fit, run.n_gen
    if decode is not None and fit is not None and n_gen is not None and fit.is_nothing and not decode.depths:
        from ggbench.stats.linefit import fewest_samples

        is_timed_again = decode.serving is None and decode.n_seqs == 1
        needed = fewest_samples(decode.n_prompt + 1, is_timed_again=is_timed_again)
        few = say("run.too_few", n_tokens=n_gen, needed=needed)
        found.append(few if n_gen < needed else say("run.bent"))
    if run.max_n_ctx_reason:
        found.append(say("run.max_n_ctx", reason=run.max_n_ctx_reason))
    return list(filter(None, found))


def imported_text(environment: Environment | None) -> str:
    """Return `imported: llama-bench, results.json`; empty for a run measured here. Printable."""
    imported = environment and environment.imported
    return sanitize(f"imported: {imported.tool}, {imported.file}") if imported else ""


def unsteady_mark(run: Run) -> str:
    return UNSTEADY if run.unsteady else ""


def unsteady_note(names: Sequence[str], rows: Sequence[Run]) -> str:
    """Return the footnote of the mark: which rows were disturbed and by what; empty if none was."""
    disturbed = {name: row for name, row in zip(names, rows, strict=True) if row.unsteady}
    busy, by_why = others_text(*(row.others_share for row in disturbed.values())), dict[str, list[str]]()
    for name, row in disturbed.items():
        why = busy if others_text(row.others_share) else row.unsteady.partition("; ")[0]
        by_why.setdefault(why, []).append(name)
    found = [
        say(
            "run.others" if why == busy else "run.unsteady", who=f"{UNSTEADY} {in_words(who)}".rstrip(), why=why
        )
        for why, who in by_why.items()
    ]
    return "; ".join(found)


def _throttle(run: Run) -> str | None:
    if run.gpu_use is None or run.gpu_use.throttle is None:
        return None
    return sanitize(", ".join(each.reason for each in run.gpu_use.throttle)) or "none"


def _figure(
    key: str,
    header: str,
    meaning: str,
    path: str,
    priority: int = 5,
    **more: Any,  # noqa: ANN401 - as a figure's
) -> Figure[Run]:
    return Figure(key, header, reader(path), meaning=meaning, priority=priority, **more)


_percent = partial(_figure, form=format_percent)
_bytes = partial(_figure, form=format_bytes)
_ms = partial(_figure, form=format_ms, unit="ms")

_ALL: tuple[Figure[Run], ...] = (
    _figure("run_id", "run", "Number of the run in the store.", "run_id", 2, form=str),
    _figure("model", "model", "The model as given.", "subject.model", ESSENTIAL),
    _figure("quant", "quant", "How the weights are quantized.", "subject.quant", ESSENTIAL),
    _figure(
        "source", "source", "Where the weights come from: a file, the Hub, or an untrained twin.", "subject.source",
        ESSENTIAL,
    ),
    _figure(
        "file", "path", "The loaded GGUF file: its name in tables, its path in CSV and JSON.", "subject.file",
        form=lambda path: sanitize(PurePath(path).name),
    ),
    _bytes("file_bytes", "file", "Size of the file, over all shards.", "subject.file_bytes", 9),
    _figure("n_params", "params", "Parameters of all tensors.", "subject.n_params", 8, form=format_params),
    _figure("bpw", "BPW", "Bits per weight: tensor bytes x 8 / parameters.", "subject.bpw", 3),
    _bytes("weight_bytes", "weights", "Bytes of all tensors.", "subject.weight_bytes", 6),
    _bytes("kv_bytes", "KV", "Memory of the KV cache at this n_ctx.", "memory.kv_bytes"),
    _bytes("kv_bytes_per_token", "KV/token", "KV cache of one position.", "subject.kv_bytes_per_token", 7),
    _bytes("compute_bytes", "compute", "Memory of the compute buffers.", "memory.compute_bytes"),
    _bytes(
        "memory_bytes", "memory", "Weights, KV cache and compute buffers.", "memory.total_bytes", 1,
        better="less",
    ),
    _bytes("other_bytes", "other", "Peak memory not in any known buffer.", "memory.other_bytes", 8),
    _bytes("peak_bytes", "peak", "Peak memory of the process.", "memory.peak_bytes", 2, better="less"),
    _figure("n_ctx", "n_ctx", "Length of the context.", "memory.n_ctx", 7),
    _figure(
        "max_n_ctx", "max n_ctx", "The largest context that works; `~` if not proven by a decode.", "max_n_ctx", 1,
        better="more", mark=lambda run: "" if run.max_n_ctx_verified else "~",
    ),
    _figure("n_prompt", "n_prompt", "Tokens of prompt before a decode.", "decode.n_prompt", 9),
    _figure("n_gen", "n_gen", "Tokens decoded and timed in one repetition.", "n_gen", 6),
    _figure("repeat", "repeat", "Repetitions of the decode.", "repeat", 6),
    _ms("prefill_ms", "prefill", "Time to read the prompt before the decode.", "decode.prefill_ms", 4, better="less"),
    Figure(
        "tok_s", "speed", estimated("latency", "tok_s"), bounded_text, "tok/s",
        "Decoded tokens per second, without sampling. It falls as the context grows: compare runs of equal length.",
        "more", mark=unsteady_mark,
        is_estimate=True,
    ),
    _figure("n_seqs", "users", "Users that decoded at once; each had this speed.", "decode.n_seqs", 4),
    _figure(
        "tok_s_together", "together", "Tokens per second of all users together.", "decode.tok_s_together", 1,
        unit="tok/s", better="more",
    ),
    Figure(
        "b_ms", "B", estimated("fit", "b_ms"), partial(bounded_text, digits=4), "ms",
        "Latency of the first token. It comes from reading the weights.", "less", 2, is_estimate=True,
    ),
    Figure(
        "w_tokens_per_ms", "W", estimated("fit", "w_tokens_per_ms"), bounded_text, "tokens/ms",
        "Tokens of context that add 1 ms to a token's latency. It comes from reading the KV cache.",
        "more", 3, is_estimate=True,
    ),
    Figure(
        "w_before", "W before", estimated("fit.last_break", "w_tokens_per_ms"), bounded_text, "tokens/ms",
        "W up to the break, if a window or the budget of sparse attention changes it.", "more", 4, is_estimate=True,
    ),
    _figure("w_break", "break", "Position from which W counts, if it was another before.", "fit.last_break.n", 4),
    _percent(
        "b_ratio", "B MBU",
        "Limit of B / measured B: the share of the memory bandwidth (MBU) when reading the weights.",
        "decode.b_ratio", 8,
    ),
    _percent(
        "w_ratio", "W MBU",
        "Measured W / limit of W: the share of the memory bandwidth (MBU) when reading the KV cache.",
        "decode.w_ratio", 8,
    ),
    _ms(
        "b_w16_ms", "B as w16", "B x 16 / BPW: B scaled to 16 bits per weight, to compare quants of different sizes.",
        "b_w16_ms", 9,
    ),
    _ms("p50_ms", "p50", "Median latency of a token.", "latency.p50_ms", better="less"),
    _ms("p99_ms", "p99", "Latency that 99 % of the tokens do not exceed.", "latency.p99_ms", better="less"),
    _figure(
        "limit_w_tokens_per_ms", "limit of W", "W at the memory bandwidth's limit.", "limit.w_tokens_per_ms",
        unit="tokens/ms",
    ),
    _ms("limit_b_ms", "limit of B", "B at the memory bandwidth's limit.", "limit.b_ms"),
    _figure(
        "bandwidth_bytes_per_s", "bandwidth", "Memory bandwidth from which the limits are computed.",
        "limit.bandwidth_bytes_per_s", form=format_bandwidth,
    ),
    _figure(
        "gpu_temperature_max_c", "max temp", "Highest GPU temperature during timing.", "gpu_use.temperature_max_c",
        unit="°C",
    ),
    _figure(
        "gpu_sm_clock_min_mhz", "min clock", "Lowest GPU SM clock during timing.", "gpu_use.sm_clock_min_mhz",
        unit="MHz",
    ),
    _figure("gpu_power_mean_w", "power", "Mean GPU power during timing.", "gpu_use.power_mean_w", unit="W"),
    _figure(
        "gpu_energy_per_token_mj", "energy", "Energy per decoded token, from the GPU's energy counter.",
        "gpu_use.energy_per_token_mj", unit="mJ/token",
    ),
    Figure("gpu_throttle", "throttle", _throttle, meaning="Why GPU clocks were reduced; `none` if they were not."),
    _figure("flash_attn", "flash", "Whether flash attention was on.", "memory.flash_attn", form=on_off),
    _figure(
        "outcome", "outcome", "How the run ended.", "outcome.value", 4, form=lambda outcome: outcome.replace("_", " "),
    ),
    Figure("note", "note", note, meaning="Why the run failed or is not trustworthy."),
    _figure("command", "command", "Command that repeats the measurement.", "head.command", 9),
)  # fmt: skip

FIGURES = {each.key: each for each in _ALL}
"""The figures shared by all kinds of runs, by key."""


def figures(keys: str) -> tuple[Figure[Run], ...]:
    """Return shared figures by their keys."""
    return tuple(FIGURES[key] for key in keys.split())


ANSWERS = ("w_tokens_per_ms", "b_ms", "tok_s")


def is_known(figure: Figure[_Row], rows: Iterable[_Row]) -> bool:
    """Return whether any row has a value."""
    return any(figure.get(row) not in (None, "") for row in rows)


def _cache_type(index: int, key: str) -> Figure[Run]:
    """Return the type of a KV cache; null for a server's model."""

    def get(run: Run) -> str | None:
        types = run.setup.cache_types
        return None if types is None else types[index]

    return Figure(key, key, get, meaning=f"Type of the {key[-1].upper()} cache.")


CACHE_TYPES = (_cache_type(0, "type_k"), _cache_type(1, "type_v"))
