"""Theoretical limits: the figures of each scheme, the answer with what is behind it, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import GenericAlias

from ggbench.show import UNKNOWN
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.document import Document
from ggbench.show.figure import Figure, facts_of, figure_values, figures_type, member
from ggbench.show.names import short_device
from ggbench.show.words import say
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.limits import (
    DECODE_POSITIONS,
    GIGA,
    MEANING,
    TERA,
    Hardware,
    PrefillLimit,
    SchemeLimits,
)
from ggbench.sizing.theory.weights import CountedModel, Parameters, count_parameters
from ggbench.text import in_words
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_compute,
    format_count,
    format_length,
    format_ms,
    format_number,
    format_params,
)

_PREFILL_LENGTHS = (512, 4096, 32768)


def _at(index: int, n: int) -> Figure[SchemeLimits]:
    return Figure(
        f"limit_tok_s_{n}",
        f"tok/s at {format_length(n)}",
        lambda row: row.tok_s[index] if row.tok_s else None,
        format_number,
        priority=4,
        mark=lambda row: "≤ ",
    )


_number = partial(format_number, digits=4)

SCHEME_FIGURES: Sequence[Figure[SchemeLimits]] = (
    member("scheme", "scheme"),
    member("bpw", "BPW", format_number, "weights.bpw", priority=5),
    member(
        "resident_bytes",
        "weights",
        format_bytes,
        "weights.resident_bytes",
        meaning="Bytes without the embedding table.",
        priority=3,
    ),
    Figure(
        "max_n_ctx",
        "fits",
        lambda row: 0 if row.fits is False else row.max_n_ctx,
        unit="tokens",
        meaning="Tokens, without reserve and compute buffers; 0 if the weights alone do not fit.",
    ),
    member(
        "w_before",
        "W before",
        _number,
        "line.last_break.w_tokens_per_ms",
        unit="tokens/ms",
        meaning="W up to the break.",
    ),
    member(
        "w_break",
        "break",
        path="line.last_break.n",
        meaning="Position from which W counts, if it was another before.",
    ),
    member("w_tokens_per_ms", "W", _number, "line.w_tokens_per_ms", unit="tokens/ms"),
    member("b_ms", "B", format_ms, "line.b_ms", unit="ms"),
    *(_at(*each) for each in enumerate(DECODE_POSITIONS)),
)


def limits_answer(
    counted: CountedModel, kv: KvCache, hardware: Hardware, rows: Sequence[SchemeLimits]
) -> Answer:
    """Return the highest speed of decoding that the bandwidth allows what fits, with the limits of each scheme."""
    facts = [
        *facts_of(_HARDWARE, hardware),
        *facts_of(_COUNTS, count_parameters(counted.file)),
        *facts_of(_CACHE, kv),
        ("line", say("limits.line")),
        (
            "copies",
            say("limits.copies")
            if any(len(each.read) > len(each.kept) for each in counted.file.states)
            else "",
        ),
        ("convention", MEANING),
    ]
    lacks = None in (hardware.bandwidth_bytes_per_s, hardware.compute_flop_per_s)
    return Answer(
        _verdict(counted.model, hardware, rows),
        "",
        [Table(_shown(rows), rows)],
        [say("limits.bounds"), say("limits.lacks") if lacks else ""],
        [Facts(facts), *_prefill(rows)],
    )


def _verdict(model: str, hardware: Hardware, rows: Sequence[SchemeLimits]) -> str:
    """Return the limits of the first and the last scheme that fits, or by how much the smallest does not."""
    where = {"model": model, "device": short_device(hardware.name)}
    if rows and all(row.fits is False for row in rows):
        least = min(rows, key=lambda row: row.weights.resident_bytes)
        short = format_bytes(least.weights.resident_bytes - (hardware.memory_bytes or 0))
        return say("limits.too_large", **where, scheme=least.scheme, short=short)
    fitting = [row for row in rows if row.tok_s and row.fits is not False]
    if not fitting:
        return say("limits.unknown", **where)
    speeds = [f"{format_number(row.tok_s[0])} ({row.scheme})" for row in fitting]
    ends = list(dict.fromkeys([speeds[0], speeds[-1]]))
    return say("limits.answer", **where, n_ctx=format_length(DECODE_POSITIONS[0]), speeds=in_words(ends))


def _shown(rows: Sequence[SchemeLimits]) -> list[Figure[SchemeLimits]]:
    """Return the figures to show; those of a break only if a scheme has one."""
    if any(row.line and row.line.breaks for row in rows):
        return [*SCHEME_FIGURES]
    return [figure for figure in SCHEME_FIGURES if figure.key not in ("w_before", "w_break")]


_HARDWARE: Sequence[Figure[Hardware]] = (
    member("memory_bytes", "memory", format_bytes),
    member("memory_source", ""),
    member("bandwidth_bytes_per_s", "bandwidth", lambda value: format_bandwidth(value, binary=True)),
    member("bandwidth_source", ""),
    member("compute_flop_per_s", "compute", format_compute),
    member("compute_source", ""),
)


_COUNTS: Sequence[Figure[Parameters]] = (
    member("total", "parameters", format_params),
    member("active", "active", format_params),
)
_CACHE: Sequence[Figure[KvCache]] = (
    member("type_k", "K"),
    member("type_v", "V"),
    member("bytes_per_token", "KV of a token", format_bytes),
    Figure(
        "window",
        "window",
        lambda kv: kv.breaks[-1] if kv.breaks else None,
        meaning="Positions beyond which some layers read no more: a sliding window, or the budget of sparse attention.",
    ),
    member("state_bytes", "states", format_bytes),
)


def _prefill(rows: Sequence[SchemeLimits]) -> list[Part]:
    """Return the time of prompts, and how to read it; nothing without a rate of computing."""
    drawn = [row for row in rows if row.prefill is not None]
    if not drawn:
        return []
    longest = min(row.prefill.longest for row in drawn if row.prefill)
    lengths = [length for length in _PREFILL_LENGTHS if length <= longest]
    knees = Figure[SchemeLimits]("knees", "knees", lambda row: knees_text(row.prefill), unit="tokens")
    table = Table((SCHEME_FIGURES[0], knees, *map(_prompt_figure, lengths)), drawn, say("limits.prefill"))
    return [table, say("limits.knees", longest=longest)]


def _prompt_figure(n: int) -> Figure[SchemeLimits]:
    def bound(row: SchemeLimits) -> str | None:
        return (
            None
            if row.prefill is None
            else f"{format_number(row.prefill.latency_ms(n), 4)} {row.prefill.bound(n)}"
        )

    return Figure("first_token_ms", format_length(n), bound, unit="ms, bound", priority=4)


def knees_text(curve: PrefillLimit | None) -> str:
    if curve is None:
        return UNKNOWN
    return " and ".join(format_count(knee) for knee in curve.knees()) or "none"


_SCHEME = figures_type(
    "Scheme",
    SCHEME_FIGURES,
    "Limits of one weight and KV type.",
    {
        "weights": str,
        "read_bytes": float,
        "knees": Sequence[int] | None,
    },
)
LIMITS = Document(
    "limits",
    "limits MODEL [QUANT...]",
    "Theoretical limits of a model.",
    figures_type(
        "Limits",
        (),
        "Theoretical limits of a model; null is unknown.",
        {
            "model": str,
            "convention": dict[str, object],
            "machine": Hardware,
            "parameters": figures_type("Counts", _COUNTS, "Counted by role."),
            "kv": figures_type("Kv", _CACHE, "The KV cache."),
            "n_ctx_train": int | None,
            "rows": GenericAlias(list, (_SCHEME,)),
        },
    ),
)


def limits_record(
    counted: CountedModel,
    kv: KvCache,
    hardware: Hardware,
    rows: Sequence[SchemeLimits],
) -> dict[str, object]:
    """Return limits for JSON."""
    return {
        "model": counted.model,
        "convention": {"name": "article", "giga": GIGA, "tera": TERA, "meaning": MEANING},
        "machine": hardware,
        "parameters": figure_values(_COUNTS, count_parameters(counted.file)),
        "kv": figure_values(_CACHE, kv),
        "n_ctx_train": counted.file.n_ctx_train,
        "rows": list(map(_scheme_values, rows)),
    }


def _scheme_values(row: SchemeLimits) -> dict[str, object]:
    curve = row.prefill
    return figure_values(SCHEME_FIGURES, row) | {
        "weights": row.weights.name,
        "read_bytes": row.weights.read_bytes(),
        "knees": curve and curve.knees(),
    }
