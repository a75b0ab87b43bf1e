"""What a run by input length and batch size says, for every output: its JSON, its names and its one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggbench.experiments.speed.record import BatchLine, SpeedCase, SpeedSettings, result_of
from ggbench.runs.run import Run
from ggbench.show.documents import origin_document, picked
from ggbench.stats.decode_timing import b_ratio, w_ratio


def speed_document(run: Run) -> dict[str, object]:
    """Return the run for JSON: every key is always there, null for unknown."""
    subject, found = run.subject, result_of(run)
    settings = run.head.settings
    return {
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        **picked(subject, "file_bytes n_params bpw weight_bytes kv_bytes_per_token n_ctx_train"),
        **picked(settings if isinstance(settings, SpeedSettings) else None, "inputs n_gen batches within_s"),
        "cases": [case_document(subject.quant, each) for each in found.cases],
        "lines": [_line_document(subject.quant, each) for each in found.lines],
        "serving": found.serving,
        "gpu_use": run.gpu_use,
        **picked(run.memory, "flash_attn swa_cells"),
        **origin_document(run),
    }


def joined_documents(documents: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Join the cases and the lines of several runs in one list each, beside the runs without them."""
    joined: dict[str, object] = {}
    for name in ("cases", "lines"):
        rows: list[object] = []
        for each in documents:
            part = each[name]
            assert isinstance(part, list)
            rows += part
        joined[name] = rows
    rest = [{name: value for name, value in each.items() if name not in joined} for each in documents]
    return joined | {"runs": rest}


def case_document(quant: str, found: SpeedCase) -> dict[str, object]:
    """Return one case for JSON: every key is always there, null for unknown."""
    case, ended, memory = found.case, found.ended, found.ended.memory
    return {
        "quant": quant,
        "n_input": case.n_input,
        "n_batch": case.n_seqs,
        "n_gen": case.n_gen,
        **picked(found, "tok_s_qwen2_5 tok_s_qwen3 decode_tok_s prefill_tok_s ttft_ms"),
        **picked(found.latency, "p50_ms p95_ms p99_ms"),
        **picked(found, "token_ms gain prefill_ms decode_ms seconds"),
        "memory_bytes": memory and memory.total_bytes,
        **picked(memory, "weight_bytes kv_bytes compute_bytes"),
        **picked(ended, "peak_bytes gpu_bytes outcome"),
        "reason": ended.reason or None,
        "expected_s": ended.expected_s,
        "exceeds_training": found.exceeds_training,
        "requests": found.requests,
    }


def _line_document(quant: str, line: BatchLine) -> dict[str, object]:
    ratios = {"w_ratio": w_ratio(line.fit, line.limit), "b_ratio": b_ratio(line.fit, line.limit)}
    return {"quant": quant, "n_batch": line.n_seqs, **picked(line, "fit limit"), **ratios}
