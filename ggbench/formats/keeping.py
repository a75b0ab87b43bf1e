"""Imported runs into the store, each once: by the hash of its content, and one of this machine by its own samples."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ggbench.formats.imported_run import ImportedRun
from ggbench.formats.run_document import document_of, document_sha256
from ggbench.machine.records import Imported
from ggbench.models.subject import Subject
from ggbench.runs.run import RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, StoredRun
from ggbench.show.document import Document, Shape, field, many, of

IMPORTED = Document(
    "import",
    "import FILE...",
    "The runs of the files, in their order.",
    field(
        "rows",
        many(
            Shape(
                "ImportedRun",
                "A run of a file, in the store.",
                field("run_id", int),
                field("is_new", bool, "Whether it was not in the store before."),
                of(RunHead, "kind", lambda kept: kept.imported.run.head),
                of(Subject, "model quant", lambda kept: kept.imported.run.subject),
                of(Imported, "tool file file_sha256 content_sha256 lacks", lambda kept: kept.imported.mark),
            )
        ),
    ),
)
"""Of each a `Kept`."""


class Kept(msgspec.Struct, frozen=True):
    """A run of a file, and where it is in the store."""

    imported: ImportedRun
    run_id: int
    is_new: bool
    """Whether it was not there before."""


def keep(store: Store, runs: Sequence[ImportedRun]) -> list[Kept]:
    """Store runs; those that are there already are left as they are. Raises StoreError."""
    stored = store.list_runs()
    there = {
        each.environment.imported.content_sha256: each.run_id
        for each in stored
        if each.environment and each.environment.imported
    }
    kept = []
    for imported in runs:
        sha256 = imported.mark.content_sha256
        run_id = there.get(sha256) or _measured_here(store, stored, imported)
        is_new = run_id is None
        if run_id is None:
            run_id = store.add(imported.run, imported.chunks, imported.observations)
        there[sha256] = run_id
        kept.append(Kept(imported, run_id, is_new))
    return kept


def _measured_here(store: Store, stored: Sequence[StoredRun], imported: ImportedRun) -> int | None:
    """The run of this machine that comes back in a bundle; None where it is another's."""
    head = imported.run.head
    alike = (head.kind, head.started_at, head.subject.quant)
    for each in stored:
        is_alike = (each.kind, each.started_at, each.subject.quant) == alike and each.state != RUNNING
        if is_alike and document_sha256(document_of(store, each)) == imported.mark.content_sha256:
            return each.run_id
    return None
