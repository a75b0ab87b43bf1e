"""Output of a run by input length and batch size: JSON, names and the summary line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from ggbench.experiments.speed.record import (
    BatchLine,
    Case,
    CaseEnded,
    CaseMemory,
    SpeedCase,
    SpeedResult,
    SpeedSettings,
    case_note,
    result_of,
)
from ggbench.models.published import load_published
from ggbench.models.published.selection import NearRow, nearest_published
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.against import FigureColumn, against_table, device_of, own_speed, printed
from ggbench.show.document import Document, Shape, field, many, of
from ggbench.show.metric import MEMORY, B, Metric, W, estimated
from ggbench.show.names import quant_name
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import (
    MEASURED_FILE,
    NUMBER,
    ORIGIN,
    RunDocuments,
    memory,
    stored_document,
    subject,
)
from ggbench.show.tables import spaced
from ggbench.show.text import b_text, w_text
from ggbench.stats.decode_timing import LatencySummary
from ggbench.text import sanitize
from ggbench.units import format_count, format_gb, format_interval, format_number


def joined_documents(documents: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return three lists: the runs without cases and lines, all cases, and all lines."""
    joined = {name: [row for each in documents for row in each[name]] for name in ("cases", "lines")}
    rest = [{name: value for name, value in each.items() if name not in joined} for each in documents]
    return {**joined, "runs": rest}


def case_value(run: Run, found: SpeedCase, **given: object) -> dict[str, object]:
    """Return a case for JSON."""
    return CASE.value(found, quant=run.subject.quant, **given)


CASE = Shape(
    "Case",
    "One input length with one batch size.",
    field("quant", str),
    of(Case, "n_input n_batch=n_seqs n_gen", lambda found: found.case),
    of(SpeedCase, "tok_s_qwen2_5 tok_s_qwen3 decode_tok_s"),
    field("tok_s_each", NUMBER, "Tokens/s of one of the sequences while all generate.", lambda found: found.tok_s_each),
    of(SpeedCase, "prefill_tok_s ttft_ms"),
    of(LatencySummary, "p50_ms p95_ms p99_ms", lambda found: found.latency, maybe=True),
    of(SpeedCase, "token_ms gain prefill_ms decode_ms seconds"),
    of(
        CaseMemory,
        "memory_bytes=total_bytes weight_bytes kv_bytes compute_bytes",
        lambda found: found.ended.memory,
        maybe=True,
    ),
    of(CaseEnded, "peak_bytes gpu_bytes outcome reason? expected_s", lambda found: found.ended),
    of(SpeedCase, "exceeds_training requests"),
    AGAINST,
)
"""Made from a `SpeedCase`, given its quant."""
_LINE = Shape(
    "Line",
    "Latency against position of one batch size.",
    field("quant", str),
    of(BatchLine, "n_batch=n_seqs fit limit w_ratio b_ratio"),
)
_CASES = field("cases", many(CASE), get=lambda run: [case_value(run, each) for each in result_of(run).cases])
_LINES = field(
    "lines", many(_LINE), get=lambda run: [_LINE.value(each, quant=run.subject.quant) for each in result_of(run).lines]
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
    "Speed by input length and batch size, over all runs.",
    field("model", str),
    _CASES,
    _LINES,
    field(
        "runs", many(Shape("Run", "A run without its cases.", _SPEED.without("cases", "lines"))), "One for each quant."
    ),
)


DOCUMENTS = RunDocuments(shape=_SPEED, one=_JOINED, stored=stored_document("speed", _SPEED))


