"""JSON for programs: the same names in every command, every key always there, null for unknown."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING

from ggbench.errors import Unsupported
from ggbench.gguf_file.blueprint import count_params
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quants import quant_label

if TYPE_CHECKING:
    from ggbench.catalog.disk import LocalModel
    from ggbench.catalog.models import CatalogModel
    from ggbench.hub.hf_cache import VerifiedFile
    from ggbench.store.runs import RunSummary

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What json leaves as it is, and a terminal, a line reader or UTF-8 does not take."""


def document(command: str, /, **fields: object) -> str:
    """One JSON document, `schema` first; a number that JSON does not have becomes null.

    `command` names the shape, one for each name: `plan`, `models.repo`.
    """
    content = {"schema": f"ggbench.{command}/1"} | {name: _strict(value) for name, value in fields.items()}
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def row_document(row: Row) -> dict[str, object]:
    """A measured row, nested, with the names that every command uses."""
    latency = row.latency
    return {
        "model": row.model,
        "quant": row.quant,
        "file": row.file,
        "provenance": row.provenance,
        "file_bytes": row.file_bytes,
        "n_params": row.n_params,
        "bpw": row.bpw,
        "weight_bytes": row.weight_bytes,
        "kv_bytes": row.kv_bytes,
        "kv_bytes_per_token": row.kv_bytes_per_token,
        "compute_bytes": row.compute_bytes,
        "other_bytes": row.other_bytes,
        "peak_bytes": row.peak_bytes,
        "buffers": [asdict(buffers) for buffers in row.buffers],
        "n_ctx": row.n_ctx,
        "n_batch": row.n_batch,
        "n_ubatch": row.n_ubatch,
        "max_n_ctx": row.max_n_ctx,
        "max_n_ctx_verified": row.max_n_ctx_verified,
        "max_n_ctx_reason": row.max_n_ctx_reason or None,
        "n_prompt": row.n_prompt,
        "n_gen": row.n_gen,
        "prefill_ms": row.prefill_ms,
        "prefills": [asdict(prefill) for prefill in row.prefills],
        "fit": None if row.fit is None else asdict(row.fit),
        "p50_ms": latency and latency.p50_ms,
        "p95_ms": latency and latency.p95_ms,
        "p99_ms": latency and latency.p99_ms,
        "tok_s": latency and latency.tok_s,
        "sample_p50_ms": latency and latency.sample_p50_ms,
        "limit": None if row.limit is None else asdict(row.limit),
        "w_ratio": row.w_ratio,
        "b_ratio": row.b_ratio,
        "b_w16_ms": row.b_w16_ms,
        "unsteady": row.unsteady or None,
        "gpu_use": None if row.gpu_use is None else asdict(row.gpu_use),
        "flash_attn": row.flash_attn,
        "outcome": row.outcome.value,
        "reason": row.reason or None,
        "config": asdict(row.config),
        "header_sha256": row.header_sha256 or None,
        "environment": None if row.environment is None else asdict(row.environment),
        "command": row.command,
        "run_id": row.run_id,
    }


def run_summary_document(run: RunSummary) -> dict[str, object]:
    """A stored run as a list has it: when and how it ran, and its row's figures where it has a row."""
    fit = run.row and run.row.fit
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "state": run.state,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "model": run.model,
        "quant": run.quant,
        "file": run.file,
        "provenance": run.provenance,
        "n_samples": run.n_samples,
        "bpw": run.row and run.row.bpw,
        "n_ctx": run.row and run.row.n_ctx,
        "max_n_ctx": run.row and run.row.max_n_ctx,
        "max_n_ctx_verified": run.row and run.row.max_n_ctx_verified,
        "n_gen": run.row and run.row.n_gen,
        "prefill_ms": run.row and run.row.prefill_ms,
        "fit": None if fit is None else asdict(fit),
        "tok_s": run.row and run.row.latency and run.row.latency.tok_s,
        "reason": (run.row and run.row.reason) or run.row_error or None,
        "command": run.command,
    }


def model_file_document(model_file: ModelFile, *, tensors: bool = False) -> dict[str, object]:
    """What a GGUF's header tells; every tensor too where asked for. An array left out of the header is its length."""
    try:
        kv_bytes_per_token, no_kv_reason = model_file.kv_bytes_per_token(), None
    except Unsupported as error:
        kv_bytes_per_token, no_kv_reason = None, error.message
    fields: dict[str, object] = {
        "model": model_file.name,
        "quant": quant_label(model_file),
        "files": [str(path) for path in model_file.paths],
        "provenance": "twin" if model_file.is_twin else "file",
        "file_bytes": model_file.file_bytes,
        "missing_bytes": model_file.missing_bytes,
        "gguf_version": model_file.version,
        "big_endian": model_file.big_endian,
        "header_sha256": model_file.header_sha256,
        "architecture": model_file.architecture,
        "n_params": model_file.n_params,
        "bpw": model_file.bpw,
        "weight_bytes": model_file.weight_bytes,
        "active_weight_bytes": model_file.active_weight_bytes,
        "kv_bytes_per_token": kv_bytes_per_token,
        "no_kv_reason": no_kv_reason,
        "n_layer": model_file.n_layer,
        "n_embd": model_file.n_embd,
        "n_head": model_file.n_head,
        "n_head_kv": model_file.n_head_kv,
        "head_dim_k": model_file.head_dim_k,
        "head_dim_v": model_file.head_dim_v,
        "n_ff": model_file.n_ff,
        "n_vocab": model_file.n_vocab,
        "n_ctx_train": model_file.n_ctx_train,
        "n_expert": model_file.n_expert,
        "n_expert_used": model_file.n_expert_used,
        "sliding_window": model_file.sliding_window,
        "n_tensors": len(model_file.tensors),
        "tensor_types": dict(Counter(tensor.type_name for tensor in model_file.tensors).most_common()),
        "unknown_types": model_file.unknown_types,
        "metadata": {
            key: {"array_length": int(value)} if isinstance(value, ArrayLength) else value
            for key, value in model_file.metadata.items()
        },
    }
    if tensors:
        fields["tensors"] = [asdict(tensor) for tensor in model_file.tensors]
    return fields


def catalog_document(model: CatalogModel, twins: Sequence[str]) -> dict[str, object]:
    """A model of the catalog; `twins` are the quants whose twins are on this disk."""
    return {**asdict(model), "n_params": count_params(model.hyper), "twins": list(twins)}


def local_model_document(model: LocalModel) -> dict[str, object]:
    """A model on this disk; `words` go after the name of a command that measures, each an argument of its own."""
    return {
        "store": model.store,
        "name": model.name,
        "model": model.model or None,
        "quant": model.quant,
        "words": list(model.arguments),
        "files": [str(path) for path in model.paths],
        "provenance": "twin" if model.is_twin else "file",
        "file_bytes": model.file_bytes,
        "n_missing": model.n_missing,
        "architecture": model.architecture,
        "n_ctx_train": model.n_ctx_train,
        "reason": model.reason or None,
    }


def verified_document(verified: VerifiedFile) -> dict[str, object]:
    """A cached file held against the sha256 in its name."""
    return {
        "file": str(verified.path),
        "sha256_expected": verified.sha256_expected,
        "sha256_found": verified.sha256_found,
        "matches": verified.matches,
    }


def _strict(value: object) -> object:
    """The value as JSON's own types; raises TypeError for one that has no such form."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_strict(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _strict(asdict(value))
    raise TypeError(f"{type(value).__name__} has no form in JSON")
