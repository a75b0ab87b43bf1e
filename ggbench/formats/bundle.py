"""Runs with their samples in one ZIP file, to take them to another machine: a list, and a JSON document for each run.

Members are read from the file and never unpacked, so their names lead nowhere; each is read up to a limit, whatever
size the archive claims.

Beside that, every timed step as CSV. There is no Parquet: it takes pyarrow (55 MB), polars (the same with its runtime),
duckdb (24 MB) or fastparquet with pandas, each more than the rest of ggbench together, and any of them makes Parquet of
that file in one line, such as `duckdb -c "COPY (FROM 'samples.csv') TO 'samples.parquet'"`.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ggbench
from ggbench.errors import BadFile
from ggbench.formats.imported_run import MOST_BYTES, ImportedRun, SourceFile
from ggbench.formats.run_document import document_of, parse_finite, read_document
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import WARMUP, StoredRun
from ggbench.show.text import csv_text, without_formula
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

SCHEMA = "ggbench.bundle/1"
LIST = "ggbench.json"
MOST_RUNS = 10_000
MAGIC = b"PK\x03\x04"

_HINT = "give a bundle that `ggbench export --bundle` wrote"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every member, so that the same runs are the same file."""


def bundle_of(store: Store, runs: Sequence[StoredRun], *, with_paths: bool = False) -> bytes:
    """Return the ZIP file of these runs. Raises StoreError and UnknownName."""
    buffer = io.BytesIO()
    names = [f"runs/{number}.json" for number in range(1, len(runs) + 1)]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        listed = {"schema": SCHEMA, "ggbench": ggbench.__version__, "runs": names}
        _write(archive, LIST, listed)
        for name, stored in zip(names, runs, strict=True):
            _write(archive, name, document_of(store, stored, with_paths=with_paths))
    return buffer.getvalue()


def read_bundle(path: Path) -> Iterator[ImportedRun]:
    """Yield the runs of a bundle, one after the other. Raises BadFile, naming the member, for anything else."""
    name = sanitize(path.name)
    try:
        with path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            sha256 = hashlib.file_digest(raw, "sha256").hexdigest() if not raw.seek(0) else ""
            file = SourceFile(name, b"", sha256, path)
            listed = _read(archive, LIST, name)
            if not isinstance(listed, dict) or listed.get("schema") != SCHEMA:
                raise BadFile(f"{name} is not a bundle of this version ({SCHEMA})", _HINT)
            members = listed.get("runs")
            if not isinstance(members, list) or not all(isinstance(each, str) for each in members):
                raise BadFile(f"{name}: {LIST} lists no runs", _HINT)
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
    """Whether a file begins as a ZIP file does. Raises BadFile where it cannot be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise BadFile(f"cannot read {sanitize(str(path))}: {error.strerror}", "look at its permissions") from error


def _write(archive: zipfile.ZipFile, name: str, document: object) -> None:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, json.dumps(document, separators=(",", ":"), ensure_ascii=True))


def _read(archive: zipfile.ZipFile, member: str, where: str) -> Any:  # noqa: ANN401 - JSON
    """The JSON of a member, which is read no further than the limit."""
    try:
        info = archive.getinfo(member)
    except KeyError:
        raise BadFile(f"{where}: the bundle has no {sanitize(member)}", _HINT) from None
    if info.flag_bits & 1 or info.compress_type not in _METHODS:
        raise BadFile(f"{where}: it is encrypted, or compressed in a way that ggbench does not write", _HINT)
    with archive.open(info) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise BadFile(f"{where} holds more than {format_bytes(MOST_BYTES)}", _HINT)
    try:
        return parse_finite(content)
    except (ValueError, RecursionError):
        raise BadFile(f"{where} is not JSON", _HINT) from None


COLUMNS = ("run_id", "kind", "model", "quant", "series", "position", "step_ns", "sample_ns")


def samples_csv(store: Store, runs: Sequence[StoredRun]) -> str:
    """Return the steps of these runs without warm-up; `sample_ns` is empty where the sampler was not timed."""
    return csv_text(COLUMNS, (line for stored in runs for line in _lines(store, stored)))


def _lines(store: Store, stored: StoredRun) -> Iterator[tuple[object, ...]]:
    named = (without_formula(text) for text in (stored.kind, stored.subject.model, stored.subject.quant))
    head = (stored.run_id, *named)
    for chunk in store.load_chunks(stored.run_id):
        if not chunk.series.startswith(WARMUP):
            sampler = chunk.sample_ns or (None,) * len(chunk.step_ns)
            for offset, (step_ns, sample_ns) in enumerate(zip(chunk.step_ns, sampler, strict=True)):
                yield (*head, without_formula(chunk.series), chunk.first_position + offset, step_ns, sample_ns)
