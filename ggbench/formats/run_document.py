"""A whole run as JSON and back: all that the store has of it, under the names of the records.

The document is made from what the store holds, so that a run of a later ggbench passes through unharmed; it is read as
strictly as a stored run, and every text in it is untrusted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

import ggbench
from ggbench.engines.contract import engine_module
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.errors import BadFile, StoreError, UsageError
from ggbench.formats.imported_run import ImportedRun, Named, SourceFile, content_sha256, environment_of
from ggbench.formats.own_documents import read_own
from ggbench.gguf_file.quants import name_without_quant
from ggbench.machine.records import Environment, GpuUse, Imported
from ggbench.models.subject import Subject
from ggbench.runs.experiment import experiment_of
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, SampleChunk, StoredRun, storable_text
from ggbench.show.anonymous import anonymous
from ggbench.text import plain

SCHEMA = "ggbench.run/1"
SEVERAL = "ggbench.runs/1"

_Document = dict[str, Any]
_Record = TypeVar("_Record")

_STARTS = re.compile(r'\s*\{\s*"schema":\s*"ggbench\.')
_LARGEST_NS = (1 << 63) - 1
_LONGEST_NAME = 200


class _Observation(msgspec.Struct):
    at_ns: int
    kind: str
    body: Any


class _Whole(msgspec.Struct, kw_only=True):
    """A run with samples and observations, as a file has it."""

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


def document_of(store: Store, stored: StoredRun, *, with_paths: bool = False) -> _Document:
    """Return a run with samples and observations; without the paths and serial numbers that say who measured it.

    Raises UsageError for one that is still running.
    """
    if stored.state == RUNNING:
        raise UsageError(f"run {stored.run_id} is still running", "export it once it has ended")
    whole = _Whole(
        kind=stored.kind,
        engine=stored.engine,
        command=stored.command,
        started_at=stored.started_at,
        finished_at=stored.finished_at,
        outcome=stored.state,
        reason=stored.reason,
        subject=stored.subject,
        setup=json.loads(stored.setup_json),
        settings=json.loads(stored.settings_json),
        environment=stored.environment,
        memory=stored.memory,
        gpu_use=stored.gpu_use,
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
    """Return the hash of what a run holds, whether its paths were left out, and wherever it was imported."""
    bare = _without_folders(_printable(dict(document)))
    environment = bare.get("environment")
    if isinstance(environment, dict):
        environment = environment | {"imported": None}
        is_blank = not any(environment.get(name) for name in ("ggbench", "cpu", "os", "llama_cpp"))
        bare["environment"] = None if is_blank else environment
    return content_sha256(bare)


def _without_folders(document: _Document) -> _Document:
    """A model that was named by its folder is called by its file, as the folder's own name says nothing elsewhere."""
    bare: _Document = anonymous(document)
    subject = bare["subject"]
    if subject["model"] != document["subject"]["model"]:
        subject["model"] = name_without_quant(subject.get("file") or "") or subject["model"]
    return bare


def as_json(store: Store, runs: Sequence[StoredRun], *, with_paths: bool = False) -> str:
    """Return runs as one document, which a bundle holds too."""
    documents = [document_of(store, stored, with_paths=with_paths) for stored in runs]
    whole = {"schema": SEVERAL, "ggbench": ggbench.__version__, "runs": documents}
    return json.dumps(whole, ensure_ascii=True, separators=(",", ":")) + "\n"


def parse_finite(content: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON. Raises ValueError also for NaN and infinity, which neither the store nor a chart can hold."""

    def finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number

    return json.loads(content, parse_float=finite, parse_constant=finite)


def is_document(text: str) -> bool:
    """Whether it is JSON of ggbench."""
    return _STARTS.match(text) is not None


def read_documents(file: SourceFile, _named: Named) -> list[ImportedRun]:
    """Return the runs of a file. Raises BadFile."""
    try:
        whole = parse_finite(file.text)
    except (ValueError, RecursionError):
        raise BadFile(f"{file.name} is not a complete JSON document", _HINT) from None
    if whole.get("schema") != SEVERAL:
        return read_own(_printable(whole), file)
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
            environment=_marked(whole.environment, fields, file),
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
        raise BadFile(f"{where}: {plain(str(error))}", _HINT) from None
    _check_chunks(whole.samples, where)
    if any(not 0 <= each.at_ns <= _LARGEST_NS or len(each.kind) > _LONGEST_NAME for each in whole.observations):
        raise BadFile(f"{where}: an observation has an invalid time or kind", _HINT)
    return ImportedRun(run, [(each.at_ns, each.kind, each.body) for each in whole.observations], whole.samples)


_HINT = "give a file that `ggbench export` wrote"


def _marked(environment: Environment | None, document: _Document, file: SourceFile) -> Environment:
    """The environment with the mark; a run that was imported where it was exported keeps its first one."""
    if environment is not None and environment.imported is not None:
        return environment
    version = environment.ggbench if environment else ""
    imported = Imported(
        tool=f"ggbench {version}".strip(),
        file=file.name,
        file_sha256=file.sha256,
        content_sha256=document_sha256(document),
    )
    return environment_of(imported) if environment is None else replace(environment, imported=imported)


def _check_chunks(chunks: Sequence[SampleChunk], where: str) -> None:
    seen = set()
    for chunk in chunks:
        name = f"{where}: the samples of {chunk.series!r} at {chunk.first_position}"
        if not 0 < len(chunk.series) <= _LONGEST_NAME or not 0 < chunk.first_position <= _LARGEST_NS:
            raise BadFile(f"{name} have an invalid series or position", _HINT)
        if (chunk.series, chunk.first_position) in seen:
            raise BadFile(f"{name} are there twice", _HINT)
        if chunk.sample_ns and len(chunk.sample_ns) != len(chunk.step_ns):
            raise BadFile(f"{name}: {len(chunk.step_ns)} steps but {len(chunk.sample_ns)} sampler timings", _HINT)
        if any(not 0 <= each <= _LARGEST_NS for each in (*chunk.step_ns, *chunk.sample_ns, chunk.at_ns)):
            raise BadFile(f"{name} have an invalid time", _HINT)
        seen.add((chunk.series, chunk.first_position))


def _printable(value: Any) -> Any:  # noqa: ANN401 - JSON
    """JSON with every text, names included, on one line without control characters."""
    if isinstance(value, str):
        return plain(storable_text(value))
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {plain(storable_text(name)): _printable(each) for name, each in value.items()}
    return value
