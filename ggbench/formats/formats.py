"""Every format by its name, to write and to recognize: a new one is a module and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.formats import perplexity
from ggbench.formats.bench_row import BenchRow
from ggbench.formats.bundle import is_bundle, read_bundle
from ggbench.formats.imported_run import STDIN, ImportedRun, Named, SourceFile, read_source
from ggbench.formats.llama_bench_import import runs_of
from ggbench.formats.llama_bench_text import (
    as_csv,
    as_json,
    as_jsonl,
    as_markdown,
    as_sql,
    is_csv,
    is_objects,
    is_table,
    read_csv,
    read_objects,
    read_table,
)
from ggbench.formats.run_document import is_document, read_documents

LLAMA_BENCH: dict[str, Callable[[Sequence[BenchRow]], str]] = {
    "llama-bench-json": as_json,
    "llama-bench-jsonl": as_jsonl,
    "llama-bench-csv": as_csv,
    "llama-bench-sql": as_sql,
    "llama-bench-md": as_markdown,
}
"""What writes rows of llama-bench, by the format's name."""
SAMPLES = "csv"
"""Every timed step."""
WHOLE = "json"
"""All that the store has of a run, as a bundle holds it."""

_Rows = Callable[[str, str], Iterator[tuple[str, Mapping[str, object]]]]


def _bench(read_rows: _Rows) -> Callable[[SourceFile, Named], list[ImportedRun]]:
    return lambda file, named: runs_of(read_rows(file.text, file.name), file, named)


_READERS: tuple[tuple[Callable[[str], bool], Callable[[SourceFile, Named], list[ImportedRun]]], ...] = (
    (is_document, read_documents),
    (is_objects, _bench(read_objects)),
    (is_csv, _bench(read_csv)),
    (is_table, _bench(read_table)),
    (perplexity.is_perplexity, perplexity.read_runs),
)
"""How to recognize a format by its text, the most specific first, and what reads it."""
_KNOWN = "JSON, JSON lines, CSV and tables of llama-bench, llama-perplexity's output, ggbench's own files"


def read_runs(path: Path, named: Named) -> Iterator[ImportedRun]:
    """Yield the runs of a file of any format that is known. Raises BadFile and UsageError."""
    if path != STDIN and is_bundle(path):
        yield from read_bundle(path)
        return
    file = read_source(path)
    text = file.text
    for recognizes, read in _READERS:
        if recognizes(text):
            yield from read(file, named)
            return
    raise BadFile(f"{file.name} holds no results that ggbench knows", f"it reads {_KNOWN}")
