"""ggbench's own files: whole runs as JSON and as bundles, and timed steps as CSV.

A run is written from the store's JSON, so that a newer ggbench's run passes through unharmed, and read as strictly as a
stored run. A bundle is a ZIP file with a list and a document for each run. Its members are never unpacked, so their
names are harmless, and each is read up to a limit, whatever size the archive claims.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import ggbench
from ggbench.engines.contract import engine_module
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.errors import BadFile, StoreError, UsageError
from ggbench.formats.imported_run import MOST_BYTES, ImportedRun, Named, SourceFile, content_sha256, environment_of
from ggbench.gguf_file.quants import name_without_quant
from ggbench.machine.records import Environment, GpuUse, Imported
from ggbench.models.subject import Subject
from ggbench.runs.experiment import experiment_of
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, WARMUP, SampleChunk, StoredRun, storable_text
from ggbench.show.anonymous import anonymous
from ggbench.show.text import csv_text, without_formula
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

SCHEMA = "ggbench.run/1"
SEVERAL = "ggbench.runs/1"

_Document = dict[str, Any]

_STARTS = re.compile(r'\s*\{\s*"schema":\s*"ggbench\.')
_LARGEST_NS = (1 << 63) - 1
_LONGEST_NAME = 200


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


def document_of(store: Store, stored: StoredRun, *, with_paths: bool = False) -> _Document:
    """Return a run with samples and observations; without paths and serial numbers unless `with_paths`.

    Raises UsageError for one that is still running.
    """
    if stored.state == RUNNING:
        raise UsageError(f"run {stored.run_id} is still running", "export it when it has finished")
    whole = _Whole(
        **{name: getattr(stored, name) for name in _COPIED},
        outcome=stored.state,
        setup=json.loads(stored.setup_json),
        settings=json.loads(stored.settings_json),
        result=None if stored.result_json is None else json.loads(stored.result_json),
        samples=list(store.load_chunks(stored.run_id)),
        observations=[
            _Observation(each.at_ns, each.kind, json.loads(each.body_json))
            for each in store.load_observations(stored.run_id)
        ],
    )
    document = {"schema": SCHEMA, **msgspec.to_builtins(whole)}
    return document if with_paths else _without_folders(document)


def document_sha256(document: Mapping[str, Any]) -> str:
    """Return the hash of a run's content, independent of paths and of imports."""
    bare = _without_folders(_printable(dict(document)))
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


def as_json(store: Store, runs: Sequence[StoredRun], *, with_paths: bool = False) -> str:
    documents = [document_of(store, stored, with_paths=with_paths) for stored in runs]
    whole = {"schema": SEVERAL, "ggbench": ggbench.__version__, "runs": documents}
    return json.dumps(whole, ensure_ascii=True, separators=(",", ":")) + "\n"


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


def read_documents(file: SourceFile, _named: Named) -> list[ImportedRun]:
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
    return [read_document(each, file, f"{file.name}, run {number}") for number, each in enumerate(runs, start=1)]


def read_document(document: object, file: SourceFile, where: str) -> ImportedRun:
    """Return the run of a document. Raises BadFile, naming `where` and the field, for anything else."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        hint = "upgrade ggbench to read it" if str(found).startswith("ggbench.run/") else _HINT
        raise BadFile(f"{where}: this is not a run of this version ({SCHEMA})", hint)
    try:
        fields: _Document = _printable(document)
        whole = msgspec.convert(fields, _Whole)
        experiment = experiment_of(whole.kind)
        head = RunHead(
            kind=whole.kind,
            subject=whole.subject,
            setup=msgspec.convert(whole.setup, engine_module(whole.engine).CONFIG),
            settings=msgspec.convert(whole.settings, experiment.settings_type),
            environment=_marked(whole.environment, file, document_sha256(fields)),
            command=whole.command,
            started_at=whole.started_at,
        )
        run = Run(
            head=head,
            outcome=Outcome(whole.outcome),
            reason=whole.reason,
            memory=whole.memory or Memory(),
            gpu_use=whole.gpu_use,
            result=None if whole.result is None else msgspec.convert(whole.result, experiment.result_type),
            finished_at=whole.finished_at,
        )
    except StoreError as error:
        raise BadFile(f"{where}: {error.message}", error.hint) from None
    except (msgspec.ValidationError, ValueError, ArithmeticError, UsageError) as error:
        raise BadFile(f"{where}: {sanitize(str(error))}", _HINT) from None
    _check_chunks(whole.samples, where)
    if any(not 0 <= each.at_ns <= _LARGEST_NS or len(each.kind) > _LONGEST_NAME for each in whole.observations):
        raise BadFile(f"{where}: an observation has an invalid time or kind", _HINT)
    return ImportedRun(run, [(each.at_ns, each.kind, each.body) for each in whole.observations], whole.samples)


_HINT = "pass an unmodified file of `ggbench export`"


def _marked(environment: Environment | None, file: SourceFile, sha256: str) -> Environment:
    """Return the environment marked as imported; a run imported before keeps its first mark."""
    if environment is not None and environment.imported is not None:
        return environment
    imported = Imported(
        tool=f"ggbench {environment.ggbench if environment else ''}".strip(),
        file=file.name,
        file_sha256=file.sha256,
        content_sha256=sha256,
    )
    return replace(environment, imported=imported) if environment else environment_of(imported)


def _check_chunks(chunks: Sequence[SampleChunk], where: str) -> None:
    seen = set()
    for chunk in chunks:
        place, times = (chunk.series, chunk.first_position), (*chunk.step_ns, *chunk.sampler_ns, chunk.at_ns)
        if not 0 < len(chunk.series) <= _LONGEST_NAME or not 0 < chunk.first_position <= _LARGEST_NS:
            problem = " have an invalid series or position"
        elif place in seen:
            problem = " are duplicates"
        elif chunk.sampler_ns and len(chunk.sampler_ns) != len(chunk.step_ns):
            problem = f": {len(chunk.step_ns)} steps but {len(chunk.sampler_ns)} sampler timings"
        elif any(not 0 <= each <= _LARGEST_NS for each in times):
            problem = " have an invalid time"
        else:
            seen.add(place)
            continue
        raise BadFile(f"{where}: the samples of {chunk.series!r} at {chunk.first_position}{problem}", _HINT)


def _printable(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON with every text, names included, on one line without control characters."""
    if isinstance(value, str):
        return sanitize(storable_text(value))
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {sanitize(storable_text(name)): _printable(each) for name, each in value.items()}
    return value


