"""Theoretical limits: the figures of each scheme, the answer with what is behind it, plots and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING

from ggbench.gguf_file.model_file import ModelFile
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
    LimitAt,
    PrefillLimit,
    PromptLimit,
    Regime,
    SchemeLimits,
    decode_latency_ms,
)
from ggbench.sizing.theory.weights import Parameters
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

if TYPE_CHECKING:
    from ggbench.show.charts import LineChart


_PREFILL_LENGTHS = (512, 4096, 32768)


def _at(index: int, n: int) -> Figure[SchemeLimits]:
    return Figure(
        f"limit_tok_s_{n}",
        f"tok/s at {format_length(n)}",
        lambda row: row.decode[index].tok_s if row.decode else None,
        format_number,
        priority=4,
        mark=lambda row: "≤ ",
    )


SCHEME_FIGURES: Sequence[Figure[SchemeLimits]] = (
    member("scheme", "scheme"),
    member("batch_size", "batch"),
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
        meaning="Tokens per sequence, without reserve and compute buffers; 0 if the weights alone do not fit.",
    ),
    member("w_tokens_per_ms", "W", lambda value: format_number(value, 4), unit="tokens/ms"),
    member("b_ms", "B", format_ms, unit="ms"),
    *(_at(*each) for each in enumerate(DECODE_POSITIONS)),
)


def limits_answer(
    model: str, parameters: Parameters, kv: KvCache, hardware: Hardware, rows: Sequence[SchemeLimits]
) -> Answer:
    """Return the highest speed of decoding that the bandwidth allows, with the limits of each scheme."""
    speeds = [f"{format_number(row.decode[0].tok_s)} ({row.scheme})" for row in rows if row.decode]
    ends = dict.fromkeys([*speeds[:1], *speeds[-1:]])
    where = {"model": model, "device": short_device(hardware.name), "n_ctx": format_length(DECODE_POSITIONS[0])}
    facts = [
        *facts_of(_HARDWARE, hardware),
        *facts_of(_COUNTS, parameters),
        *facts_of(_CACHE, kv),
        *((name, say(f"limits.{name}")) for name in ("line", "batch")),
        ("convention", MEANING),
    ]
    lacks = hardware.bandwidth_bytes_per_s is None or hardware.compute_flop_per_s is None
    return Answer(
        say("limits.answer", speeds=in_words(list(ends)), **where) if ends else say("limits.unknown", **where),
        "",
        [Table(_shown(rows), rows)],
        [say("limits.bounds"), say("limits.lacks") if lacks else ""],
        [Facts(facts), *_prefill(rows)],
    )


def _shown(rows: Sequence[SchemeLimits]) -> list[Figure[SchemeLimits]]:
    """Return the figures without the batch size if it is 1."""
    has_batches = any(row.batch_size > 1 for row in rows)
    return [figure for figure in SCHEME_FIGURES if has_batches or figure.key != "batch_size"]


_HARDWARE: Sequence[Figure[Hardware]] = (
    member("memory_bytes", "memory", format_bytes),
    member("memory_source", ""),
    member("bandwidth_bytes_per_s", "bandwidth", lambda value: format_bandwidth(value, binary=True)),
    member("bandwidth_source", ""),
    member("compute_flop_per_s", "compute", format_compute),
    member("compute_source", ""),
)


def _count(key: str, header: str) -> Figure[Parameters]:
    return member(key, header, lambda value: format_params(value, binary=True))


_COUNTS: Sequence[Figure[Parameters]] = (
    _count("total", "parameters"),
    _count("layers", "in layers"),
    _count("experts", "in experts"),
    _count("lm_head", "in lm_head"),
    _count("embedding", "in embedding"),
    _count("active", "active"),
    _count("layers_active", "active in layers"),
    member("n_expert", "experts"),
    member("n_expert_used", "used for a token"),
)
_CACHE: Sequence[Figure[KvCache]] = (
    member("type_k", "K"),
    member("type_v", "V"),
    member("bytes_per_token", "KV of a token", format_bytes),
    member("params_per_token", "numbers of a token"),
    member("window", "window"),
    member("windowed_bytes_per_token", "KV of windows", format_bytes, "windowed.n_bytes"),
    member("state_bytes", "states", format_bytes),
    member("remark", "cache"),
)


def _prefill(rows: Sequence[SchemeLimits]) -> list[Part]:
    """Return the time of prompts, and how to read it; nothing without a rate of computing."""
    drawn = [row for row in rows if row.prefill is not None]
    if not drawn:
        return []
    longest = min(row.prefill.longest for row in drawn if row.prefill)
    lengths = [length for length in _PREFILL_LENGTHS if length <= longest]
    figures = [figure for length in lengths for figure in _prompt_figures(length)]
    knees = Figure[SchemeLimits]("knees", "knees", lambda row: knees_text(row.prefill), unit="tokens")
    table = Table((SCHEME_FIGURES[0], knees, *figures), drawn, say("limits.prefill"))
    return [table, say("limits.knees", longest=longest)]


def _prompt_figures(n: int) -> tuple[Figure[SchemeLimits], Figure[SchemeLimits]]:
    def at(ms: Callable[[PrefillLimit], str]) -> Callable[[SchemeLimits], str | None]:
        return lambda row: None if row.prefill is None else ms(row.prefill)

    def bound(curve: PrefillLimit) -> str:
        return f"{format_number(curve.latency_ms(n), 4)} {curve.bound(n)}"

    once = at(lambda curve: format_number(curve.floor_ms(n), 4))
    return (
        Figure("first_token_ms", format_length(n), at(bound), unit="ms, bound", priority=4),
        Figure("floor_ms", "KV once", once, unit="ms", priority=5),
    )


_AROUND_KNEES = 6
"""The plot starts at the first knee divided by this and ends at the last knee times this."""
_WITHOUT_KNEES = 700
_POINTS = 640


def prefill_figure(rows: Sequence[SchemeLimits]) -> LineChart | None:
    """Return compute time and read time of a prompt for each scheme, knees marked ◆, on logarithmic axes.

    Only rows with the first row's batch size are drawn.
    """
    import numpy as np

    from ggbench.show.charts import Curve, LineChart, Mark

    drawn = [
        (row, row.prefill) for row in rows if row.prefill is not None and row.batch_size == rows[0].batch_size
    ]
    if not drawn:
        return None
    prefill = drawn[0][1]
    knees = [knee for _, each in drawn for knee in each.knees()]
    first = max(1, min(knees, default=1) // _AROUND_KNEES)
    last = min(prefill.longest, max(knees, default=_WITHOUT_KNEES) * _AROUND_KNEES)
    x = np.unique(np.geomspace(first, last, _POINTS).astype(np.int64))

    def curve(name: str, note: str, ms: Callable[[int], float]) -> Curve:
        return Curve(name, x, np.array([ms(int(n)) for n in x]), np.zeros(len(x)), note=note, is_formula=True)

    curves = [curve(f"read {row.scheme}", f"knees ◆ {knees_text(each)}", each.read_ms) for row, each in drawn]
    marks = [
        Mark(knee, each.compute_ms(knee), "◆", index)
        for index, (_, each) in enumerate(drawn)
        for knee in each.knees()
    ]
    curves.append(curve("compute", "", prefill.compute_ms))
    return LineChart(
        "prefill", "first token", "ms", "prompt", "tokens", tuple(curves), marks=tuple(marks), is_log=True
    )


def decode_figure(rows: Sequence[SchemeLimits], hardware: Hardware) -> LineChart | None:
    """Return the latency of one step by position for each scheme; ◆ marks the longest context that fits."""
    import numpy as np

    from ggbench.show.charts import Curve, LineChart, Mark

    drawn = [row for row in rows if row.b_ms is not None and row.batch_size == rows[0].batch_size]
    bandwidth = hardware.bandwidth_bytes_per_s
    if not drawn or bandwidth is None:
        return None
    curves, marks = [], []
    for index, row in enumerate(drawn):
        last = min(DECODE_POSITIONS[-1], row.max_n_ctx or DECODE_POSITIONS[-1])
        x = np.unique(np.linspace(1, max(2, last), _POINTS).astype(np.int64))
        rates = bandwidth, hardware.compute_flop_per_s
        y = np.array([decode_latency_ms(row.weights, row.kv, *rates, int(n), row.batch_size) for n in x])
        note = f"W {format_number(row.w_tokens_per_ms, 4)} tokens/ms, B {format_ms(row.b_ms)} ms"
        if last < DECODE_POSITIONS[-1]:
            marks.append(Mark(float(x[-1]), float(y[-1]), "◆", index))
            note += f", fits {format_count(row.max_n_ctx)} ◆"
        elif row.fits is False:
            note += ", does not fit"
        curves.append(Curve(row.scheme, x, y, np.zeros(len(x)), note=note, is_formula=True))
    titles = "latency of one step", "ms", "position", "tokens"
    return LineChart("decode", *titles, tuple(curves), y_low=0.0, marks=tuple(marks))


def knees_text(curve: PrefillLimit | None) -> str:
    if curve is None:
        return UNKNOWN
    return " and ".join(format_count(knee) for knee in curve.knees()) or "none"


_SCHEME = figures_type(
    "Scheme",
    SCHEME_FIGURES,
    "Limits of one weight and KV type at one batch size.",
    {
        "weights": str,
        "read_bytes": float,
        "knees": Sequence[int] | None,
        "regimes": Sequence[Regime] | None,
        "decode": Sequence[LimitAt],
        "prefill": Sequence[PromptLimit] | None,
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
    model: str,
    file: ModelFile,
    kv: KvCache,
    hardware: Hardware,
    parameters: Parameters,
    rows: Sequence[SchemeLimits],
) -> dict[str, object]:
    """Return limits for JSON."""
    return {
        "model": model,
        "convention": {"name": "article", "giga": GIGA, "tera": TERA, "meaning": MEANING},
        "machine": hardware,
        "parameters": figure_values(_COUNTS, parameters),
        "kv": figure_values(_CACHE, kv),
        "n_ctx_train": file.n_ctx_train,
        "rows": list(map(_scheme_values, rows)),
    }


def _scheme_values(row: SchemeLimits) -> dict[str, object]:
    curve = row.prefill
    return figure_values(SCHEME_FIGURES, row) | {
        "weights": row.weights.name,
        "read_bytes": row.weights.read_bytes(row.batch_size),
        "knees": curve and curve.knees(),
        "regimes": curve and curve.regimes(),
        "decode": row.decode,
        "prefill": curve and curve.prompts(),
    }
