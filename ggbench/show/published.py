"""What others published: rows and their documents as an answer, JSON and CSV.

A value is a number, or the word printed in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.errors import UnknownName
from ggbench.expect.drafts import AcceptanceRow, acceptance_of_rows
from ggbench.models.published import (
    METRICS,
    WITH_ERRORS,
    PublishedDocument,
    PublishedFigure,
    PublishedRow,
    load_sources,
    table_of,
    versions_of,
)
from ggbench.models.published.benches import FIELDS, BenchedRow, BenchSource, load_bench_sources
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.document import Document
from ggbench.show.figure import Figure, Row, member
from ggbench.show.text import csv_text
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize, shorten
from ggbench.units import counted, format_percent

METRIC_FIGURES: Mapping[str, Figure[PublishedRow]] = {
    key: member(key, header, sanitize, f"{key}.printed", unit=unit) for key, header, unit in (
        ("tok_s", "speed", "tok/s"), ("latency_s", "latency", "s"), ("throughput_tok_s", "throughput", "tok/s"),
        ("requests_s", "requests", "1/s"), ("latency_improvement", "latency", "better by"),
        ("throughput_improvement", "throughput", "better by"), ("memory_gb", "memory", "GB"),
        ("bpw", "BPW", "bits"), ("prefill_ms", "prefill", "ms"), ("w_tokens_per_ms", "W", "tokens/ms"),
        ("w_percent", "W", "% of theory"), ("b_ms", "B", "ms"), ("b_w16_ms", "B as w16", "ms"),
        ("b_percent", "B", "% of theory"), ("prefill_tok_s", "prompt", "tok/s"), ("perplexity", "PPL", ""),
        ("ppl_ratio", "PPL", "of base"), ("ppl_difference", "PPL", "- base"), ("kld", "KLD", "nats"),
        ("mean_dp_percent", "mean Δp", "%"), ("rms_dp_percent", "RMS Δp", "%"),
        ("same_top_percent", "same top", "%"), ("file_size_gb", "file", "GB"),
        ("model_size_gib", "tensors", "GiB"), ("weight_buffer_gb", "weights", "GiB"),
        ("kv_buffer_mib", "KV", "MiB"), ("max_n_ctx", "longest", "tokens"), ("n_params_b", "parameters", "2^30"),
        ("kv_params_m", "KV of 1024", "2^20"),
    )
}  # fmt: skip
"""Metrics as printed."""
_FIGURES_IN_A_LIST = 4
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
    member("imatrix", "imatrix", priority=4),
    member("text", "text", priority=5),
    member("device", "device", priority=4),
    *(member(key, header, priority=priority) for key, header, priority in (
        ("n_ctx", "n_ctx", 5), ("n_gpu", "GPUs", 4), ("n_prompt", "input", 1), ("n_gen", "generated", 5),
        ("batch_size", "batch", 2),
    )),
)  # fmt: skip
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
    member("stddev", "sd", str, priority=7),
    member("build", "build", priority=8),
    member("date", "date", priority=4),
    member("source", "source", priority=3),
)


def published_answer(rows: Sequence[PublishedRow], benches: Sequence[BenchedRow], column: str = "") -> Answer:
    """Return the first rows, of documents with a column or the metrics that most have; `--why` has all."""
    if not (rows or benches):
        return Answer(say("published.none"))
    most = _ROWS_IN_A_LIST // (2 if rows and benches else 1)
    figures = (*_CONDITIONS, *_stated(rows, column))
    parts: list[Part] = [_first(figures, rows[:most])] if rows else []
    parts += [_first(_BENCHED, benches[:most])] if benches else []
    sources = {row.source for row in rows} | {row.source for row in benches}
    n_rows = len(rows) + len(benches)
    hidden = n_rows - len(rows[:most]) - len(benches[:most])
    return Answer(
        say("published.rows", rows=counted(n_rows, "row"), sources=counted(len(sources), "source")),
        "",
        parts,
        [say("published.more", rows=counted(hidden, "row")) if hidden else ""],
        [*_tables(rows), Table(_BENCHED, benches if len(benches) > most else ()), Facts(_addresses(benches))],
    )


def _stated(rows: Sequence[PublishedRow], column: str) -> list[Figure[PublishedRow]]:
    """Return the metric asked for, or those that most rows have, in the order of a document, which ranks them."""
    stated = Counter(name for row in rows for name in METRICS if getattr(row, name) is not None)
    usual = [column] if column in METRICS else dict(stated.most_common(_FIGURES_IN_A_LIST))
    names = [name for name in METRICS if name in usual]
    return [replace(METRIC_FIGURES[name], priority=priority) for priority, name in enumerate(names)]


def _first(figures: Sequence[Figure[Row]], rows: Sequence[Row]) -> Table[Row]:
    """Return a table without what is the same in all rows, which its title says."""
    alike = {
        figure.key: figure.text(rows[0])
        for figure in figures
        if len(rows) > 1 and not figure.unit and len(set(map(figure.text, rows))) == 1
    }
    shared = ", ".join(
        f"{each.header} {alike[each.key]}" for each in figures if each.get(rows[0]) and each.key in alike
    )
    return Table([each for each in figures if each.key not in alike], rows, shared)


def _tables(rows: Sequence[PublishedRow]) -> list[Part]:
    """Return each table of a document with all its figures, versions and remarks."""
    grouped: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        grouped.setdefault((row.source, row.table), []).append(row)
    figures = (*_CONDITIONS, *(METRIC_FIGURES[name] for name in METRICS))
    parts: list[Part] = []
    for (source, name), members in grouped.items():
        table = table_of(members[0])
        remarks = [versions_text(table.versions), table.remark, *_remarks(members)]
        parts += [Table(figures, members, f"{source}: {name}"), "\n".join(filter(None, remarks))]
    return parts


def _addresses(benches: Sequence[BenchedRow]) -> list[tuple[str, str]]:
    known = {source.id: source for source in load_bench_sources()}
    cited = [known[name] for name in dict.fromkeys(row.source for row in benches)]
    return [(each.id, " ".join(filter(None, (each.address, each.remark)))) for each in cited]


def _remarks(rows: Sequence[PublishedRow]) -> list[str]:
    """Return each distinct setting and remark, with its number of rows."""
    found = Counter(text for row in rows for text in (row.note, row.setting, row.remark) if text)
    return [f"{counted(count, 'row')}: {text}" for text, count in found.items()]


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
        ("printed", "printed", 3),
    )),
    member("acceptance", "accepted", format_percent),
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


_FIELDS = PublishedRow.__struct_fields__
_Sorted = TypeVar("_Sorted", bound=PublishedRow | BenchedRow)


class PublishedRows(msgspec.Struct, frozen=True):
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
    cited = {row.source for row in rows} | {row.source for row in benches}
    sources = [each for each in load_sources() if each.id in cited]
    places = [each for each in load_bench_sources() if each.id in cited]
    return PublishedRows(rows, sources, benches, places, acceptances)


def published_csv(rows: Sequence[PublishedRow]) -> str:
    """Return the rows as CSV; empty if not stated; versions as `vLLM 0.6.3; CUDA 12.4`."""
    errors = [member(f"{name}_error", "", path=f"{name}.error") for name in WITH_ERRORS]
    cells = (
        [*(_plain(getattr(row, name)) for name in _FIELDS), *(each.get(row) for each in errors)]
        for row in (replace(row, versions=versions_text(versions_of(row))) for row in rows)
    )
    return csv_text([*_FIELDS, *(each.key for each in errors)], cells)


def versions_text(versions: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {version}" for name, version in versions.items())


def sort_published(rows: Sequence[_Sorted], key: str) -> tuple[_Sorted, ...]:
    """Sort the rows by a column, descending with a leading minus: numbers, then words, then unstated.

    Raises UnknownName.
    """
    name, known = key.strip().lstrip("-").lower().replace("-", "_"), dict.fromkeys((*_FIELDS, *FIELDS))
    if name not in known:
        raise UnknownName("published column", name, known)
    values = [_plain(getattr(row, name, None)) for row in rows]

    def of_kind(kind: type | UnionType) -> list[_Sorted]:
        found = [(value, row) for value, row in zip(values, rows, strict=True) if isinstance(value, kind)]
        falls = key.strip().startswith("-")
        return [row for _, row in sorted(found, key=lambda each: each[0] or 0, reverse=falls)]

    return (*of_kind(int | float), *of_kind(str), *of_kind(NoneType))


def _plain(cell: PublishedFigure | str | float | None) -> str | int | float | None:
    return cell.plain if isinstance(cell, PublishedFigure) else cell
