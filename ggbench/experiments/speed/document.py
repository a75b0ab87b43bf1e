"""What a run by input length and batch size says, for every output: its JSON, its names and its one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.record import BatchLine, SpeedCase, SpeedResult, SpeedSettings
from ggbench.runs.run import Run
from ggbench.show.documents import origin_document, picked
from ggbench.stats.decode_timing import b_ratio, w_ratio
from ggbench.units import format_count, format_length, format_number

DEFINITIONS = (
    "tok/s as Qwen2.5's tables count: generated tokens / (prefill + decode); as Qwen3's: (input + generated) tokens / "
    "(prefill + decode). Of a batch, the tokens of all its sequences."
)
_BEYOND = "beyond the model's training context"


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


def result_of(run: Run) -> SpeedResult:
    """Return what was measured; nothing where the run ended before."""
    return run.result if isinstance(run.result, SpeedResult) else SpeedResult()


def case_note(found: SpeedCase) -> str:
    """Return why a case has no figures, and what to know of those that it has; empty without either."""
    ended = found.ended
    why = "" if ended.outcome is Outcome.COMPLETED else ended.outcome.because(ended.reason)
    if ended.outcome is Outcome.SKIPPED and ended.memory is not None:
        why += "; the memory is planned"
    return "; ".join(filter(None, (why, _BEYOND if found.exceeds_training else "")))


def speed_line(run: Run) -> str:
    """Return `8 of 9 cases, 12.3 tok/s as Qwen2.5 counts at input 2,048, batch 8`, the largest; empty without any."""
    ran = _ran(run)
    if not ran:
        return ""
    last = ran[-1]
    speed = f"{format_number(last.tok_s_qwen2_5)} tok/s as Qwen2.5 counts at {last.case.name}"
    return f"{format_count(len(ran))} of {format_count(_n_cases(run))} cases, {speed}"


def largest_case(run: Run) -> str:
    """Return `12.3 tok/s at 2kx8`, of the case with most tokens that ran; empty without any."""
    ran = _ran(run)
    if not ran:
        return ""
    case = ran[-1].case
    return f"{format_number(ran[-1].tok_s_qwen2_5)} tok/s at {format_length(case.n_input)}x{case.n_seqs}"


def all_cases(runs: Sequence[Run]) -> list[tuple[Run, SpeedCase]]:
    """Return every case of these runs, each with its run."""
    return [(run, each) for run in runs for each in result_of(run).cases]


def _ran(run: Run) -> list[SpeedCase]:
    """The cases that ran to their end, those with fewer tokens first."""
    ran = [each for each in result_of(run).cases if each.tok_s_qwen2_5 is not None]
    return sorted(ran, key=lambda each: each.case.n_tokens)


def _n_cases(run: Run) -> int:
    settings = run.head.settings
    return len(settings.cases) if isinstance(settings, SpeedSettings) else len(result_of(run).cases)


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
