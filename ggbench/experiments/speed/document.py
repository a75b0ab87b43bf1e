"""What a run by input length and batch size says, for every output: its JSON, its names and its one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ggbench.experiments.speed.record import (
    BatchLine,
    Case,
    CaseEnded,
    CaseMemory,
    SpeedCase,
    SpeedResult,
    SpeedSettings,
    result_of,
)
from ggbench.runs.run import Run
from ggbench.show.document import Document, Shape, field, many, of
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import (
    MEASURED_FILE,
    NO_STEPS,
    NUMBER,
    ORIGIN,
    ReadRun,
    RunDocuments,
    memory,
    stored_document,
    subject,
)
from ggbench.stats.decode_timing import LatencySummary, b_ratio, w_ratio


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


def case_values(run: Run) -> list[dict[str, object]]:
    """Return the cases for JSON, in their order."""
    return [CASE.value(each, quant=run.subject.quant) for each in result_of(run).cases]


CASE = Shape(
    "Case",
    "One input length with one batch size.",
    field("quant", str),
    field("n_input", int, "Tokens of each sequence's prompt.", lambda found: found.case.n_input),
    field("n_batch", int, "Sequences that are generated at once.", lambda found: found.case.n_seqs),
    field("n_gen", int, "Tokens generated for each sequence.", lambda found: found.case.n_gen),
    of(SpeedCase, "tok_s_qwen2_5 tok_s_qwen3 decode_tok_s prefill_tok_s ttft_ms"),
    of(LatencySummary, "p50_ms p95_ms p99_ms", lambda found: found.latency, maybe=True),
    of(SpeedCase, "token_ms gain prefill_ms decode_ms seconds"),
    field(
        "memory_bytes",
        int | None,
        "Weights, KV cache and compute buffers together.",
        lambda found: found.ended.memory and found.ended.memory.total_bytes,
    ),
    of(CaseMemory, "weight_bytes kv_bytes compute_bytes", lambda found: found.ended.memory, maybe=True),
    of(CaseEnded, "peak_bytes gpu_bytes outcome reason? expected_s", lambda found: found.ended),
    of(SpeedCase, "exceeds_training requests"),
    AGAINST,
)
"""Of a `SpeedCase`, with its quant."""
_LINE = Shape(
    "Line",
    "Latency against position of one batch size.",
    field("quant", str),
    of(BatchLine, "n_batch=n_seqs fit limit"),
    field(
        "w_ratio",
        NUMBER,
        "Measured W over the limit's; 1.0 is the physical limit.",
        lambda line: w_ratio(line.fit, line.limit),
    ),
    field(
        "b_ratio",
        NUMBER,
        "The limit's B over the measured; 1.0 is the physical limit.",
        lambda line: b_ratio(line.fit, line.limit),
    ),
)
_CASES = field("cases", many(CASE), get=case_values)
_LINES = field(
    "lines",
    many(_LINE),
    get=lambda run: [_LINE.value(each, quant=run.subject.quant) for each in result_of(run).lines],
)
_SPEED = Shape(
    "Speed",
    "Speed by input length and batch size.",
    MEASURED_FILE,
    subject("n_ctx_train"),
    of(SpeedSettings, "inputs n_gen batches within_s", lambda run: run.head.settings, maybe=True),
    _CASES,
    _LINES,
    of(SpeedResult, "serving", result_of),
    of(Run, "gpu_use"),
    memory("flash_attn swa_cells"),
    ORIGIN,
)
_JOINED = Document(
    "speed",
    "speed MODEL [QUANT...]",
    "Speed by input length and batch size, of all runs together.",
    field("model", str),
    _CASES,
    _LINES,
    field(
        "runs",
        many(Shape("Run", "A run without its cases.", _SPEED.without("cases", "lines"))),
        "One for each quant.",
    ),
)


def _read(found: Any) -> ReadRun:  # noqa: ANN401 - an object of the shape
    from ggbench.show.document import record_of

    lines = tuple(record_of(_LINE, each, BatchLine) for each in found.lines or ())
    result = SpeedResult(tuple(map(_read_case, found.cases or ())), lines, found.serving)
    return ReadRun(record_of(_SPEED, found, SpeedSettings), result, (NO_STEPS,))


def _read_case(found: Any) -> SpeedCase:  # noqa: ANN401 - an object of the shape
    from ggbench.show.document import record_of

    latency, sizes = None, None
    if found.p50_ms is not None and found.token_ms:
        latency = record_of(CASE, found, LatencySummary, tok_s=1e3 / found.token_ms, sample_p50_ms=None)
    if None not in (found.weight_bytes, found.kv_bytes, found.compute_bytes):
        sizes = record_of(CASE, found, CaseMemory)
    prefill_ns = None if found.prefill_ms is None else round(found.prefill_ms * 1e6)
    case = Case(found.n_batch, found.n_input, found.n_gen)
    ended = record_of(CASE, found, CaseEnded, case=case, prefill_ns=prefill_ns, memory=sizes)
    return record_of(CASE, found, SpeedCase, ended=ended, latency=latency)


def _rows(whole: Mapping[str, Any]) -> object:
    """The runs of the command's document, each with its own of the cases and lines that it has together."""
    runs, parts = whole.get("runs"), {name: whole.get(name) for name in ("cases", "lines")}
    if not isinstance(runs, list) or not all(isinstance(each, list) for each in parts.values()):
        return [whole]
    return [run | {name: _of_quant(part, run) for name, part in parts.items()} for run in runs if isinstance(run, dict)]


def _of_quant(part: Any, run: Mapping[str, Any]) -> list[object]:  # noqa: ANN401 - JSON
    return [each for each in part if isinstance(each, dict) and each.get("quant") == run.get("quant")]


DOCUMENTS = RunDocuments(shape=_SPEED, one=_JOINED, stored=stored_document("speed", _SPEED), read=_read, rows=_rows)
