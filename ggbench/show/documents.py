"""JSON for programs: the same names in every command, every key always there, null for unknown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import asdict

from ggbench.engines.contract import EngineConfig
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary

if TYPE_CHECKING:
    from ggbench.show.listed_runs import ListedRun


_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
"""What json leaves as it is; some of it a terminal, a line reader or UTF-8 does not take, or a reader cannot see."""


def document(command: str, /, **content: object) -> str:
    """One JSON document, `schema` first; a number that JSON does not have becomes null.

    `command` names the shape, one for each name: `plan`, `models.repo`.
    """
    whole = {"schema": f"ggbench.{command}/1"} | {name: _strict(value) for name, value in content.items()}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=2)
    return _NOT_ASCII.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


def picked(record: object, names: str) -> dict[str, object]:
    """These fields of a record under their own names; all null where there is no record."""
    return {name: None if record is None else getattr(record, name) for name in names.split()}


def summary_document(summary: QuantSummary) -> dict[str, object]:
    """A measured quant, nested, with the names that every command uses."""
    subject, memory, decode = summary.subject, summary.memory, summary.decode
    return {
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        **picked(subject, "file_bytes n_params bpw weight_bytes"),
        "kv_bytes": memory.kv_bytes,
        "kv_bytes_per_token": subject.kv_bytes_per_token,
        **picked(memory, "compute_bytes other_bytes peak_bytes buffers n_ctx n_batch n_ubatch"),
        **picked(summary, "max_n_ctx max_n_ctx_verified"),
        "max_n_ctx_reason": summary.max_n_ctx_reason or None,
        "n_prompt": decode and decode.n_prompt,
        "n_gen": _n_gen(summary),
        "repeat": summary.repeat,
        "prefill_ms": decode and decode.prefill_ms,
        **picked(summary, "prefills fit"),
        **picked(summary.latency, "p50_ms p95_ms p99_ms tok_s tok_s_ci95 sample_p50_ms"),
        **picked(summary, "expected limit"),
        **picked(decode, "w_ratio b_ratio"),
        "b_w16_ms": summary.b_w16_ms,
        "unsteady": summary.unsteady or None,
        "serving": summary.serving,
        "gpu_use": summary.gpu_use,
        **picked(memory, "flash_attn swa_cells"),
        "outcome": summary.outcome,
        "reason": summary.run.reason or None,
        "config": setup_document(summary.setup),
        "header_sha256": subject.header_sha256 or None,
        "environment": summary.environment,
        "command": summary.run.head.command,
        "run_id": summary.run.run_id,
    }


def run_summary_document(listed: ListedRun) -> dict[str, object]:
    """A stored run as a list has it: when and how it ran, and its figures where they can be read."""
    stored, subject, summary = listed.stored, listed.subject, listed.summary
    decode, context = summary and summary.decode, summary and summary.context
    return {
        **picked(stored, "run_id kind state started_at finished_at"),
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        "n_samples": stored.n_samples,
        "bpw": subject.bpw,
        "n_ctx": summary and summary.memory.n_ctx,
        "max_n_ctx": context and context.max_n_ctx,
        "max_n_ctx_verified": context.verified_by_decode if context and context.max_n_ctx is not None else None,
        "n_gen": summary and _n_gen(summary),
        **picked(decode, "prefill_ms fit"),
        **picked(decode and decode.latency, "tok_s tok_s_ci95"),
        "reason": stored.reason or listed.problem or None,
        "imported": stored.environment and stored.environment.imported,
        "command": stored.command,
    }


def origin_document(run: Run) -> dict[str, object]:
    """Return how a run ended and what reproduces it: the last fields of the documents of its kind."""
    return {
        "outcome": run.outcome,
        "reason": run.reason or None,
        "config": setup_document(run.head.setup),
        "header_sha256": run.subject.header_sha256 or None,
        "environment": run.head.environment,
        "command": run.head.command,
        "run_id": run.run_id,
    }


def setup_document(setup: EngineConfig) -> dict[str, object]:
    """How the model was loaded, by its engine's own names."""
    return asdict(setup) if isinstance(setup, msgspec.Struct) else {}


def _n_gen(summary: QuantSummary) -> int | None:
    """Tokens decoded in one repetition: none where only prompts were read; None where nothing was measured."""
    return summary.n_gen if summary.decode else 0 if summary.prefills else None


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
    if isinstance(value, msgspec.Struct):
        return {name: _strict(getattr(value, name)) for name in value.__struct_fields__}
    raise TypeError(f"{type(value).__name__} has no form in JSON")
