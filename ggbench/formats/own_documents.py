"""What ggbench's commands print with --json, read back as runs: all figures, but no timed step and no observation.

The documents are made by `ggbench.show`; their field names keep their meaning. A whole run with its samples is
`ggbench.formats.run_document`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.memory import DeviceBuffers, Memory
from ggbench.errors import BadFile, UsageError
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.maxctx.record import ContextResult, ContextSettings, Probe, SearchPlan
from ggbench.experiments.prefill.record import PrefillResult, PrefillSettings
from ggbench.experiments.quality.record import (
    Divergence,
    QualityResult,
    QualitySettings,
    ScoredBase,
    ScoredText,
    TextSource,
)
from ggbench.experiments.speed.record import (
    BatchLine,
    Case,
    CaseEnded,
    CaseMemory,
    SpeedCase,
    SpeedResult,
    SpeedSettings,
)
from ggbench.formats.imported_run import ImportedRun, content_sha256, environment_of
from ggbench.formats.source_file import SourceFile
from ggbench.machine.records import Environment, GpuUse, Imported
from ggbench.models.subject import Subject
from ggbench.runs.run import Result, Run, RunHead, Settings
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit, PrefillSpeed
from ggbench.stats.intervals import Estimate
from ggbench.text import plain

_Row = Mapping[str, Any]
_Value = TypeVar("_Value")
_HINT = "give what ggbench printed with --json, unchanged"
_NO_STEPS = "the timed steps are not in the document, so there is no curve"
_NO_TIME = "the document does not say when it was measured"
_MANY = 10_000


class _Measured(msgspec.Struct, frozen=True):
    """What differs between the kinds of runs."""

    kind: str
    settings: Settings
    result: Result
    lacks: tuple[str, ...] = ()


def read_own(document: _Row, file: SourceFile) -> list[ImportedRun]:
    """Return the runs of a document. Raises BadFile for one of another shape, naming the row and the field."""
    schema = document.get("schema")
    rows = _READERS.get(schema) if isinstance(schema, str) else None
    if rows is None:
        raise BadFile(
            f"{file.name} is {plain(str(schema))!r}, which holds no measured runs",
            "where it was measured: ggbench export RUN --format json -o FILE",
        )
    listed = document.get("rows") if "rows" in document else _joined(document)
    if not isinstance(listed, list) or not listed or len(listed) > _MANY:
        raise BadFile(f"{file.name} has no rows", _HINT)
    return [
        _run(row, rows, file, f"{file.name}, row {number}" if len(listed) > 1 else file.name)
        for number, row in enumerate(listed, start=1)
    ]


def _joined(document: _Row) -> list[object]:
    """The runs of `speed`, whose cases and lines are listed together, each with its own; else the document itself."""
    runs = document.get("runs")
    if not isinstance(runs, list):
        return [document]
    parts = {name: document.get(name) for name in ("cases", "lines")}
    return [{**run, **_of_quant(parts, run.get("quant"))} if isinstance(run, dict) else run for run in runs]


def _of_quant(parts: _Row, quant: object) -> dict[str, object]:
    return {
        name: [each for each in part if isinstance(each, dict) and each.get("quant") == quant]
        for name, part in parts.items()
        if isinstance(part, list)
    }


def _run(row: object, read: Callable[[_Row, str], _Measured], file: SourceFile, where: str) -> ImportedRun:
    if not isinstance(row, dict):
        raise BadFile(f"{where} is no object", _HINT)
    outcome = _value(row, "outcome", str, where)
    if outcome not in set(Outcome):
        raise BadFile(f"{where}: outcome is {plain(outcome)!r}", _HINT)
    if not isinstance(row.get("config"), dict) or "n_gpu_layers" not in row["config"]:
        raise BadFile(
            f"{where} was not measured by llama.cpp in ggbench", "export it whole: ggbench export RUN --format json"
        )
    try:
        measured = read(row, where)
    except UsageError as error:
        raise BadFile(f"{where}: {plain(error.message)}", _HINT) from None
    own = {name: value for name, value in row.items() if name not in ("schema", "run_id", "samples")}
    environment = _value(row, "environment", Environment | None, where)
    imported = Imported(
        tool=f"ggbench {environment.ggbench if environment else ''}".strip(),
        file=file.name,
        file_sha256=file.sha256,
        content_sha256=content_sha256("ggbench --json", measured.kind, own),
        lacks=(*measured.lacks, _NO_TIME),
    )
    run = Run(
        head=RunHead(
            kind=measured.kind,
            subject=_subject(row, where),
            setup=_value(row, "config", LlamaConfig, where),
            settings=measured.settings,
            environment=replace(environment, imported=imported) if environment else environment_of(imported),
            command=_value(row, "command", str, where),
        ),
        outcome=Outcome(outcome),
        reason=_value(row, "reason", str | None, where) or "",
        memory=_memory(row, where),
        gpu_use=_value(row, "gpu_use", GpuUse | None, where),
        result=measured.result,
    )
    return ImportedRun(run)


def _summary(row: _Row, where: str) -> _Measured:
    """A decode, or prompts of several lengths: a row of `bench`."""
    prefills = tuple(_value(row, "prefills", list[PrefillSpeed] | None, where) or ())
    limit = _value(row, "limit", DecodeLimit | None, where)
    n_gen = _value(row, "n_gen", int | None, where) or 0
    if not n_gen:
        lengths = tuple(each.n_prompt for each in prefills)
        repeat = max((each.repeat for each in prefills), default=1)
        return _Measured("prefill", PrefillSettings(lengths, repeat), PrefillResult(prefills, limit))
    n_prompt = _value(row, "n_prompt", int | None, where) or 0
    repeat = _value(row, "repeat", int | None, where) or 1
    result = DecodeResult(
        n_prompt=n_prompt,
        n_gen=n_gen * repeat,
        prefill_ms=_value(row, "prefill_ms", float | None, where),
        fit=_value(row, "fit", LineFit | None, where),
        latency=_latency(row, where),
        limit=limit,
        unsteady=_value(row, "unsteady", str | None, where) or "",
    )
    lacks = [_NO_STEPS]
    if row.get("max_n_ctx") is not None:
        lacks.append("the search for max n_ctx of this row is a run of its own, which was left out")
    return _Measured("decode", DecodeSettings(n_gen, n_prompt, repeat), result, tuple(lacks))


def _latency(row: _Row, where: str) -> LatencySummary | None:
    return None if row.get("tok_s") is None else _convert(row, LatencySummary, where)


def _search(row: _Row, where: str) -> _Measured:
    plan = _convert({"gpu_processes": [], **_known(row)}, SearchPlan, where)
    probes = [
        each | {name: each.get(name) or "" for name in ("reason", "device")} if isinstance(each, dict) else each
        for each in _value(row, "probes", list[Any], where)
    ]
    result = ContextResult(
        plan=plan,
        max_n_ctx=_value(row, "max_n_ctx", int | None, where),
        first_fail_n_ctx=_value(row, "first_fail_n_ctx", int | None, where),
        verified_by_decode=_value(row, "verified_by_decode", bool, where),
        probes=_convert(probes, tuple[Probe, ...], f"{where}: probes"),
        warnings=_value(row, "warnings", tuple[str, ...], where),
    )
    return _Measured("maxctx", ContextSettings(), result)


def _scores(row: _Row, where: str) -> _Measured:
    text_sha256 = _value(row, "text_sha256", str | None, where) or ""
    text = TextSource(_value(row, "text", str | None, where) or "unknown text", text_sha256, None)
    n_ctx, n_chunks = (_value(row, name, int | None, where) for name in ("n_ctx", "n_chunks"))
    settings = QualitySettings(text) if n_ctx is None else QualitySettings(text, n_ctx, n_chunks or None)
    tokens_sha256 = _value(row, "tokens_sha256", str | None, where)
    base = _value(row, "base", _Base | None, where)
    result = QualityResult(
        text=text,
        n_ctx=settings.n_ctx,
        scored=None if tokens_sha256 is None else ScoredText(0, n_chunks or 0, 0, tokens_sha256),
        n_chunks=n_chunks or 0,
        n_scored=_value(row, "n_scored", int | None, where) or 0,
        ppl=_estimate(row, "ppl", "ppl_error", where),
        chunk_nll=_value(row, "chunk_nll", tuple[float, ...] | None, where) or (),
        base=None if base is None else base.scored,
        divergence=_divergence(row, where),
    )
    return _Measured("quality", settings, result, ("the scores of single positions are not in the document",))


class _Base(msgspec.Struct):
    model: str
    quant: str
    file: str | None = None
    header_sha256: str | None = None
    type_k: str = "f16"
    type_v: str = "f16"

    @property
    def scored(self) -> ScoredBase:
        """As a run has it."""
        subject = Subject(
            model=self.model,
            quant=self.quant,
            source="file",
            file=self.file or "",
            header_sha256=self.header_sha256 or "",
        )
        return ScoredBase(subject, self.type_k, self.type_v)


def _divergence(row: _Row, where: str) -> Divergence | None:
    kld = _estimate(row, "kld_mean", "kld_error", where)
    if kld is None:
        return None
    percentiles = _convert(row.get("kld_percentiles") or {}, dict[str, float], f"{where}: kld_percentiles")
    try:
        numbered = {float(percent): value for percent, value in percentiles.items()}
    except ValueError:
        raise BadFile(f"{where}: kld_percentiles has a name that is no number", _HINT) from None
    names = (("same_top", "same_top_error"), ("dp_mean", ""), ("rms_dp", "rms_dp_error"),
             ("ln_ppl_ratio", "ln_ppl_ratio_error"), ("base_ppl", "base_ppl_error"))  # fmt: skip
    rest = [_estimate(row, *pair, where) or Estimate(0.0, 0.0) for pair in names]
    return Divergence(kld, tuple(sorted(numbered.items(), reverse=True)), *rest)


def _estimate(row: _Row, mean: str, error: str, where: str) -> Estimate | None:
    value = _value(row, mean, float | None, where)
    return None if value is None else Estimate(value, (_value(row, error, float | None, where) if error else 0) or 0.0)


def _cases(row: _Row, where: str) -> _Measured:
    cases = tuple(_case(each, where) for each in _value(row, "cases", list[dict[str, Any]], where))
    lines = tuple(_convert(each, _Line, where).line for each in _value(row, "lines", list[dict[str, Any]], where))
    settings = SpeedSettings(
        _value(row, "inputs", tuple[int, ...], where),
        _value(row, "n_gen", int, where),
        _value(row, "batches", tuple[int, ...], where),
        within_s=_value(row, "within_s", float | None, where),
    )
    return _Measured("speed", settings, SpeedResult(cases, lines), (_NO_STEPS,))


class _Line(msgspec.Struct):
    n_batch: int
    fit: LineFit | None
    limit: DecodeLimit | None

    @property
    def line(self) -> BatchLine:
        """As a run has it."""
        return BatchLine(self.n_batch, self.fit, self.limit)


def _case(row: _Row, where: str) -> SpeedCase:
    n_seqs, n_input, n_gen = (_value(row, name, int, where) for name in ("n_batch", "n_input", "n_gen"))
    decode_tok_s, token_ms = (_value(row, name, float | None, where) for name in ("decode_tok_s", "token_ms"))
    latency = None
    if row.get("p50_ms") is not None and token_ms:
        latency = _convert({**row, "tok_s": 1e3 / token_ms, "sample_p50_ms": None}, LatencySummary, where)
    memory = None
    if row.get("weight_bytes") is not None and row.get("kv_bytes") is not None:
        memory = _convert(row, CaseMemory, where)
    prefill_ms = _value(row, "prefill_ms", float | None, where)
    ended = CaseEnded(
        Case(n_seqs, n_input, n_gen),
        Outcome(_value(row, "outcome", str, where)),
        _value(row, "reason", str | None, where) or "",
        expected_s=_value(row, "expected_s", float | None, where),
        prefill_ns=None if prefill_ms is None else round(prefill_ms * 1e6),
        memory=memory,
    )
    floats = ("ttft_ms", "decode_ms", "prefill_tok_s", "tok_s_qwen2_5", "tok_s_qwen3", "gain")
    known = {name: _value(row, name, float | None, where) for name in floats}
    return SpeedCase(
        ended,
        prefill_ms=prefill_ms,
        latency=latency,
        token_ms=token_ms,
        decode_tok_s=decode_tok_s,
        exceeds_training=_value(row, "exceeds_training", bool, where),
        **known,
    )


def _subject(row: _Row, where: str) -> Subject:
    renamed = {**_known(row), "source": _value(row, "provenance", str, where)}
    subject: Subject = _convert(renamed, Subject, where)
    return subject


def _memory(row: _Row, where: str) -> Memory:
    """The weights of a document are those of all tensors."""
    names = ("n_ctx", "n_batch", "n_ubatch", "swa_cells", "peak_bytes", "other_bytes")
    counts = {name: _value(row, name, int | None, where) for name in names}
    return Memory(
        buffers=tuple(_value(row, "buffers", list[DeviceBuffers] | None, where) or ()),
        tensor_bytes=_value(row, "weight_bytes", int | None, where),
        flash_attn=_value(row, "flash_attn", bool | None, where),
        **counts,
    )


def _known(row: _Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _value(row: _Row, name: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - a type or a union of types
    return _convert(row.get(name), kind, f"{where}: {name}")


def _convert(value: object, kind: Any, where: str) -> Any:  # noqa: ANN401 - as above
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError, ArithmeticError, UsageError) as error:
        raise BadFile(f"{where}: {plain(str(error))}", _HINT) from None


_KINDS = {"decode": _summary, "prefill": _summary, "bench": _summary, "demo": _summary, "results.show": _summary,
          "maxctx": _search, "maxctx.all": _search, "results.maxctx": _search,
          "quality": _scores, "quality.all": _scores, "results.quality": _scores,
          "speed": _cases, "results.speed": _cases}  # fmt: skip
_READERS: dict[str, Callable[[_Row, str], _Measured]] = {f"ggbench.{name}/1": read for name, read in _KINDS.items()}
