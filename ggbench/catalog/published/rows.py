"""Published measurements as typed rows, where a cell that is a word is never taken for a number."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

_FILES = {
    "qwen1.5-hf.csv": "qwen1.5-hf",
    "qwen2-speed.csv": "qwen2-speed",
    "qwen2.5-speed.csv": "qwen2.5-speed",
    "article-perplexity.csv": "article",
    "article-memory.csv": "article",
    "article-context.csv": "article",
    "article-decoding.csv": "article",
    "bitsandbytes.csv": "bitsandbytes",
}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(MB|MiB|W)?")
_SCALES = {"MB": 1e-3, "MiB": 1 / 1024, "W": 1e4}
"""From the unit of a cell to its column's: GB, GiB, and for `10W` (Chinese 万) ones."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of a table: a number, or the word that stands in its place."""

    printed: str
    """As the document has it, with a unit only where that is not the column's."""
    value: float | None
    """In the unit of the field's name; None when a word stands there: oom, N/A, Exception, not reported."""

    def __str__(self) -> str:
        return self.printed

    @property
    def plain(self) -> float | str:
        """The number, or the word: what JSON and sorted tables take."""
        return self.printed if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One measured configuration of one table; None is not stated, and no default is assumed for it."""

    source: str
    """Id of the document, as in `load_sources`."""
    table: str
    """Section or heading in the document; `source` and `table` name the versions."""
    printed_name: str
    """What the document calls the row or its model."""
    model: str
    """As in the catalog where that has it: `qwen2.5-7b`."""
    size: str
    """As printed: `7B`, `57B-A14B`."""
    system: str
    """What ran it: `llama.cpp`, `vllm`, `hf-transformers-fa2`, `autoawq-gemm-fused`; `theory` was not measured."""
    quant: str | None = None
    """Lower case; None where a figure holds for any."""
    variant: str | None = None
    """`Chat` or `Instruct`, as printed."""
    device: str | None = None
    n_gpu: int | None = None
    n_prompt: int | None = None
    """Input tokens."""
    n_gen: int | None = None
    """Generated tokens."""
    batch_size: int | None = None
    n_requests: int | None = None
    """Prompts in one run of a throughput benchmark."""
    tok_s: Figure | None = None
    """Speed in tokens per second as the document gives it; one sequence."""
    latency_s: Figure | None = None
    """Mean latency of one step of the whole batch."""
    throughput_tok_s: Figure | None = None
    """Tokens per second over all sequences."""
    requests_s: Figure | None = None
    latency_improvement: Figure | None = None
    """Over the older version of the system; see the source's remarks."""
    throughput_improvement: Figure | None = None
    memory_gb: Figure | None = None
    """GPU memory in the document's GB."""
    bpw: Figure | None = None
    prefill_ms: Figure | None = None
    w_tokens_per_ms: Figure | None = None
    w_percent: Figure | None = None
    """W over the theory's."""
    b_ms: Figure | None = None
    b_w16_ms: Figure | None = None
    """B as if every weight had 16 bits."""
    b_percent: Figure | None = None
    """The theory's B over `b_w16_ms`, so of the bits this row really reads."""
    perplexity: Figure | None = None
    file_size_gb: Figure | None = None
    """10^9 bytes."""
    model_size_gib: Figure | None = None
    """Tensor bytes, in 2^30."""
    weight_buffer_gb: Figure | None = None
    """In 2^30 bytes."""
    kv_buffer_mib: Figure | None = None
    max_n_ctx: Figure | None = None
    """Longest context that fitted, in tokens."""
    n_params_b: Figure | None = None
    """Parameters of theory, in 2^30."""
    kv_params_m: Figure | None = None
    """KV parameters of 1024 tokens of theory, in 2^20."""
    setting: str | None = None
    """Options of the system, spelt out."""
    versions: str | None = None
    """Version that differs from the table's: `vLLM 0.6.2`."""
    note: str | None = None
    """The document's own words beside the row."""
    remark: str | None = None
    """What ggbench noticed: a slip, or words elsewhere in the document that bear on the row."""

    def stated(self) -> dict[str, str | int | float]:
        """Every field that the document states, in order; figures as numbers or as their words."""
        out: dict[str, str | int | float] = {}
        for name in _FIELDS:
            cell = getattr(self, name)
            if cell is not None:
                out[name] = cell.plain if isinstance(cell, Figure) else cell
        return out


_FIELDS = tuple(field.name for field in fields(PublishedRow))
METRICS = tuple(field.name for field in fields(PublishedRow) if field.type == "Figure | None")
"""Names of the figures, which can be asked for and sorted by."""
_COUNTS = {"n_gpu", "n_prompt", "n_gen", "batch_size", "n_requests"}


@functools.cache
def load_published() -> tuple[PublishedRow, ...]:
    """All 1299 rows: qwen1.5-hf 160, qwen2-speed 167, qwen2.5-speed 259, article 580, bitsandbytes 133."""
    return tuple(row for name, source in _FILES.items() for row in _read(name, source))


def data_text(name: str) -> str:
    """Text of one file of the data."""
    from importlib.resources import files

    return (files("ggbench.catalog.published") / "data" / name).read_text(encoding="utf-8")


def _read(name: str, source: str) -> list[PublishedRow]:
    lines = csv.reader(data_text(name).splitlines())
    header = next(lines)
    readers = [_reader(column) for column in header]
    return [
        PublishedRow(
            source=source,
            **{column: read(cell) for column, read, cell in zip(header, readers, line, strict=True) if cell},
        )
        for line in lines
    ]


def _reader(column: str) -> Callable[[str], Any]:
    return figure if column in METRICS else int if column in _COUNTS else str


@functools.cache
def figure(printed: str) -> Figure:
    """A cell as a Figure: `37.07`, `473 MB` (0.473 of a column in GB), `10W` (100,000), `oom` (no value)."""
    match = _NUMBER.fullmatch(printed)
    return Figure(printed, float(match[1]) * _SCALES.get(match[2], 1.0) if match else None)
