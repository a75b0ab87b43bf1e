"""Published rows as tables, JSON and CSV; a value is a number, or the word printed in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

from msgspec.structs import fields
from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.errors import UnknownName
from ggbench.models.published import (
    METRICS,
    WITH_ERRORS,
    PublishedDocument,
    PublishedFigure,
    PublishedRow,
    Table,
    table_of,
    versions_of,
)
from ggbench.models.published.benches import FIELDS, LLAMA_BENCH, BenchedRow, BenchSource, load_bench_sources
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.document import Document, Field, Get, Shape, field, many, of, sometimes, within
from ggbench.show.tables import Cells, fitted_table, left, names, new_table, right
from ggbench.show.text import csv_text
from ggbench.text import sanitize
from ggbench.units import counted, format_count

_HEADERS = {
    "tok_s": ("speed", "tok/s"), "latency_s": ("latency", "s"), "throughput_tok_s": ("throughput", "tok/s"),
    "requests_s": ("requests", "1/s"), "latency_improvement": ("latency", "better by"),
    "throughput_improvement": ("throughput", "better by"), "memory_gb": ("memory", "GB"), "bpw": ("BPW", ""),
    "prefill_ms": ("prefill", "ms"), "w_tokens_per_ms": ("W", "tokens/ms"), "w_percent": ("W", "% of theory"),
    "b_ms": ("B", "ms"), "b_w16_ms": ("B as w16", "ms"), "b_percent": ("B", "% of theory"),
    "prefill_tok_s": ("prompt", "tok/s"), "perplexity": ("perplexity", ""), "ppl_ratio": ("PPL", "of base"),
    "ppl_difference": ("PPL", "- base"), "kld": ("KLD", "nats"), "mean_dp_percent": ("mean Δp", "%"),
    "rms_dp_percent": ("RMS Δp", "%"), "same_top_percent": ("same top", "%"), "file_size_gb": ("file", "GB"),
    "model_size_gib": ("tensors", "GiB"), "weight_buffer_gb": ("weights", "GiB"), "kv_buffer_mib": ("KV", "MiB"),
    "max_n_ctx": ("longest", "tokens"), "n_params_b": ("parameters", "2^30"), "kv_params_m": ("KV of 1024", "2^20"),
}  # fmt: skip
_FIGURES_IN_A_LIST = 4
_PRIORITIES = {"ppl_ratio": 7, "ppl_difference": 6, "mean_dp_percent": 5}
"""Priorities of values that follow from others; the rest stay in every table."""
_COUNTS = (("n_ctx", "n_ctx", 5), ("n_gpu", "GPUs", 4), ("n_prompt", "input", 1), ("n_gen", "generated", 5),
           ("batch_size", "batch", 2))  # fmt: skip


def sources_table(sources: Sequence[PublishedDocument], benches: Sequence[BenchedRow]) -> RenderableType:
    columns = {"source": "left", "rows": "right", "tables": "right", "title": "wrap"}
    rows = [(each.id, format_count(each.rows), format_count(len(each.tables)), each.title) for each in sources]
    places = {row.source for row in benches}
    title = f"Rows of llama-bench on {len({row.device for row in benches})} devices, from {len(places)} public places"
    return new_table(None, columns, [*rows, (LLAMA_BENCH, format_count(len(benches)), UNKNOWN, title)])


def benches_table(rows: Sequence[BenchedRow], *, width: int | None = None) -> RenderableType:
    """Return rows of llama-bench as a table, with the address of each source below."""
    addresses = {source.id: source for source in load_bench_sources()}
    places = [addresses[name] for name in dict.fromkeys(row.source for row in rows)]
    lines = (f"{each.id}: {each.address}" + (f" ({each.remark})" if each.remark else "") for each in places)
    title = Text(f"{LLAMA_BENCH}, published by others", style="bold")
    return Group(
        title,
        fitted_table(_bench_columns(rows), width=width),
        Text("\n".join(map(sanitize, lines)), style="dim"),
    )


def _bench_columns(rows: Sequence[BenchedRow]) -> list[Cells]:
    def column(header: str, text: Callable[[BenchedRow], str], priority: int = ESSENTIAL) -> Cells:
        return left(header, map(text, rows), priority=priority)

    def number(header: str, name: str, priority: int) -> Cells:
        return right(header, (_stated(getattr(row, name)) for row in rows), priority=priority)

    columns = [
        names("device", map(_devices_text, rows)),
        names("backend", (row.backend for row in rows), 2),
        names("model", (row.model for row in rows)),
        names("quant", (row.quant for row in rows)),
        number("ngl", "n_gpu_layers", 2),
        number("CPU MoE", "n_cpu_moe", 1),
        column("KV", _cache_text, 4),
        number("FA", "flash_attn", 6),
        left("test", map(_test_text, rows), stays=True),
        right("speed", (f"{row.tok_s:.2f}" for row in rows), "tok/s", stays=True),
        number("±", "stddev", 7),
        column("build", lambda row: _stated(row.build), 8),
        column("date", lambda row: row.date, 4),
        column("source", lambda row: row.source, 3),
    ]
    return [each for each in columns if not each.is_empty]


def _stated(value: object) -> str:
    return "" if value is None else str(value)


def _devices_text(row: BenchedRow) -> str:
    return row.device if row.count == 1 else f"{row.count} x {row.device}"


def _cache_text(row: BenchedRow) -> str:
    return "/".join(dict.fromkeys(filter(None, (row.type_k, row.type_v))))


def _test_text(row: BenchedRow) -> str:
    return f"{row.test} @ d{row.n_depth}" if row.n_depth else row.test


def published_tables(rows: Sequence[PublishedRow], *, width: int | None = None) -> RenderableType:
    grouped: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        grouped.setdefault((row.source, row.table), []).append(row)
    parts: list[RenderableType] = []
    for (source, name), members in grouped.items():
        table = table_of(members[0])
        parts += [
            Text(f"{source}: {name}", style="bold"),
            fitted_table(_columns(members, METRICS), width=width),
        ]
        notes = [versions_text(table.versions), table.remark, *_remarks(members)]
        parts += [Text("\n".join(filter(None, notes)), style="dim"), Text()]
    return Group(*parts[:-1])


def published_list(rows: Sequence[PublishedRow], column: str, *, width: int | None = None) -> RenderableType:
    stated = {name: sum(getattr(row, name) is not None for row in rows) for name in METRICS}
    usual = sorted(METRICS, key=lambda name: -stated[name])[:_FIGURES_IN_A_LIST]
    metrics = [column] if column in METRICS else [name for name in METRICS if name in usual]
    return Group(
        fitted_table(_columns(rows, metrics), width=width), Text("\n".join(_remarks(rows)), style="dim")
    )


def _columns(rows: Sequence[PublishedRow], metrics: Sequence[str]) -> list[Cells]:
    def texts(name: str) -> Iterator[str]:
        return (_printed(getattr(row, name)) for row in rows)

    columns = [
        names("model", map(_model_text, rows)),
        names("system", texts("system"), 3),
        names("quant", texts("quant")),
        left("imatrix", texts("imatrix")),
        left("text", texts("text"), priority=5),
        names("device", texts("device"), 4),
    ]
    columns += [right(header, texts(key), "", priority) for key, header, priority in _COUNTS]
    columns += [
        right(_HEADERS[name][0], texts(name), _HEADERS[name][1], _PRIORITIES.get(name, 0)) for name in metrics
    ]
    return [each for each in columns if each.is_name or not each.is_empty]


def _model_text(row: PublishedRow) -> str:
    return f"{row.model}-{row.variant.lower()}" if row.variant else row.model


def _printed(value: PublishedFigure | str | int | None) -> str:
    if isinstance(value, PublishedFigure):
        return value.printed
    return format_count(value) if isinstance(value, int) else value or UNKNOWN


def _remarks(rows: Sequence[PublishedRow]) -> list[str]:
    """Return each distinct setting and remark, with its number of rows."""
    settings = (
        f"{row.note}: {row.setting}" if row.setting and row.note else row.setting or row.note for row in rows
    )
    pairs = zip(settings, (row.remark for row in rows), strict=True)
    found = Counter(text for pair in pairs for text in pair if text)
    return [f"{counted(count, 'row')}: {text}" for text, count in found.items()]


_FIELDS = tuple(each.name for each in fields(PublishedRow))
_Row = TypeVar("_Row", bound=PublishedRow | BenchedRow)


def _cells() -> Iterator[Field]:
    def plain_of(name: str) -> Get:
        return lambda row: _plain(getattr(row, name))

    def error_of(name: str) -> Get:
        return lambda row: (figure := getattr(row, name)) and figure.error

    for name in _FIELDS:
        if name == "versions":
            yield from field(name, dict[str, str], "Versions of the software.", versions_of)
        elif name in METRICS:
            text = "A number, or the word printed in its place, such as `oom`; null if not stated."
            yield from field(name, float | str | None, text, plain_of(name))
        else:
            yield from of(PublishedRow, name)
    for name in WITH_ERRORS:
        yield from field(f"{name}_error", float | None, "Standard error, as printed.", error_of(name))


ROW = Shape("PublishedRow", "One published row.", _cells())
NEAR = Shape(
    "NearRow",
    "A published row close to a run.",
    field("differences", list[str], "How its conditions differ from those of the run."),
    within(lambda near: near.row, ROW.fields),
)
AGAINST = sometimes(field("against", many(NEAR), "With --against: the nearest published rows."))
_TABLE = Shape("Table", "One table of a document.", of(Table, "name rows versions remark?"))
_SOURCE = Shape(
    "PublishedDocument",
    "A document that is the source of rows.",
    of(PublishedDocument, "id title rows"),
    field("tables", many(_TABLE)),
    of(PublishedDocument, "remarks left_out"),
)
_BENCHED = Shape("BenchedRow", "One published row of llama-bench.", of(BenchedRow))
_BENCH_SOURCE = Shape("BenchSource", "A public place that rows of llama-bench are from.", of(BenchSource))
PUBLISHED = Document(
    "published",
    "published",
    "Published rows and their documents.",
    field("rows", many(ROW)),
    field("sources", many(_SOURCE)),
    field("llama_bench_rows", many(_BENCHED)),
    field("llama_bench_sources", many(_BENCH_SOURCE)),
)


def published_csv(rows: Sequence[PublishedRow]) -> str:
    """Return the rows as CSV; empty if not stated; versions as `vLLM 0.6.3; CUDA 12.4`."""
    rows_of_cells = (ROW.value(row, versions=versions_text(versions_of(row))) for row in rows)
    return csv_text([each.name for each in ROW.fields], (cells.values() for cells in rows_of_cells))


def versions_text(versions: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {version}" for name, version in versions.items())


def sort_published(rows: Sequence[_Row], key: str) -> tuple[_Row, ...]:
    """Sort the rows by a column, descending with a leading minus: numbers, then words, then unstated.

    Raises UnknownName.
    """
    name, known = key.strip().lstrip("-").lower().replace("-", "_"), dict.fromkeys((*_FIELDS, *FIELDS))
    if name not in known:
        raise UnknownName("published column", name, known)
    numbers: list[tuple[float, _Row]] = []
    words: list[tuple[str, _Row]] = []
    unstated: list[_Row] = []
    for row in rows:
        value = _plain(getattr(row, name, None))
        if value is None:
            unstated.append(row)
        elif isinstance(value, str):
            words.append((value, row))
        else:
            numbers.append((value, row))
    falls = key.strip().startswith("-")
    numbers.sort(key=itemgetter(0), reverse=falls)
    words.sort(key=itemgetter(0), reverse=falls)
    return (*(row for _, row in numbers), *(row for _, row in words), *unstated)


def _plain(cell: PublishedFigure | str | float | None) -> str | int | float | None:
    return cell.plain if isinstance(cell, PublishedFigure) else cell
