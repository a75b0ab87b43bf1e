"""Read files of any known format, and store each of their runs once.

Runs are recognized by the hash of their content, this machine's own by their samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.formats.imported_run import ImportedRun, read_source
from ggbench.formats.llama_bench import is_objects, read_objects
from ggbench.formats.llama_bench_import import runs_of
from ggbench.formats.run_document import document_of, document_sha256, is_document, read_documents
from ggbench.machine.records import Imported
from ggbench.record import Record
from ggbench.runs.comparable import copies_of, update_facts
from ggbench.runs.store.database import Store
from ggbench.show.answer import Answer, Table
from ggbench.show.document import rows_document
from ggbench.show.figure import figure_values, figures_type, member
from ggbench.show.words import say
from ggbench.units import counted

_KNOWN = "llama-bench's JSON and JSON lines (-o json), and what `ggbench export --format json` writes"


def read_runs(path: Path) -> Iterator[ImportedRun]:
    """Yield the runs of a file of any known format. Raises BadFile and UsageError."""
    file = read_source(path)
    if is_document(file.text):
        yield from read_documents(file)
    elif is_objects(file.text):
        yield from runs_of(read_objects(file.text, file.name), file)
    else:
        raise BadFile(f"{file.name} contains no results in a known format", f"ggbench reads {_KNOWN}")


class Kept(Record):
    imported: ImportedRun
    run_id: int
    is_new: bool


FIGURES = (
    member("run_id", "run", str),
    member("kind", "kind", path="imported.run.head.kind"),
    member("model", "model", path="imported.run.subject.model"),
    member("quant", "quant", path="imported.run.subject.quant"),
    member("tool", "from", path="imported.mark.tool"),
    member("is_new", "new", meaning="Whether it is new in the store."),
)
IMPORTED = rows_document(
    "import",
    "import FILE...",
    "The runs of the files, in order.",
    figures_type("ImportedRun", FIGURES, "A stored run from a file.", {"imported": Imported}),
)


def imported_rows(kept: Sequence[Kept]) -> dict[str, object]:
    """Return the members of `IMPORTED`."""
    return {"rows": [figure_values(FIGURES, each) | {"imported": each.imported.mark} for each in kept]}


def imported_answer(kept: Sequence[Kept]) -> Answer:
    n_new = sum(each.is_new for each in kept)
    ids = list(map(str, dict.fromkeys(each.run_id for each in kept)))
    command = f"ggbench results show {ids[-1]}"
    if len(ids) > 1 and len({each.imported.run.head.kind for each in kept}) == 1:
        command = f"ggbench compare {' '.join(ids)}"
    key = "import.stored" if n_new == len(kept) else "import.some_there"
    text = say(key, runs=counted(n_new, "run"), n_there=len(kept) - n_new)
    return Answer(text, command, [Table(FIGURES, kept)])


def keep(store: Store, runs: Sequence[ImportedRun]) -> list[Kept]:
    """Store all runs or none; those already stored are left unchanged. Raises StoreError."""
    update_facts(store)  # which may take long, before others have to wait
    there: dict[str, int] = {}
    kept = []
    with store.alone():
        update_facts(store)
        for imported in runs:
            sha256 = imported.mark.content_sha256
            run_id = there.get(sha256) or _stored_as(store, imported)
            is_new = run_id is None
            if run_id is None:
                run_id = store.add(imported.run, imported.chunks, imported.observations)
            there[sha256] = run_id
            kept.append(Kept(imported, run_id, is_new))
    return kept


def _stored_as(store: Store, imported: ImportedRun) -> int | None:
    """Return the run that was imported from the same content, or this machine's own if the file contains it."""
    content = imported.mark.content_sha256
    for each in copies_of(store, imported.run.head, content):
        earlier = None if each.environment is None else each.environment.imported
        is_same = earlier is not None and earlier.content_sha256 == content
        if is_same or document_sha256(document_of(store, each)) == content:
            return each.run_id
    return None
