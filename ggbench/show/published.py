"""Published rows for the terminal: what identifies each row, then its figures."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.models.published import METRICS, PublishedDocument, PublishedFigure, PublishedRow, table_of
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.published_document import versions_text
from ggbench.show.tables import Cells, fitted_table, left, names, new_table, right
from ggbench.units import format_count

_HEADERS = {
    "tok_s": ("speed", "tok/s"),
    "latency_s": ("latency", "s"),
    "throughput_tok_s": ("throughput", "tok/s"),
    "requests_s": ("requests", "1/s"),
    "latency_improvement": ("latency", "better by"),
    "throughput_improvement": ("throughput", "better by"),
    "memory_gb": ("memory", "GB"),
    "bpw": ("BPW", ""),
    "prefill_ms": ("prefill", "ms"),
    "w_tokens_per_ms": ("W", "tokens/ms"),
    "w_percent": ("W", "% of theory"),
    "b_ms": ("B", "ms"),
    "b_w16_ms": ("B as w16", "ms"),
    "b_percent": ("B", "% of theory"),
    "prefill_tok_s": ("prompt", "tok/s"),
    "perplexity": ("perplexity", ""),
    "ppl_ratio": ("PPL", "of base"),
    "ppl_difference": ("PPL", "- base"),
    "kld": ("KLD", "nats"),
    "mean_dp_percent": ("mean Δp", "%"),
    "rms_dp_percent": ("RMS Δp", "%"),
    "same_top_percent": ("same top", "%"),
    "file_size_gb": ("file", "GB"),
    "model_size_gib": ("tensors", "GiB"),
    "weight_buffer_gb": ("weights", "GiB"),
    "kv_buffer_mib": ("KV", "MiB"),
    "max_n_ctx": ("longest", "tokens"),
    "n_params_b": ("parameters", "2^30"),
    "kv_params_m": ("KV of 1024", "2^20"),
}
_FIGURES_IN_A_LIST = 4
_PRIORITIES = {"ppl_ratio": 7, "ppl_difference": 6, "mean_dp_percent": 5}
"""Of figures that follow from others; the rest stay in every table."""
_COUNTS = (
    ("n_ctx", "n_ctx", 5),
    ("n_gpu", "GPUs", 4),
    ("n_prompt", "input", 1),
    ("n_gen", "generated", 5),
    ("batch_size", "batch", 2),
)


def sources_table(sources: Sequence[PublishedDocument]) -> RenderableType:
    """Render the documents with the number of rows and tables of each."""
    columns = {"source": "left", "rows": "right", "tables": "right", "title": "wrap"}
    rows = [(each.id, format_count(each.rows), format_count(len(each.tables)), each.title) for each in sources]
    return new_table(None, columns, rows)


def published_tables(rows: Sequence[PublishedRow], *, width: int | None = None) -> RenderableType:
    """Render the rows grouped by the table that they come from, in their order, with its software versions."""
    grouped: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        grouped.setdefault((row.source, row.table), []).append(row)
    parts: list[RenderableType] = []
    for (source, name), members in grouped.items():
        table = table_of(members[0])
        parts += [Text(f"{source}: {name}", style="bold"), _table(members, METRICS, width)]
        notes = [versions_text(table.versions), table.remark, *_remarks(members)]
        parts += [Text("\n".join(filter(None, notes)), style="dim"), Text()]
    return Group(*parts[:-1])


def published_list(rows: Sequence[PublishedRow], column: str, *, width: int | None = None) -> RenderableType:
    """Render the rows as one table in the given order, with the figure `column`.

    If `column` is not a figure, the figures stated by most of the rows are shown.
    """
    stated = {name: sum(getattr(row, name) is not None for row in rows) for name in METRICS}
    usual = sorted(METRICS, key=lambda name: -stated[name])[:_FIGURES_IN_A_LIST]
    metrics = [column] if column in METRICS else [name for name in METRICS if name in usual]
    return Group(_table(rows, metrics, width), Text("\n".join(_remarks(rows)), style="dim"))


def _table(rows: Sequence[PublishedRow], metrics: Sequence[str], width: int | None) -> Table:
    columns = _columns(rows, metrics)
    if width is not None and sum(each.width for each in columns if not each.is_shared) > width:
        without = _columns(rows, metrics, has_errors=False)
        if without != columns:
            return fitted_table(without, width=width, caption="errors are left out for width; --json has them")
    return fitted_table(columns, width=width)


def _columns(rows: Sequence[PublishedRow], metrics: Sequence[str], *, has_errors: bool = True) -> list[Cells]:
    """Every column that a row states; where there is no room for errors, figures without."""
    columns = [
        names("model", map(_model, rows)),
        names("system", (row.system for row in rows), 3),
        names("quant", (row.quant or UNKNOWN for row in rows)),
        left("imatrix", (row.imatrix or "" for row in rows)),
        left("text", (row.text or "" for row in rows), priority=5),
        names("device", (row.device or UNKNOWN for row in rows), 4),
        *(
            right(header, (format_count(getattr(row, key)) for row in rows), "", level)
            for key, header, level in _COUNTS
        ),
    ]
    for name in metrics:
        figures = [getattr(row, name) for row in rows]
        header, unit = _HEADERS[name]
        texts = (_figure(each, has_error=has_errors) for each in figures)
        columns.append(right(header, texts, unit, _PRIORITIES.get(name, ESSENTIAL)))
    return [each for each in columns if each.is_name or not each.is_empty]


def _figure(figure: PublishedFigure | None, *, has_error: bool) -> str:
    if figure is None:
        return UNKNOWN
    return figure.printed if has_error else figure.printed.partition(" ± ")[0]


def _model(row: PublishedRow) -> str:
    return f"{row.model}-{row.variant.lower()}" if row.variant else row.model


def _remarks(rows: Sequence[PublishedRow]) -> list[str]:
    """Return each distinct setting and remark with the number of rows that have it."""
    counted: dict[str, int] = {}
    for row in rows:
        setting = f"{row.note}: {row.setting}" if row.setting and row.note else row.setting or row.note
        for text in (setting, row.remark):
            if text:
                counted[text] = counted.get(text, 0) + 1
    return [f"{count} {'row' if count == 1 else 'rows'}: {text}" for text, count in counted.items()]
