"""Theoretical limits as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ggbench.gguf_file.model_file import ModelFile
from ggbench.show.documents import picked
from ggbench.sizing.theory.hardware import GIGA, MEANING, TERA, Hardware
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.limits import SchemeLimits
from ggbench.sizing.theory.prefill import PrefillCurve
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
        "read_bytes": round(float(weights.read_bytes(row.batch_size))),
        "printed": printed_line(row),
        **picked(row, "w_tokens_per_ms b_ms max_n_ctx fits"),
        "knees": curve and curve.knees(),
        "regimes": curve and _regimes(curve),
        "decode": row.decode,
        "prefill": curve and _prefill(curve),
    }


def _regimes(curve: PrefillCurve) -> list[dict[str, object]]:
    return [
        {"bound": regime.bound.name.lower(), "first_n": regime.first_n, "last_n": regime.last_n}
        for regime in curve.regimes()
    ]


def _prefill(curve: PrefillCurve) -> list[dict[str, object]]:
    """Return the curve at powers of two and at its last length."""
    last = int(curve.n[-1])
    lengths = sorted({1 << power for power in range(int(math.log2(last)) + 1)} | {last})
    return [
        {
            "n_prompt": int(curve.n[at]),
            "read_ms": float(curve.read_ms[at]),
            "compute_ms": float(curve.compute_ms[at]),
            "first_token_ms": float(curve.latency_ms[at]),
            "floor_ms": float(curve.floor_ms[at]),
        }
        for at in np.searchsorted(curve.n, lengths)
    ]


def knees_text(curve: PrefillCurve | None) -> str:
    """Format `113 and 481`; `none` if the bound never changes; an em dash if the hardware figures are unknown."""
    if curve is None:
        return "—"
    return " and ".join(format_count(knee) for knee in curve.knees()) or "none"