BUNDLE_SCHEMA = "ggbench.bundle/1"
LIST = "ggbench.json"
MOST_RUNS = 10_000
MAGIC = b"PK\x03\x04"

_BUNDLE_HINT = "pass an unmodified bundle of `ggbench export --bundle`"
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every member, so that the same runs give the same file."""


def bundle_of(store: Store, runs: Sequence[StoredRun], *, with_paths: bool = False) -> bytes:
    """Return the ZIP file of these runs. Raises StoreError and UnknownName."""
    buffer = io.BytesIO()
    names = [f"runs/{number}.json" for number in range(1, len(runs) + 1)]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        listed = {"schema": BUNDLE_SCHEMA, "ggbench": ggbench.__version__, "runs": names}
        _write(archive, LIST, listed)
        for name, stored in zip(names, runs, strict=True):
            _write(archive, name, document_of(store, stored, with_paths=with_paths))
    return buffer.getvalue()


def read_bundle(path: Path) -> Iterator[ImportedRun]:
    """Yield the runs of a bundle. Raises BadFile, naming the member, for anything else."""
    name = sanitize(path.name)
    try:
        with path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            sha256 = hashlib.file_digest(raw, "sha256").hexdigest() if not raw.seek(0) else ""
            file = SourceFile(name, b"", sha256, path)
            listed = _read(archive, LIST, name)
            if not isinstance(listed, dict) or listed.get("schema") != BUNDLE_SCHEMA:
                raise BadFile(f"{name} is not a bundle of this version ({BUNDLE_SCHEMA})", _BUNDLE_HINT)
            members = listed.get("runs")
            if not isinstance(members, list) or not all(isinstance(each, str) for each in members):
                raise BadFile(f"{name}: {LIST} lists no runs", _BUNDLE_HINT)
            if len(members) > MOST_RUNS:
                raise BadFile(f"{name} lists {format_count(len(members))} runs", f"at most {format_count(MOST_RUNS)}")
            for member in members:
                where = f"{name}, {sanitize(member)}"
                yield read_document(_read(archive, member, where), file, where)
    except (zipfile.BadZipFile, zlib.error, EOFError, zipfile.LargeZipFile, NotImplementedError) as error:
        raise BadFile(f"{name} is a broken ZIP file: {sanitize(str(error))}", "copy it again") from None
    except OSError as error:
        raise BadFile(f"cannot read {name}: {error.strerror}", "look at its permissions") from error


def is_bundle(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise BadFile(f"cannot read {sanitize(str(path))}: {error.strerror}", "look at its permissions") from error


def _write(archive: zipfile.ZipFile, name: str, document: object) -> None:
    member = zipfile.ZipInfo(name, _ZIP_EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, json.dumps(document, separators=(",", ":"), ensure_ascii=True))


def _read(archive: zipfile.ZipFile, member: str, where: str) -> Any:  # noqa: ANN401 - JSON
    try:
        info = archive.getinfo(member)
    except KeyError:
        raise BadFile(f"{where}: the bundle has no {sanitize(member)}", _BUNDLE_HINT) from None
    if info.flag_bits & 1 or info.compress_type not in _ZIP_METHODS:
        raise BadFile(f"{where}: the ZIP is encrypted or uses an unsupported compression", _BUNDLE_HINT)
    with archive.open(info) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise BadFile(f"{where} has more than {format_bytes(MOST_BYTES)}", _BUNDLE_HINT)
    try:
        return parse_finite(content)
    except (ValueError, RecursionError):
        raise BadFile(f"{where} is not JSON", _BUNDLE_HINT) from None


COLUMNS = ("run_id", "kind", "model", "quant", "series", "position", "step_ns", "sampler_ns")


def samples_csv(store: Store, runs: Sequence[StoredRun]) -> str:
    """Return the steps of these runs without warm-up; `sampler_ns` is empty if the sampler was not timed."""
    return csv_text(COLUMNS, (line for stored in runs for line in _lines(store, stored)))


def _lines(store: Store, stored: StoredRun) -> Iterator[tuple[object, ...]]:
    named = (without_formula(text) for text in (stored.kind, stored.subject.model, stored.subject.quant))
    head = (stored.run_id, *named)
    for chunk in store.load_chunks(stored.run_id):
        if not chunk.series.startswith(WARMUP):
            sampler = chunk.sampler_ns or (None,) * len(chunk.step_ns)
            for offset, (step_ns, sampler_ns) in enumerate(zip(chunk.step_ns, sampler, strict=True)):
                yield (*head, without_formula(chunk.series), chunk.first_position + offset, step_ns, sampler_ns)
