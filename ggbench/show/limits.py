"""Theoretical limits for the terminal: facts on machine and model, then one row for each scheme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.gguf_file.model_file import ModelFile
from ggbench.show import UNKNOWN
from ggbench.show.document import Document, Shape, field, many, of
from ggbench.show.tables import Cells, Facts, facts_table, fitted_table, left, names, right, spaced
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.limits import (
    DECODE_POSITIONS,
    GIGA,
    MEANING,
    TERA,
    Bound,
    Hardware,
    PrefillLimit,
    SchemeLimits,
    decode_latency_ms,
)
from ggbench.sizing.theory.weights import Parameters, Weights
from ggbench.text import sanitize
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_compute,
    format_count,
    format_ms,
    format_number,
    format_params,
)

if TYPE_CHECKING:
    from ggbench.show.charts import LineChart


_PREFILL_LENGTHS = (512, 4096, 32768)
_BOUND_NAMES = {Bound.WEIGHTS: "weights", Bound.COMPUTE: "compute", Bound.KV: "KV"}


def limits_report(
    model: str,
    parameters: Parameters,
    kv: KvCache,
    hardware: Hardware,
    rows: Sequence[SchemeLimits],
    *,
    width: int,
) -> RenderableType:
    parts: list[RenderableType] = [
        facts_table(f"{model} on {hardware.name}", _facts(parameters, kv, hardware)),
        Group(_decode_table(rows, width), Text(_decode_notes(rows), style="dim")),
    ]
    if curves := [
        row.prefill for row in rows if row.prefill
    ]:  # all or none, as the machine has one compute rate
        longest = min(curve.longest for curve in curves)
        notes = (
            "knee: prompt length at which the bound changes between reads and compute, searched up to "
            f"{format_count(longest)}\n"
            "each token of the prompt reads all KV before it; lm_head is computed only for the last token\n"
            "KV once: the KV cache is read once for the prompt, as flash attention does"
        )
        if "without tensor cores" in hardware.compute_source:
            notes += "\nnone of these times is a lower bound: tensor cores compute faster than the compute rate above"
        parts.append(Group(_prefill_table(rows, curves, longest, width), Text(notes, style="dim")))
    return spaced(parts)


def _facts(parameters: Parameters, kv: KvCache, hardware: Hardware) -> Facts:
    known = {
        "memory": (format_bytes(hardware.memory_bytes), hardware.memory_source),
        "bandwidth": (format_bandwidth(hardware.bandwidth_bytes_per_s, binary=True), hardware.bandwidth_source),
        "compute": (format_compute(hardware.compute_flop_per_s), hardware.compute_source),
    }
    return [
        ("convention", MEANING),
        *(
            (name, "not known" if text == UNKNOWN else f"{text} ({source})")
            for name, (text, source) in known.items()
        ),
        ("parameters", _parameters(parameters)),
        ("KV cache", _cache(kv)),
    ]


def _parameters(parameters: Parameters) -> str:
    def text(count: int) -> str:
        return format_params(count, binary=True)

    layers = parameters.layers + parameters.experts
    active = f"{text(parameters.active)} active"
    if parameters.n_expert:
        active += f" with {parameters.n_expert_used} of {parameters.n_expert} experts"
    embedding = (
        f"embedding {text(parameters.embedding)}" if parameters.embedding else "embedding tied to lm_head"
    )
    return f"{text(parameters.total)}: layers {text(layers)}, lm_head {text(parameters.lm_head)}, {embedding}; {active}"


def _cache(kv: KvCache) -> str:
    types = kv.type_k if kv.type_k == kv.type_v else f"K {kv.type_k}, V {kv.type_v}"
    parts = [f"{format_bytes(kv.bytes_per_token)} per token in {types}"]
    if kv.window:
        parts.append(
            f"of which {format_bytes(kv.windowed.n_bytes)} only for the last {format_count(kv.window)} positions"
        )
    if kv.state_bytes:
        parts.append(f"recurrent states of {format_bytes(kv.state_bytes)} at every length")
    if kv.remark:
        parts.append(sanitize(kv.remark))
    return "; ".join(parts)


def _table(title: str, cells: list[Cells], rows: Sequence[SchemeLimits], width: int) -> Table:
    if any(row.batch_size > 1 for row in rows):
        cells.insert(0, right("batch", (format_count(row.batch_size) for row in rows)))
    schemes = names("scheme", (row.scheme for row in rows))
    return fitted_table([schemes, *cells], title=title, width=width)


def _decode_table(rows: Sequence[SchemeLimits], width: int) -> Table:
    cells = [
        right("BPW", (format_number(row.weights.bpw) for row in rows), priority=5),
        right("weights", (format_bytes(row.weights.resident_bytes) for row in rows), priority=3),
        right("fits", map(_length_text, rows), "tokens"),
        right("W", (format_number(row.w_tokens_per_ms, 4) for row in rows), "tokens/ms"),
        right("B", (format_ms(row.b_ms) for row in rows), "ms"),
    ]
    cells += [
        right(f"at {points[0].n // 1024}k", (format_number(each.tok_s) for each in points), "tok/s", 4)
        for points in zip(*(row.decode for row in rows), strict=True)
    ]
    return _table("Memory and decode", [each for each in cells if not each.is_empty], rows, width)


def _length_text(row: SchemeLimits) -> str:
    if row.max_n_ctx:
        return format_count(row.max_n_ctx)
    return "oom" if row.fits is False else UNKNOWN


def _decode_notes(rows: Sequence[SchemeLimits]) -> str:
    lines = [
        "weights: without the embedding table",
        "fits: an upper bound, without reserve, compute buffers and training context: ggbench plan counts them",
    ]
    if rows[0].decode:
        lines.append(
            "latency(n) = (n - 1) / W + B: the lower bound at this memory bandwidth, whether or not n fits"
        )
    if any(row.batch_size > 1 for row in rows):
        lines.append(
            "batch: W and B are of one step of all sequences, tok/s is their total, tokens are per sequence"
        )
    return "\n".join(lines)


def _prefill_table(
    rows: Sequence[SchemeLimits], curves: Sequence[PrefillLimit], longest: int, width: int
) -> Table:
    cells = [right("knees", (knees_text(row.prefill) for row in rows), "tokens")]
    for length in (length for length in _PREFILL_LENGTHS if length <= longest):
        times = [format_number(curve.latency_ms(length), 4) for curve in curves]
        digits = max(map(len, times))
        bounds = (_BOUND_NAMES[curve.bound(length)] for curve in curves)
        texts = (f"{time:>{digits}} {bound}" for time, bound in zip(times, bounds, strict=True))
        cells.append(left(f"at {format_count(length)}", texts, "ms, bound by", 4))
        floors = (format_number(curve.floor_ms(length), 4) for curve in curves)
        cells.append(right(f"KV once {format_count(length)}", floors, "ms", 5))
    return _table("Prefill", cells, rows, width)


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


class _Prompt(NamedTuple):
    """A prompt of one length."""

    curve: PrefillLimit
    n: int


def _prompts(row: SchemeLimits) -> list[_Prompt] | None:
    curve = row.prefill
    if curve is None:
        return None
    lengths = sorted({1 << power for power in range(int(math.log2(curve.longest)) + 1)} | {curve.longest})
    return [_Prompt(curve, n) for n in lengths]


def printed_line(row: SchemeLimits) -> str:
    """Return `W 2064, B 13.12 ms, 22072 tokens`, rounded as in the article; a length is truncated."""
    parts = []
    if row.w_tokens_per_ms is not None:
        parts.append(f"W {row.w_tokens_per_ms:.0f}")
    if row.b_ms is not None:
        parts.append(f"B {format_ms(row.b_ms)} ms")
    if row.fits is not None:
        parts.append(f"{row.max_n_ctx} tokens" if row.max_n_ctx else "oom")
    return ", ".join(parts)


_REGIME = Shape(
    "Regime",
    "",
    field("bound", Literal["weights", "compute", "kv"], get=lambda regime: regime.bound.name.lower()),
    field("first_n", int),
    field("last_n", int),
)
_PROMPT = Shape(
    "Prompt",
    "Lower bound of the time of a prompt.",
    field("n_prompt", int, get=lambda prompt: prompt.n),
    field("read_ms", float, get=lambda prompt: prompt.curve.read_ms(prompt.n)),
    field("compute_ms", float, get=lambda prompt: prompt.curve.compute_ms(prompt.n)),
    field("first_token_ms", float, get=lambda prompt: prompt.curve.latency_ms(prompt.n)),
    field("floor_ms", float, get=lambda prompt: prompt.curve.floor_ms(prompt.n)),
)
_SCHEME = Shape(
    "Scheme",
    "Limits of one weight and KV type at one batch size.",
    of(SchemeLimits, "scheme"),
    of(Weights, "weights=name bpw", lambda row: row.weights),
    of(SchemeLimits, "batch_size"),
    field("resident_bytes", int, get=lambda row: round(row.weights.resident_bytes)),
    field(
        "read_bytes",
        int,
        "For the weights, in one step.",
        lambda row: round(row.weights.read_bytes(row.batch_size)),
    ),
    field("printed", str, "W, B and the context, rounded as in the article.", printed_line),
    of(SchemeLimits, "w_tokens_per_ms b_ms max_n_ctx fits"),
    field(
        "knees",
        list[int] | None,
        "Last prompt length before the bound changes.",
        lambda row: row.prefill and row.prefill.knees(),
    ),
    field(
        "regimes",
        many(_REGIME) | None,
        "The bound on a prompt, by its length.",
        lambda row: row.prefill and row.prefill.regimes(),
    ),
    of(SchemeLimits, "decode"),
    field("prefill", many(_PROMPT) | None, "At powers of two, and at the longest.", _prompts),
)
LIMITS = Document(
    "limits",
    "limits MODEL [QUANT...]",
    "Theoretical limits of a model.",
    field("model", str),
    field(
        "convention",
        dict[str, object],
        "Meaning of the unit prefixes.",
        lambda _: {"name": "article", "giga": GIGA, "tera": TERA, "meaning": MEANING},
    ),
    field(
        "machine",
        Shape(
            "Hardware",
            "",
            of(Hardware, "name memory_bytes memory_source? bandwidth_bytes_per_s bandwidth_source?"),
            of(Hardware, "compute_flop_per_s compute_source?"),
        ),
    ),
    field(
        "parameters",
        Shape(
            "Parameters",
            "Counted by role.",
            field(
                "layers", int, "With the experts.", lambda parameters: parameters.layers + parameters.experts
            ),
            of(Parameters, "layers_active lm_head active embedding total n_expert n_expert_used"),
        ),
    ),
    field(
        "kv",
        Shape(
            "Kv",
            "The KV cache.",
            of(KvCache, "params_per_token bytes_per_token type_k type_v window"),
            field("windowed_bytes_per_token", int, get=lambda kv: kv.windowed.n_bytes),
            of(KvCache, "state_bytes remark?"),
        ),
    ),
    of(ModelFile, "n_ctx_train"),
    field("rows", many(_SCHEME)),
)


def knees_text(curve: PrefillLimit | None) -> str:
    if curve is None:
        return "—"
    return " and ".join(format_count(knee) for knee in curve.knees()) or "none"
