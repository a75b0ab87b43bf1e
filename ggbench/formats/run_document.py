"""ggbench's own files: whole runs as JSON, read back, and timed steps as CSV.

A run is written from the store's JSON, so that a newer ggbench's run passes through unharmed, and read as strictly as a
stored run.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

import ggbench
from ggbench.engines.contract import config_type
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.errors import BadFile, StoreError, UsageError
from ggbench.formats.imported_run import ImportedRun, SourceFile, content_sha256, environment_of
from ggbench.formats.llama_bench import MOST_TOKENS, TOOL
from ggbench.formats.llama_bench_import import runs_of
from ggbench.gguf_file.quants import name_without_quant
from ggbench.machine.records import Environment, GpuUse, Imported, ImportedRow
from ggbench.models.subject import Subject
from ggbench.runs.experiment import experiment_of
from ggbench.runs.recording import kind_of
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, WARMUP, SampleChunk, StoredRun, storable_text, utc_text
from ggbench.show.anonymous import anonymous, may_identify
from ggbench.show.text import csv_text, without_formula
from ggbench.text import sanitize

SCHEMA = "ggbench.run/1"
SEVERAL = "ggbench.runs/1"

_Document = dict[str, Any]

_STARTS = re.compile(r'\s*\{\s*"schema":\s*"ggbench\.')
_LARGEST_NS = (1 << 63) - 1
_LONGEST_NAME = 200
_ROW = kind_of(ImportedRow)


class _Observation(msgspec.Struct):
    at_ns: int
    kind: str
    body: Any


class _Whole(msgspec.Struct, kw_only=True):
    kind: str
    engine: str
    command: str
    started_at: str
    finished_at: str | None = None
    outcome: str
    reason: str
    subject: Subject
    setup: Any
    settings: Any
    environment: Environment | None = None
    memory: Memory | None = None
    gpu_use: GpuUse | None = None
    result: Any = None
    samples: list[SampleChunk] = []
    observations: list[_Observation] = []


_COPIED = ("kind", "engine", "command", "started_at", "finished_at", "reason", "subject", "environment", "memory",
           "gpu_use")  # fmt: skip
_encode = json.JSONEncoder(separators=(",", ":")).encode
_MANY = 1000
"""Number of items or lines in one piece of text."""


def document_of(store: Store, stored: StoredRun) -> _Document:
    """Return a run with samples and observations, without paths and serial numbers. Printable."""
    document: _Document = _printable(json.loads("".join(_pieces(store, stored))))
    return document


def _pieces(store: Store, stored: StoredRun) -> Iterator[str]:
    """Yield the JSON of a run: samples and observations, of which a month has millions, as they are read."""
    whole = _Whole(
        **{name: getattr(stored, name) for name in _COPIED},
        outcome=stored.state,
        setup=json.loads(stored.setup_json),
        settings=json.loads(stored.settings_json),
        result=None if stored.result_json is None else json.loads(stored.result_json),
    )
    document = {"schema": SCHEMA, **msgspec.to_builtins(whole)}
    del document["samples"], document["observations"]
    yield _encode(_without_folders(document))[:-1]
    shown = functools.cache(anonymous)
    samples = (
        msgspec.structs.asdict(chunk) | {"series": shown(chunk.series)}
        for chunk in store.load_chunks(stored.run_id)
    )
    yield from _array("samples", samples)
    observations = (
        {"at_ns": each.at_ns, "kind": shown(each.kind), "body": _body(each.body_json)}
        for each in store.load_observations(stored.run_id)
    )
    yield from _array("observations", observations)
    yield "}"


def _body(body_json: str) -> object:
    body = json.loads(body_json)
    return anonymous(body) if may_identify(body_json) else body


def _array(name: str, items: Iterator[object]) -> Iterator[str]:
    """Yield another field of an object, an array, many items at a time."""
    yield f',"{name}":['
    comma = ""
    while some := list(itertools.islice(items, _MANY)):
        yield comma + _encode(some)[1:-1]
        comma = ","
    yield "]"


def document_sha256(document: _Document) -> str:
    """Return the hash of the content of a run, which is printable, independent of paths and of imports."""
    bare = _without_folders(document)
    environment = bare.get("environment")
    if isinstance(environment, dict):
        environment = environment | {"imported": None}
        is_blank = not any(environment.get(name) for name in ("ggbench", "cpu", "os", "llama_cpp"))
        bare["environment"] = None if is_blank else environment
    return content_sha256(bare)


def _without_folders(document: _Document) -> _Document:
    """Leave out folders; a model named by its folder is named by its file instead."""
    bare: _Document = anonymous(document)
    subject = bare["subject"]
    if subject["model"] != document["subject"]["model"]:
        subject["model"] = name_without_quant(subject.get("file") or "") or subject["model"]
    return bare


def as_json(store: Store, runs: Sequence[StoredRun]) -> Iterator[str]:
    """Return a document of runs in pieces, without paths and serial numbers.

    Raises UsageError, before the first piece, for one that is still running.
    """
    for stored in runs:
        if stored.state == RUNNING:
            raise UsageError(f"run {stored.run_id} is still running", "export it when it has finished")
    head = _encode({"schema": SEVERAL, "ggbench": ggbench.__version__})[:-1]
    documents = (_pieces(store, stored) for stored in runs)
    separated = itertools.chain.from_iterable(itertools.chain([","], each) for each in documents)
    return itertools.chain([f'{head},"runs":['], itertools.islice(separated, 1, None), ["]}\n"])


def parse_finite(content: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON. Raises ValueError, also for NaN and infinity, which neither the store nor charts allow."""

    def finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number

    return json.loads(content, parse_float=finite, parse_constant=finite)