def speed_metrics(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return the speed of cases that several runs have, and W and B of their batch sizes."""
    found = [each for summary in summaries if (result := summary.result(SpeedResult)) for each in result.cases]
    cases = [each.case for each in found if each.tok_s_qwen2_5 is not None]
    return (
        *(each for case in sorted(set(cases)) if cases.count(case) > 1 for each in _case_metrics(case)),
        *(each for n_seqs in sorted({case.n_seqs for case in cases}) for each in _batch_line(n_seqs)),
        MEMORY,
    )


def _case_metrics(case: Case) -> tuple[Metric, ...]:
    """Return tokens/s of one case, without an interval as its prefill is timed once, and tokens/s of its decode alone,
    of all sequences and of each.
    """

    def found(summary: QuantSummary) -> SpeedCase | None:
        result = summary.result(SpeedResult)
        return next((each for each in result.cases if each.case == case), None) if result else None

    def decode_ends(summary: QuantSummary) -> tuple[float, float | None] | None:
        each = found(summary)
        if each is None or each.latency is None or each.latency.tok_s_ci95 is None:
            return None
        low, high = each.latency.tok_s_ci95
        return low * case.n_seqs, None if high is None else high * case.n_seqs

    def metric(key: str, name: str, member: str) -> Metric:
        def value(summary: QuantSummary) -> float | None:
            return getattr(found(summary), member, None)

        return Metric(
            f"{key}_i{case.n_input}_b{case.n_seqs}",
            name,
            "tok/s",
            text=lambda summary: format_number(value(summary)),
            more_is_better=True,
            value=value,
            topic=name,
            is_timed=True,
            concern="speed",
        )

    decode = metric("decode_tok_s", f"decode after {case.name}", "decode_tok_s")

    def decode_text(summary: QuantSummary) -> str:
        value, (low, high) = decode.value(summary), decode_ends(summary) or (0.0, None)
        return format_interval(value, low, high) if value is not None and high else format_number(value)

    each = [metric("tok_s_each", f"each of {case.n_seqs} after input {case.n_input:,}", "tok_s_each")]
    whole = metric("tok_s", case.name, "tok_s_qwen2_5"), estimated(replace(decode, text=decode_text), decode_ends)
    return *whole, *(each if case.n_seqs > 1 else ())


def _batch_line(n_seqs: int) -> tuple[Metric, ...]:
    """Return W and B of one batch size; for one sequence they equal a decode's."""

    def line(summary: QuantSummary) -> BatchLine | None:
        found = summary.result(SpeedResult)
        return next((each for each in found.lines if each.n_seqs == n_seqs), None) if found else None

    def fit(name: str) -> Callable[[QuantSummary], Any]:
        return lambda summary: getattr(found.fit, name) if (found := line(summary)) and found.fit else None

    more, key = ("", "") if n_seqs == 1 else (f", batch {n_seqs}", f"_b{n_seqs}")
    return tuple(
        estimated(
            replace(
                metric,
                key=f"{metric.key}{key}",
                header=f"{metric.header}{more}",
                topic=f"{metric.topic}{more}",
                value=fit(name),
                text=lambda summary, form=form: form(found.fit if (found := line(summary)) else None),
            ),
            fit(ends),
        )
        for metric, name, ends, form in ((W, "w_tokens_per_ms", "w_ci95", w_text), (B, "b_ms", "b_ci95", b_text))
    )


_NEAREST = 3


def nearest_to_case(run: Run, case: Case) -> tuple[NearRow, ...]:
    """Return comparable published rows of the model, naming every difference; empty if there are none.

    For one sequence these are speeds by input length, for several the throughputs of batches, if any. Rows with the
    case's own input length or batch come first.
    """
    own = own_speed(QuantSummary.of([run]), case.n_input, case.n_gen, case.n_seqs)
    if own is None:
        return ()
    rows = [row for row in load_published() if row.model == own.model and row.batch_size is not None]
    rows = [row for row in rows if row.tok_s is not None or row.throughput_tok_s is not None]
    if case.n_seqs > 1:
        rows = [row for row in rows if row.throughput_tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == case.n_seqs] or rows
    else:
        rows = [row for row in rows if row.tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == 1] or rows
    rows = [row for row in rows if row.n_prompt == case.n_input] or rows
    return nearest_published(rows, own, _NEAREST)


def case_against_tables(runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
    parts: list[RenderableType] = []
    for run in runs:
        found = [(each, near) for each in result_of(run).cases if (near := nearest_to_case(run, each.case))]
        if found:
            parts.append(Text(f"{quant_name(run.subject)} against published rows", style="bold"))
            parts += [_table(run, each, near, width) for each, near in found]
        else:
            parts.append(Text(f"{quant_name(run.subject)}: no published speeds of this model"))
    return spaced(parts)


def _table(run: Run, found: SpeedCase, near: Sequence[NearRow], width: int | None) -> RenderableType:
    case, memory = found.case, found.ended.memory
    own_memory = format_gb(None if memory is None else memory.total_bytes, binary=True)
    columns = (
        FigureColumn("Qwen2.5", "tok/s", format_number(found.tok_s_qwen2_5), printed("tok_s")),
        FigureColumn("throughput", "tok/s", format_number(found.decode_tok_s), printed("throughput_tok_s")),
        FigureColumn("memory", "GiB", own_memory, printed("memory_gb"), 1),
        FigureColumn("input", "tokens", format_count(case.n_input), lambda row: format_count(row.n_prompt), 2),
        FigureColumn("batch", "", format_count(case.n_seqs), lambda row: format_count(row.batch_size), 3),
    )
    device = device_of(QuantSummary.of([run])) or "unknown device"
    note = "; ".join(filter(None, (f"llama.cpp, {device}", case_note(found))))
    return against_table(case.name, sanitize(run.subject.quant), columns, near, note, width=width)
