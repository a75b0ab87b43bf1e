"""Every timed step of stored runs as CSV, a line for each.

There is no Parquet: it takes pyarrow (55 MB), polars (the same with its runtime), duckdb (24 MB) or fastparquet with
pandas, each more than the rest of ggbench together, and any of them makes Parquet of this file in one line, such as
`duckdb -c "COPY (FROM 'samples.csv') TO 'samples.parquet'"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import WARMUP, StoredRun
from ggbench.show.text import csv_text, without_formula

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