def is_document(text: str) -> bool:
    return _STARTS.match(text) is not None


def read_documents(file: SourceFile) -> list[ImportedRun]:
    """Return the runs of a file. Raises BadFile."""
    try:
        whole = parse_finite(file.text)
    except (ValueError, RecursionError):
        raise BadFile(f"{file.name} is not a complete JSON document", _HINT) from None
    if whole.get("schema") != SEVERAL:
        raise BadFile(
            f"{file.name} is {sanitize(str(whole.get('schema')))!r}, not a file of runs",
            "on the machine that measured them: ggbench export RUN... --format json -o FILE",
        )
    runs = whole.get("runs")
    if not isinstance(runs, list):
        raise BadFile(f"{file.name} lists no runs", _HINT)
    return [
        run
        for number, each in enumerate(runs, start=1)
        for run in read_document(each, file, f"{file.name}, run {number}")
    ]


def read_document(document: object, file: SourceFile, where: str) -> list[ImportedRun]:
    """Return the run of a document; what its rows make if it was imported from llama-bench.

    Which run it is follows from its content alone, whatever it says. Raises BadFile, naming `where` and the field, for
    anything else.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadFile(
            f"{where}: this is not a run of this version ({SCHEMA})", "export it again with this version"
        )
    try:
        fields: _Document = _printable(document)
        whole = msgspec.convert(fields, _Whole)
        if rows := _rows_of(whole, where):
            return runs_of(rows, file)
        run = _run_of(whole, _marked(whole.environment, file, document_sha256(fields)))
    except StoreError as error:
        raise BadFile(f"{where}: {error.message}", error.hint) from None
    except (msgspec.ValidationError, ValueError, ArithmeticError, UsageError) as error:
        raise BadFile(f"{where}: {sanitize(str(error))}", _HINT) from None
    _check_times(whole, where)
    _check_chunks(whole.samples, where)
    observed = [(each.at_ns, each.kind, each.body) for each in whole.observations]
    return [ImportedRun(run, observed, whole.samples)]


def _rows_of(whole: _Whole, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of llama-bench that a run was imported from; empty for one that ggbench measured."""
    copied = [msgspec.convert(each.body, ImportedRow) for each in whole.observations if each.kind == _ROW]
    return [(where, each.fields) for each in copied if each.tool == TOOL]


