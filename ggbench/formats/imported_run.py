"""A run read from a file, ready for the store, and what every reader needs to make one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ggbench.errors import UsageError
from ggbench.formats.source_file import SourceFile
from ggbench.machine.records import Environment, Imported
from ggbench.runs.recording import kind_of
from ggbench.runs.run import Run
from ggbench.runs.store.runs import SampleChunk
from ggbench.text import in_words

SOURCE = "imported"
"""`Subject.source` of a model that only another tool's file names."""


class Named(msgspec.Struct, frozen=True):
    """What a person says of a file that does not say it."""

    model: str = ""
    quant: str = ""

    def require(self, file: SourceFile, tool: str) -> tuple[str, str]:
        """Return model and quant. Raises UsageError where one is missing."""
        missing = [option for option, text in (("--model", self.model), ("--quant", self.quant)) if not text]
        if missing:
            what = "its model" if "--model" in missing else "its quant"
            raise UsageError(f"{file.name}: the output of {tool} does not name {what}", f"give {in_words(missing)}")
        return self.model, self.quant


class ImportedRun(msgspec.Struct, frozen=True):
    """A run of another tool or another machine."""

    run: Run
    observations: Sequence[tuple[int, str, object]] = ()
    """Nanoseconds since the epoch, kind and record, as the store takes them."""
    chunks: Sequence[SampleChunk] = ()

    @property
    def mark(self) -> Imported:
        """Where it comes from."""
        environment = self.run.head.environment
        assert environment is not None
        assert environment.imported is not None
        return environment.imported


def observed(records: Sequence[object], at_ns: int = 0) -> list[tuple[int, str, object]]:
    """Return records as the store takes them."""
    return [(at_ns, kind_of(type(record)), record) for record in records]


def content_sha256(*parts: object) -> str:
    """Return the hash of JSON values, the same for the same content in whatever file."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace")).hexdigest()


def environment_of(imported: Imported, *, cpu: str = "", commit: str = "", llama_cpp: str = "") -> Environment:
    """Return what a file says of its machine; the rest is unknown."""
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


def utc_text(text: str) -> str:
    """Return a time of day as the store has it, in UTC; empty for what is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="seconds")
