"""A file to import, and the run read from it, ready for the store."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.machine.records import Environment, Imported
from ggbench.record import Record
from ggbench.runs.recording import kind_of
from ggbench.runs.run import Run
from ggbench.runs.store.runs import SampleChunk
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

SOURCE = "imported"
"""`Subject.source` of a model known only from another tool's file."""


class ImportedRun(Record):
    run: Run
    observations: Sequence[tuple[int, str, object]] = ()
    """Nanoseconds since the epoch, kind and record, as in the store."""
    chunks: Sequence[SampleChunk] = ()

    @property
    def mark(self) -> Imported:
        environment = self.run.environment
        assert environment is not None
        assert environment.imported is not None
        return environment.imported


def observed(records: Sequence[object]) -> list[tuple[int, str, object]]:
    return [(0, kind_of(type(record)), record) for record in records]


def content_sha256(*parts: object) -> str:
    """Return the hash of JSON values, the same for the same content in any file."""
    return hashlib.sha256(
        json.dumps(parts, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace")
    ).hexdigest()


def environment_of(imported: Imported, *, cpu: str = "", commit: str = "", llama_cpp: str = "") -> Environment:
    """Return the machine as described in a file; the rest is unknown."""
    return Environment(
        ggbench="",
        python="",
        llama_cpp_python="",
        llama_cpp=llama_cpp,
        system_info="",
        os="",
        cpu=cpu,
        n_cores=None,
        ram_bytes=None,
        llama_cpp_commit=commit,
        imported=imported,
    )


MOST_BYTES = 64 << 20
"""Maximum size of a results file; a row of llama-bench takes 1,000 bytes, a timed step 20."""
MOST_VALUES = 4 << 20
"""Maximum number of JSON's values, of which a list or an object counts for four: files of as many, of numbers or of
empty lists, take 430 MB while they are read."""
STDIN = Path("-")


class SourceFile(Record):
    name: str
    """The file's name without its folder. Printable."""
    content: bytes
    sha256: str

    @property
    def text(self) -> str:
        return self.content.decode("utf-8-sig", "replace")


def read_source(path: Path) -> SourceFile:
    """Read a file, or standard input for `-`. Raises BadFile for a folder or a missing, too large or empty file."""
    name, shown = sanitize(path.name), sanitize(str(path))
    try:
        if path == STDIN:
            name, content = "standard input", sys.stdin.buffer.read(MOST_BYTES + 1)
        elif not path.is_file():
            raise BadFile(f"{shown} is not a file", "check the path")
        else:
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadFile(f"cannot read {shown}: {error.strerror}", "check its permissions") from error
    if len(content) > MOST_BYTES:
        raise BadFile(
            f"{name} is larger than {format_bytes(MOST_BYTES)}", "split it, or check that it is the right file"
        )
    if content.count(b",") + 4 * (content.count(b"[") + content.count(b"{")) > MOST_VALUES:
        raise BadFile(
            f"{name} has more than {format_count(MOST_VALUES)} values",
            "split it, or check that it is the right file",
        )
    if not content.strip():
        raise BadFile(f"{name} is empty", "pass a file with results; did the tool write them to stderr?")
    return SourceFile(name, content, hashlib.sha256(content).hexdigest())
