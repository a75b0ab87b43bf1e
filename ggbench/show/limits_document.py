"""JSON of theoretical limits, and texts of its rows; numbers are unrounded."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from ggbench.gguf_file.model_file import ModelFile
from ggbench.show.document import Document, Shape, field, many, of
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.limits import GIGA, MEANING, TERA, Hardware, PrefillLimit, SchemeLimits
from ggbench.sizing.theory.weights import Parameters, Weights
from ggbench.units import format_count, format_ms


class _Prompt(NamedTuple):
    """A prompt of one length."""

    curve: PrefillLimit
    n: int


def _prompts(row: SchemeLimits) -> list[_Prompt] | None:
    """At powers of two, and at the longest; None where the hardware's figures are unknown."""
    curve = row.prefill
    if curve is None:
        return None
    lengths = sorted({1 << power for power in range(int(math.log2(curve.longest)) + 1)} | {curve.longest})
    return [_Prompt(curve, n) for n in lengths]


def printed_line(row: SchemeLimits) -> str:
    """Format `W 2064, B 13.12 ms, 22072 tokens`, rounded as in the article; a length is truncated, never rounded up."""
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
    "The time that a prompt takes at least.",
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
        "Of the weights, for one step.",
        lambda row: round(row.weights.read_bytes(row.batch_size)),
    ),
    field("printed", str, "W, B and the context, rounded as in the article.", printed_line),
    of(SchemeLimits, "w_tokens_per_ms b_ms max_n_ctx fits"),
    field(
        "knees",
        list[int] | None,
        "Last prompt length before what bounds it changes.",
        lambda row: row.prefill and row.prefill.knees(),
    ),
    field(
        "regimes",
        many(_REGIME) | None,
        "What bounds a prompt, by its length.",
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
        "What the prefixes of the figures mean.",
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
            field("layers", int, "With the experts.", lambda parameters: parameters.layers + parameters.experts),
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
"""Of a `ModelFile`, with the records of its parameters and cache, the hardware, and rows of `SchemeLimits`."""


def knees_text(curve: PrefillLimit | None) -> str:
    """Format `113 and 481`; `none` if the bound never changes; an em dash if the hardware figures are unknown."""
    if curve is None:
        return "—"
    return " and ".join(format_count(knee) for knee in curve.knees()) or "none"
