"""JSON for programs: the same names in every command, every key always there, null for unknown."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING

from ggbench.errors import Unsupported
from ggbench.gguf_file.blueprint import count_params
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quants import quant_label
from ggbench.records.setup import Setup
from ggbench.records.summary import QuantSummary

if TYPE_CHECKING:
    from ggbench.catalog.disk import LocalModel
    from ggbench.catalog.models import CatalogModel
    from ggbench.hub.hf_cache import VerifiedFile
    from ggbench.report.listed_runs import ListedRun

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What json leaves as it is, and a terminal, a line reader or UTF-8 does not take."""


def document(command: str, /, **content: object) -> str:
    """One JSON document, `schema` first; a number that JSON does not have becomes null.

    `command` names the shape, one for each name: `plan`, `models.repo`.
    """
    whole = {"schema": f"ggbench.{command}/1"} | {name: _strict(value) for name, value in content.items()}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=2)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def summary_document(summary: QuantSummary) -> dict[str, object]:
    """A measured quant, nested, with the names that every command uses."""
    subject, memory, decode, latency = summary.subject, summary.memory, summary.decode, summary.latency
    return {
        "model": subject.model,
        "quant": subject.quant,
        "file": subject.file,
        "provenance": subject.source,
        "file_bytes": subject.file_bytes,
        "n_params": subject.n_params,
        "bpw": subject.bpw,
        "weight_bytes": subject.weight_bytes,
        "kv_bytes": memory.kv_bytes,
        "kv_bytes_per_token": subject.kv_bytes_per_token,
        "compute_bytes": memory.compute_bytes,
        "other_bytes": memory.other_bytes,
        "peak_bytes": memory.peak_bytes,
        "buffers": [asdict(buffers) for buffers in memory.buffers],
        "n_ctx": memory.n_ctx,
        "n_batch": memory.n_batch,
        "n_ubatch": memory.n_ubatch,
        "max_n_ctx": summary.max_n_ctx,
        "max_n_ctx_verified": summary.max_n_ctx_verified,
        "max_n_ctx_reason": summary.max_n_ctx_reason or None,
        "n_prompt": decode and decode.n_prompt,
        "n_gen": n_gen(summary),
        "prefill_ms": decode and decode.prefill_ms,
        "prefills": [asdict(prefill) for prefill in summary.prefills],
        "fit": None if summary.fit is None else asdict(summary.fit),
        "p50_ms": latency and latency.p50_ms,
        "p95_ms": latency and latency.p95_ms,
        "p99_ms": latency and latency.p99_ms,
        "tok_s": latency and latency.tok_s,
        "sample_p50_ms": latency and latency.sample_p50_ms,
        "limit": None if summary.limit is None else asdict(summary.limit),
        "w_ratio": decode and decode.w_ratio,
        "b_ratio": decode and decode.b_ratio,
        "b_w16_ms": summary.b_w16_ms,
        "unsteady": (decode and decode.unsteady) or None,
        "gpu_use": None if summary.gpu_use is None else asdict(summary.gpu_use),
        "flash_attn": memory.flash_attn,
        "outcome": summary.outcome.value,
        "reason": summary.run.reason or None,
        "config": setup_document(summary.setup),
        "header_sha256": subject.header_sha256 or None,
        "environment": None if summary.environment is None else asdict(summary.environment),
        "command": summary.run.head.command,
        "run_id": summary.run.run_id,
    }


def run_summary_document(listed: ListedRun) -> dict[str, object]:
    """A stored run as a list has it: when and how it ran, and its figures where they can be read."""
    stored, subject, summary = listed.stored, listed.subject, listed.summary
    decode, context = summary and summary.decode, summary and summary.context
    return {
        "run_id": stored.run_id,
        "kind": stored.kind,
        "state": stored.state,
        "started_at": stored.started_at,
        "finished_at": stored.finished_at,
        "model": subject.model,
        "quant": subject.quant,
        "file": subject.file,
        "provenance": subject.source,
        "n_samples": stored.n_samples,
        "bpw": subject.bpw,
        "n_ctx": summary and summary.memory.n_ctx,
        "max_n_ctx": context and context.max_n_ctx,
        "max_n_ctx_verified": context.verified_by_decode if context and context.max_n_ctx is not None else None,
        "n_gen": summary and n_gen(summary),
        "prefill_ms": decode and decode.prefill_ms,
        "fit": asdict(decode.fit) if decode and decode.fit else None,
        "tok_s": decode and decode.latency and decode.latency.tok_s,
        "reason": stored.reason or listed.problem or None,
        "command": stored.command,
    }


def setup_document(setup: Setup) -> dict[str, object]:
    """How the model was loaded, by its engine's own names."""
    return {field.name: getattr(setup, field.name) for field in fields(setup)} if is_dataclass(setup) else {}


def n_gen(summary: QuantSummary) -> int | None:
    """Tokens decoded and timed: none where only prompts were read; None where nothing was measured."""
    return summary.decode.n_gen if summary.decode else 0 if summary.prefills else None


def model_file_document(model_file: ModelFile, *, tensors: bool = False) -> dict[str, object]:
    """What a GGUF's header says; every tensor too where asked for. An array left out of the header is its length."""
    try:
        kv_bytes_per_token, no_kv_reason = model_file.kv_bytes_per_token(), None
    except Unsupported as error:
        kv_bytes_per_token, no_kv_reason = None, error.message
    found: dict[str, object] = {
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
        found["tensors"] = [asdict(tensor) for tensor in model_file.tensors]
    return found


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
    """A cached file compared with the SHA-256 in its name."""
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
