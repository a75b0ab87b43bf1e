"""Theoretical limits as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ggbench.gguf_file.model_file import ModelFile
from ggbench.show.documents import picked
from ggbench.sizing.theory.hardware import GIGA, MEANING, TERA, Hardware
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.limits import Prefill, SchemeLimits
from ggbench.sizing.theory.weights import Parameters
from ggbench.units import format_count, format_ms


def limits_document(
    file: ModelFile, parameters: Parameters, kv: KvCache, hardware: Hardware, rows: Sequence[SchemeLimits]
) -> dict[str, object]:
    """Return the fields of `ggbench.limits/1`: numbers unrounded, every key present, null for unknown."""
    return {
        "convention": {"name": "article", "giga": GIGA, "tera": TERA, "meaning": MEANING},
        "machine": {
            **picked(hardware, "name memory_bytes"),
            "memory_source": hardware.memory_source or None,
            "bandwidth_bytes_per_s": hardware.bandwidth_bytes_per_s,
            "bandwidth_source": hardware.bandwidth_source or None,
            "compute_flop_per_s": hardware.compute_flop_per_s,
            "compute_source": hardware.compute_source or None,
        },
        "parameters": {
            "layers": parameters.layers + parameters.experts,
            **picked(parameters, "layers_active lm_head active embedding total n_expert n_expert_used"),
        },
        "kv": {
            **picked(kv, "params_per_token bytes_per_token type_k type_v window"),
            "windowed_bytes_per_token": kv.windowed.n_bytes,
            "state_bytes": kv.state_bytes,
            "remark": kv.remark or None,
        },
        "n_ctx_train": file.n_ctx_train,
        "rows": [_row(row) for row in rows],
    }


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


def _row(row: SchemeLimits) -> dict[str, object]:
    weights, curve = row.weights, row.prefill
    return {
        "scheme": row.scheme,
        "weights": weights.name,
        "bpw": weights.bpw,
        "batch_size": row.batch_size,
        "resident_bytes": round(weights.resident_bytes),
        "read_bytes": round(weights.read_bytes(row.batch_size)),
        "printed": printed_line(row),
        **picked(row, "w_tokens_per_ms b_ms max_n_ctx fits"),
        "knees": curve and curve.knees(),
        "regimes": curve and _regimes(curve),
        "decode": row.decode,
        "prefill": curve and _prefill(curve),
    }


def _regimes(curve: Prefill) -> list[dict[str, object]]:
    return [
        {"bound": regime.bound.name.lower(), "first_n": regime.first_n, "last_n": regime.last_n}
        for regime in curve.regimes()
    ]


def _prefill(curve: Prefill) -> list[dict[str, object]]:
    """Return the curve at powers of two and at its last length."""
    lengths = sorted({1 << power for power in range(int(math.log2(curve.longest)) + 1)} | {curve.longest})
    return [
        {
            "n_prompt": n,
            "read_ms": curve.read_ms(n),
            "compute_ms": curve.compute_ms(n),
            "first_token_ms": curve.latency_ms(n),
            "floor_ms": curve.floor_ms(n),
        }
        for n in lengths
    ]


def knees_text(curve: Prefill | None) -> str:
    """Format `113 and 481`; `none` if the bound never changes; an em dash if the hardware figures are unknown."""
    if curve is None:
        return "—"
    return " and ".join(format_count(knee) for knee in curve.knees()) or "none"
