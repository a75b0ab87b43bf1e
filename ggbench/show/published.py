"""What others published: rows and their documents as an answer and JSON.

A value is a number, or the word printed in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ggbench.expect.drafts import AcceptanceRow, acceptance_of_rows
from ggbench.models.published import PublishedDocument, PublishedRow, load_sources
from ggbench.models.published.benches import BenchedRow, BenchSource, load_bench_sources
from ggbench.record import Record
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.document import Document
from ggbench.show.figure import Figure, member
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize, shorten
from ggbench.units import counted, format_number, format_percent


def _metric(rank: int, key: str, header: str, unit: str) -> Figure[PublishedRow]:
    def printed(row: PublishedRow) -> str | None:
        found = row.figures.get(key)
        return None if found is None else sanitize(found.printed)

    return Figure(key, header, printed, unit=unit, priority=rank // 4)


METRIC_FIGURES: Mapping[str, Figure[PublishedRow]] = {
    each[0]: _metric(rank, *each) for rank, each in enumerate((
        ("tok_s", "speed", "tok/s"), ("throughput_tok_s", "throughput", "tok/s"), ("memory_gb", "memory", "GB"),
        ("bpw", "BPW", "bits"), ("prefill_ms", "prefill", "ms"), ("w_tokens_per_ms", "W", "tokens/ms"),
        ("b_ms", "B", "ms"), ("b_w16_ms", "B as w16", "ms"), ("prefill_tok_s", "prompt", "tok/s"),
        ("kld", "KLD", "nats"), ("perplexity", "PPL", ""), ("ppl_ratio", "PPL", "of base"),
        ("same_top_percent", "same top", "%"), ("max_n_ctx", "longest", "tokens"),
    ))
}  # fmt: skip
"""The metrics of tables in order of importance, as printed; `--json` has all."""
_ROWS_IN_A_LIST = 25
_WIDEST_TITLE = 60


_CACHE: Figure[Any] = Figure(
    "type_k", "KV", lambda row: "/".join(dict.fromkeys(filter(None, (row.type_k, row.type_v)))), priority=3
)
_CONDITIONS: Sequence[Figure[PublishedRow]] = (
    Figure("model", "model", lambda row: f"{row.model}-{row.variant.lower()}" if row.variant else row.model),
    member("system", "system", priority=3),
    member("quant", "quant"),
    _CACHE,
    member("imatrix", "imatrix", priority=1),
    member("text", "text", priority=5),
    member("device", "device", priority=4),
    *(member(key, header, priority=priority) for key, header, priority in (
        ("n_ctx", "n_ctx", 5), ("n_gpu", "GPUs", 4), ("n_prompt", "input", 1), ("n_gen", "generated", 5),
        ("batch_size", "batch", 2),
    )),
)  # fmt: skip
_SETTINGS = ("backend", "n_gpu_layers", "flash_attn")
"""Columns that only `--why` shows where all rows have the same."""
_BENCHED: Sequence[Figure[BenchedRow]] = (
    Figure("device", "device", lambda row: row.device if row.count == 1 else f"{row.count} x {row.device}"),
    member("backend", "backend", priority=2),
    member("model", "model"),
    member("quant", "quant"),
    member("n_gpu_layers", "ngl", priority=2),
    member("n_cpu_moe", "CPU MoE", priority=1),
    _CACHE,
    member("flash_attn", "FA", priority=6),
    Figure("test", "test", lambda row: f"{row.test} @ d{row.n_depth}" if row.n_depth else row.test),
    member("tok_s", "speed", lambda value: f"{value:.2f}", unit="tok/s"),
    member("date", "date", priority=4),
    member("source", "source", priority=3),
)


def published_answer(rows: Sequence[PublishedRow], benches: Sequence[BenchedRow]) -> Answer:
    """Return the first rows; `--why` has all, and their sources."""
    if not (rows or benches):
        return Answer(say("published.none"))
    most = _ROWS_IN_A_LIST // (2 if rows and benches else 1)
    figures = (*_CONDITIONS, *METRIC_FIGURES.values())
    documents, places = _cited(rows, benches)
    n_rows, n_sources = len(rows) + len(benches), len(documents) + len(places)
    hidden = n_rows - len(rows[:most]) - len(benches[:most])
    text = say("published.rows", rows=counted(n_rows, "row"), sources=counted(n_sources, "source"))
    more = say("published.more", rows=counted(hidden, "row")) if hidden else ""
    front = benches[:most]
    benched = [each for each in _BENCHED if each.key not in _SETTINGS or len({*map(each.get, front)}) > 1]
    parts: list[Part] = [Table(figures, rows[:most]), Table(benched, front)]
    every = Table((*figures, member("source", "source")), rows)
    why: list[Part] = [
        every,
        Table(_BENCHED, benches),
        Facts(_sources(rows, documents, places)),
        Facts(_remarks(rows)),
    ]
    return Answer(text, "", parts, [more], why)


def _sources(
    rows: Sequence[PublishedRow], documents: Sequence[PublishedDocument], places: Sequence[BenchSource]
) -> list[tuple[str, str]]:
    """Return each document, the tables that the rows are from, and each public place, with remarks."""
    remarks = {each.id: each.table_remarks for each in documents}
    tables = {row.table: remarks[row.source].get(row.table, "") for row in rows}
    return [
        *((each.id, "; ".join((each.title, *each.remarks))) for each in documents),
        *(("", f"{name}: {remark}" if remark else name) for name, remark in tables.items()),
        *((each.id, f"{each.address} {each.remark}".rstrip()) for each in places),
    ]


def _cited(
    rows: Sequence[PublishedRow], benches: Sequence[BenchedRow]
) -> tuple[list[PublishedDocument], list[BenchSource]]:
    """Return the documents and the public tables that the rows are from."""
    cited = {row.source for row in rows} | {row.source for row in benches}
    documents = [each for each in load_sources() if each.id in cited]
    return documents, [each for each in load_bench_sources() if each.id in cited]


def _remarks(rows: Sequence[PublishedRow]) -> list[tuple[str, str]]:
    """Return each distinct setting and remark, with its number of rows."""
    found = Counter(text for row in rows for text in (row.note, row.setting, row.remark) if text)
    return [(counted(count, "row"), text) for text, count in found.items()]


def sources_answer(sources: Sequence[PublishedDocument], benches: Sequence[BenchedRow]) -> Answer:
    """Return the documents with their rows, and llama-bench's as one."""
    n_rows = sum(source.rows for source in sources) + len(benches)
    n_places = len({row.source for row in benches})
    figures: Sequence[Figure[PublishedDocument]] = (
        member("id", "source"),
        member("rows", "rows"),
        Figure("title", "title", lambda source: shorten(source.title, _WIDEST_TITLE), priority=1),
    )
    return Answer(
        say("published.sources", rows=n_rows, documents=len(sources), places=n_places),
        "",
        [Table(figures, sources)],
        [
            say("published.benches", rows=counted(len(benches), "row")),
            say("published.drafts"),
            say("published.select"),
        ],
    )


