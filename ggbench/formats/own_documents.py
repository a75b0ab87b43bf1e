"""What ggbench's commands print with --json, read back as runs: all figures, but no timed step and no observation.

Each kind of run says in the declaration of its documents how it is read back. A whole run with its samples is
`ggbench.formats.run_document`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile, GgbenchError
from ggbench.formats.imported_run import ImportedRun, SourceFile, content_sha256, environment_of
from ggbench.machine.records import Imported
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.show.document_types import read_object, record_of
from ggbench.show.presenter import Presenter, presenters
from ggbench.text import plain

_UNCHANGED_HINT = "give what ggbench printed with --json, unchanged"
_NO_TIME = "the document does not say when it was measured"
_MANY = 10_000


def read_own(document: Mapping[str, Any], file: SourceFile) -> list[ImportedRun]:
    """Return the runs of a document. Raises BadFile for one of another shape, naming the row and the field."""
    schema = document.get("schema")
    readers = [
        each
        for each in presenters()
        if each.documents.read and schema in [f"ggbench.{one.schema}/1" for one in each.documents.all]
    ]
    if not readers:
        raise BadFile(
            f"{file.name} is {plain(str(schema))!r}, which holds no measured runs",
            "where it was measured: ggbench export RUN --format json -o FILE",
        )
    rows = readers[0].documents.rows(document)
    if not isinstance(rows, list) or not rows or len(rows) > _MANY:
        raise BadFile(f"{file.name} has no rows", _UNCHANGED_HINT)
    return [
        _run(row, readers, file, f"{file.name}, row {number}" if len(rows) > 1 else file.name)
        for number, row in enumerate(rows, start=1)
    ]


def _run(row: object, readers: Sequence[Presenter], file: SourceFile, where: str) -> ImportedRun:
    """The run of a row, by the first kind that takes it."""
    if not isinstance(row, dict):
        raise BadFile(f"{where} is no object", _UNCHANGED_HINT)
    if not isinstance(row.get("config"), dict) or "n_gpu_layers" not in row["config"]:
        raise BadFile(
            f"{where} was not measured by llama.cpp in ggbench", "export it whole: ggbench export RUN --format json"
        )
    try:
        for reader in readers:
            found = read_object(reader.documents.shape, row, _config)
            read = reader.documents.read
            measured = None if read is None else read(found)
            if measured is not None:
                break
        else:
            raise BadFile(f"{where} holds no figures", _UNCHANGED_HINT)
        own = {name: value for name, value in row.items() if name not in ("schema", "run_id")}
        imported = Imported(
            tool=f"ggbench {found.environment.ggbench if found.environment else ''}".strip(),
            file=file.name,
            file_sha256=file.sha256,
            content_sha256=content_sha256("ggbench --json", reader.kind, own),
            lacks=(*measured.lacks, _NO_TIME),
        )
        environment = found.environment
        shape = reader.documents.shape
        head = record_of(
            shape,
            found,
            RunHead,
            kind=reader.kind,
            subject=record_of(shape, found, Subject),
            setup=found.config,
            settings=measured.settings,
            environment=replace(environment, imported=imported) if environment else environment_of(imported),
        )
        memory = record_of(shape, found, Memory, tensor_bytes=found.weight_bytes)
        run = record_of(shape, found, Run, head=head, memory=memory, result=measured.result, run_id=None)
        return ImportedRun(run)
    except BadFile:
        raise
    except GgbenchError as error:
        raise BadFile(f"{where}: {plain(error.message)}", _UNCHANGED_HINT) from None
    except (msgspec.ValidationError, TypeError, ValueError, ArithmeticError) as error:
        raise BadFile(f"{where}: {plain(str(error))}", _UNCHANGED_HINT) from None


def _config(_kind: type, value: object) -> EngineConfig:
    return msgspec.convert(value, LlamaConfig)
