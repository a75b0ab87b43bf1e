"""The results in published documents as rows, for comparison with your own measurements.

`data/` has them as printed, one row per measured configuration, and `sources.toml` has the versions, remarks and
omissions. A word in a cell is never parsed as a number.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import field

from ggbench.errors import BadFile
from ggbench.record import Record
from ggbench.text import shorten

_NUMBER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(?: ± ([0-9.]+))?\s*(MB|MiB|W)?")
_SCALES = {"MB": 1e-3, "MiB": 1 / 1024, "W": 1e4}
"""Factor from the unit of a cell to its column's: MB to GB, MiB to GiB, and W (Chinese 万) to 10,000."""


class PublishedFigure(Record):
    """One cell of a table: a number, or the word printed in its place."""

    printed: str
    """Printed text, with a unit only if it is not the column's."""
    value: float | None
    """In the unit of the field's name; None if the cell is a word: oom, N/A, Exception, not reported."""
    error: float | None = None
    """Printed after `±`: llama-perplexity's standard error, or llama-bench's standard deviation."""

    def __str__(self) -> str:
        return self.printed


class PublishedRow(Record):
    """One measured configuration of one table; None means not stated, and no default is assumed."""

    source: str
    """Id of the document, as in `load_sources`."""
    table: str
    """Section or heading in the document; `source` and `table` determine the versions."""
    printed_name: str
    """Name of the row or its model in the document."""
    model: str
    """The catalog id if the catalog has the model: `qwen2.5-7b`."""
    size: str
    """Printed size: `7B`, `57B-A14B`."""
    system: str
    """Inference system: `llama.cpp`, `vllm`, `hf-transformers-fa2`, `autoawq-gemm-fused`; `theory` is not measured."""
    quant: str | None = None
    """Lower case; None if the value applies to all quants."""
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
    figures: dict[str, PublishedFigure] = field(default_factory=dict)
    """Figures by column, each with its unit: `tok_s` of one sequence, `throughput_tok_s` of all, `memory_gb`, `kld` in
    nats, `ppl_ratio` of the perplexity to that of `base`, `b_w16_ms`: B scaled to 16 bits per weight.
    """
    text: str | None = None
    """Text of the perplexities: `wikitext-2` is its test set; `wiki test` as printed."""
    n_ctx: int | None = None
    """Tokens of a chunk of the text."""
    imatrix: str | None = None
    """Importance matrix of the quant, as printed; None if there is none or it is not stated."""
    base: str | None = None
    """Quant of the same model to which the row is compared; with `type_k`, the cache's type of the same file."""
    type_k: str | None = None
    """Type of the KV cache, whose loss the row has; None if the row is of the weights."""
    type_v: str | None = None
    setting: str | None = None
    """Options of the system, written out."""
    date: str | None = None
    """Day of the measurement or of its publication: `2026-08-15`."""
    versions: str | None = None
    """Version, if it differs from the table's: `vLLM 0.6.2`."""
    note: str | None = None
    """The document's note on the row."""
    remark: str | None = None
    """ggbench's remark: an error in the row, or text elsewhere in the document that concerns it."""


_CONDITIONS = frozenset(PublishedRow.__struct_fields__)
_COUNTS = {"n_gpu", "n_ctx", "n_prompt", "n_gen", "batch_size", "n_requests"}


_T = TypeVar("_T")


def reads_data(load: Callable[[], _T]) -> Callable[[], _T]:
    """Decorate a function that reads files of `data`: it reads them once, and raises BadFile if they are damaged."""

    @functools.cache
    @functools.wraps(load)
    def loaded() -> _T:
        try:
            return load()
        except (OSError, ValueError, TypeError, LookupError, RecursionError, csv.Error) as error:
            why = shorten(f"{type(error).__name__}: {error}", 200)
            raise BadFile(
                f"the published data of this installation is damaged: {why}", "reinstall ggbench"
            ) from None

    return loaded


@reads_data
def load_published() -> tuple[PublishedRow, ...]:
    """Return all rows of all documents."""
    return tuple(row for source in load_sources() for name in source.files for row in _read(name, source.id))


def data_text(name: str, room: str = "ggbench.models.published") -> str:
    """Return the text of a file in the `data` of a room."""
    from importlib.resources import files

    return (files(room) / "data" / name).read_text(encoding="utf-8")


def _read(name: str, source: str) -> list[PublishedRow]:
    header, *lines = csv.reader(data_text(name).splitlines())
    return [_row(source, dict(zip(header, line, strict=True))) for line in lines]


def _row(source: str, cells: dict[str, str]) -> PublishedRow:
    figures: dict[str, PublishedFigure] = {}
    conditions: dict[str, Any] = {}
    for column, cell in cells.items():
        if cell and column in _CONDITIONS:
            conditions[column] = int(cell) if column in _COUNTS else cell
        elif cell:
            figures[column] = figure(cell)
    return PublishedRow(source=source, figures=figures, **conditions)


@functools.cache
def figure(printed: str) -> PublishedFigure:
    """Parse a cell: `37.07`, `473 MB` (0.473 of a column in GB), `10W` (100,000), `6.23 ± 0.04`, `oom` (no value)."""
    match = _NUMBER.fullmatch(printed)
    if match is None:
        return PublishedFigure(printed, None)
    scale = _SCALES.get(match[3], 1.0)
    return PublishedFigure(
        printed, float(match[1]) * scale, None if match[2] is None else float(match[2]) * scale
    )


class TableSoftware(Record):
    """The software of some tables, and the number of rows of each."""

    versions: dict[str, str]
    tables: dict[str, int]


class PublishedDocument(Record):
    """A document, as in `data/sources.toml`."""

    id: str
    title: str
    files: tuple[str, ...]
    rows: int
    remarks: tuple[str, ...]
    environment: tuple[TableSoftware, ...]
    table_remarks: dict[str, str] = field(default_factory=dict)
    left_out: tuple[dict[str, str], ...] = ()
    """Results in the document that are not among the rows: `what` and `why`."""


@reads_data
def load_sources() -> tuple[PublishedDocument, ...]:
    return msgspec.toml.decode(data_text("sources.toml"), type=dict[str, tuple[PublishedDocument, ...]])[
        "source"
    ]