def _check_times(whole: _Whole, where: str) -> None:
    if any(each and not utc_text(each) for each in (whole.started_at, whole.finished_at)):
        raise BadFile(f"{where}: its start or end is no time", _HINT)
    if any(not 0 <= each.at_ns <= _LARGEST_NS or len(each.kind) > _LONGEST_NAME for each in whole.observations):
        raise BadFile(f"{where}: an observation has an invalid time or kind", _HINT)


def _run_of(whole: _Whole, environment: Environment) -> Run:
    experiment = experiment_of(whole.kind)
    return Run(
        head=RunHead(
            kind=whole.kind,
            subject=whole.subject,
            setup=msgspec.convert(whole.setup, config_type(whole.engine)),
            settings=msgspec.convert(whole.settings, experiment.settings_type),
            environment=environment,
            command=whole.command,
            started_at=whole.started_at,
        ),
        outcome=Outcome(whole.outcome),
        reason=whole.reason,
        memory=whole.memory or Memory(),
        gpu_use=whole.gpu_use,
        result=None if whole.result is None else msgspec.convert(whole.result, experiment.result_type),
        finished_at=whole.finished_at,
    )


_HINT = "pass an unmodified file of `ggbench export --format json`"


def _marked(environment: Environment | None, file: SourceFile, sha256: str) -> Environment:
    """Return the environment marked as imported."""
    imported = Imported(
        tool=f"ggbench {environment.ggbench if environment else ''}".strip(),
        file=file.name,
        file_sha256=file.sha256,
        content_sha256=sha256,
    )
    return replace(environment, imported=imported) if environment else environment_of(imported)


def _check_chunks(chunks: Sequence[SampleChunk], where: str) -> None:
    seen, total_ns = set(), 0
    for chunk in chunks:
        place, total_ns = (
            (chunk.series, chunk.first_position),
            total_ns + sum(chunk.step_ns) + sum(chunk.sampler_ns),
        )
        is_valid = (
            0 < len(chunk.series) <= _LONGEST_NAME
            and 0 < chunk.first_position <= MOST_TOKENS - len(chunk.step_ns)
            and place not in seen
            and len(chunk.sampler_ns) in (0, len(chunk.step_ns))
            and min((*chunk.step_ns, *chunk.sampler_ns), default=0) >= 0
            and total_ns <= _LARGEST_NS
            and 0 <= chunk.at_ns <= _LARGEST_NS
        )
        if not is_valid:
            raise BadFile(
                f"{where}: the samples of {chunk.series!r} at {chunk.first_position} are invalid", _HINT
            )
        seen.add(place)
    if chunks and not total_ns:
        raise BadFile(f"{where}: all steps took 0 ns", _HINT)


def _printable(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON with every text, names included, on one line without control characters."""
    if isinstance(value, str):
        return sanitize(storable_text(value))
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {sanitize(storable_text(name)): _printable(each) for name, each in value.items()}
    return value


COLUMNS = ("run_id", "kind", "model", "quant", "series", "position", "step_ns", "sampler_ns")


def samples_csv(store: Store, runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield the steps of these runs without warm-up; `sampler_ns` is empty if the sampler was not timed."""
    lines: Iterator[tuple[object, ...]] = itertools.chain(
        [COLUMNS], *(_lines(store, stored) for stored in runs)
    )
    while some := list(itertools.islice(lines, _MANY)):
        yield csv_text(some[0], some[1:])


def _lines(store: Store, stored: StoredRun) -> Iterator[tuple[object, ...]]:
    named = (without_formula(text) for text in (stored.kind, stored.subject.model, stored.subject.quant))
    head = (stored.run_id, *named)
    for chunk in store.load_chunks(stored.run_id):
        if not chunk.series.startswith(WARMUP):
            sampler = chunk.sampler_ns or (None,) * len(chunk.step_ns)
            for offset, (step_ns, sampler_ns) in enumerate(zip(chunk.step_ns, sampler, strict=True)):
                yield (*head, without_formula(chunk.series), chunk.first_position + offset, step_ns, sampler_ns)