_KINDS: Sequence[Figure[tuple[str, int, Estimate]]] = (
    Figure("kind", "drafts", lambda kind: kind[0]),
    Figure("rows", "rows", lambda kind: kind[1]),
    Figure(
        "acceptance", "accepted", lambda kind: " to ".join(map(format_percent, (kind[2].low, kind[2].high)))
    ),
    Figure("median", "median", lambda kind: format_percent(kind[2].value)),
)
_ACCEPTANCES: Sequence[Figure[AcceptanceRow]] = (
    *(member(key, header, priority=priority) for key, header, priority in (
        ("kind", "drafts", 0), ("target", "target", 0), ("draft", "draft", 4), ("task", "task", 2), ("n_draft", "k", 0),
    )),
    member("acceptance", "accepted", format_percent),
    member("gain", "gain", format_number, unit="times", priority=1),
    member("device", "on", priority=3),
)  # fmt: skip


def acceptances_answer(rows: Sequence[AcceptanceRow]) -> Answer:
    """Return the acceptances by kind of draft; `--why` has every row."""
    counts = Counter(row.kind for row in rows if row.acceptance is not None)
    kinds = [
        (kind, count, acceptance_of_rows(row for row in rows if row.kind == kind))
        for kind, count in counts.most_common()
    ]
    sources, unknown = dict.fromkeys(row.source for row in rows), len(rows) - counts.total()
    return Answer(
        say("published.rows", rows=counted(len(rows), "row"), sources=counted(len(sources), "source")),
        "",
        [Table(_KINDS, kinds)],
        [say("published.acceptance"), say("published.acceptance_unknown", rows=counted(unknown, "row"))],
        [Table(_ACCEPTANCES, [row for row in rows if row.source == source], source) for source in sources],
    )


class PublishedRows(Record):
    """Published rows and their documents."""

    rows: Sequence[PublishedRow]
    sources: Sequence[PublishedDocument]
    llama_bench_rows: Sequence[BenchedRow]
    llama_bench_sources: Sequence[BenchSource]
    acceptances: Sequence[AcceptanceRow] = ()
    """Acceptances of drafts, with that source."""


PUBLISHED = Document("published", "published", "Published rows and their documents.", PublishedRows)


def published_record(
    rows: Sequence[PublishedRow], benches: Sequence[BenchedRow], acceptances: Sequence[AcceptanceRow] = ()
) -> PublishedRows:
    """Return rows with their sources for JSON."""
    documents, places = _cited(rows, benches)
    return PublishedRows(rows, documents, benches, places, acceptances)
