"""Planned quants beside the published sizes of the same model: of files, and of the memory that they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ggbench.engines.contract import config_type
from ggbench.models.published.rows import Figure, PublishedRow, load_published
from ggbench.models.published.selection import LLAMA_CPP
from ggbench.show import UNKNOWN
from ggbench.show.against import published_model
from ggbench.show.tables import Cells, fitted_table, left, names, right
from ggbench.sizing.plan_record import PlanRow
from ggbench.units import GIB, format_bytes, format_gb, format_share

_QUANTS: Mapping[str, frozenset[tuple[str, str]]] = {
    "bf16": frozenset({("hf-transformers", "bf16")}),
    "int8": frozenset({("bitsandbytes-int8", "int8")}),
    "nf4": frozenset({("bitsandbytes-int4", "int4")}),
    "gptq-int4": frozenset({("autogptq-exllamav2", "gptq-int4"), ("hf-transformers", "gptq-int4")}),
    "gptq-int8": frozenset({("hf-transformers", "gptq-int8")}),
    "awq-int4": frozenset({("autoawq-gemm-fused", "awq"), ("hf-transformers", "awq")}),
}
"""System and quant of the published rows for each method of a checkpoint; 4 bits of bitsandbytes take nf4's bytes,
whether their code is nf4 or fp4."""
_FIRST_TOKENS = 1
"""Longest prompt of a published row whose memory is taken for that of the weights."""


class PublishedSize(msgspec.Struct, frozen=True):
    """A published row, with how it differs from what was planned."""

    row: PublishedRow
    file_share: float | None
    """Published file over the planned one, less 1; None where either is unknown."""
    beside_weights_bytes: int | None
    """Published memory, its GB taken as 2^30, less the planned weights: cache, buffers, and how it was counted."""


def published_sizes(row: PlanRow) -> tuple[PublishedSize, ...]:
    """Return the published rows of the same model, system and quant that state a size without a long prompt."""
    model = published_model(row.subject)
    wanted = {(LLAMA_CPP, row.quant)} if config_type(row.engine).loads_gguf else _QUANTS.get(row.quant, frozenset())
    found: dict[object, PublishedSize] = {}
    for published in load_published():
        if published.model != model or (published.system, published.quant) not in wanted:
            continue
        if (published.n_prompt or 0) > _FIRST_TOKENS:
            continue
        sizes = (published.file_size_gb, published.model_size_gib, published.memory_gb)
        repeated = any(size.row.file_size_gb == published.file_size_gb for size in found.values())
        if any(sizes) and not (repeated and not any(sizes[1:])):  # an article repeats a column to compare with
            size = PublishedSize(published, _file_share(published, row), _beside_weights(published, row))
            found[sizes] = size
    return tuple(found.values())


def _file_share(published: PublishedRow, row: PlanRow) -> float | None:
    stated, own = _value(published.file_size_gb), row.file_bytes
    if stated is None and (tensors := _value(published.model_size_gib)) is not None:
        stated, own = tensors * GIB / 1e9, row.weight_bytes
    return None if stated is None or not own else stated * 1e9 / own - 1


def _beside_weights(published: PublishedRow, row: PlanRow) -> int | None:
    stated = _value(published.memory_gb)
    return None if stated is None or row.weight_bytes is None else round(stated * GIB) - row.weight_bytes


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


_CAPTION = (
    "file: GB of 10^9, and the published one over yours; memory: GB as printed, and as 2^30 less your weights: cache, "
    "buffers and what the program itself takes"
)


def published_sizes_table(rows: Sequence[PlanRow], *, width: int) -> RenderableType:
    """One line for each published row of the planned quants; a sentence where there is none."""
    found = [(row, size) for row in rows for size in published_sizes(row)]
    if not found:
        return Padding(Text("No published row states a size of these quants.", style="dim"), (1, 0, 0, 0))
    table = fitted_table(
        [
            names("quant", (row.quant for row, _ in found)),
            right("weights", (format_bytes(row.weight_bytes) for row, _ in found), "yours", stays=True),
            right("file", (format_gb(row.file_bytes) for row, _ in found), "yours", stays=True),
            right("file", (_printed(size.row.file_size_gb) for _, size in found), "GB", stays=True),
            right("off by", (format_share(size.file_share) for _, size in found)),
            *_memory(found),
            left("published", (f"{size.row.source} {size.row.table}" for _, size in found)),
        ],
        title="Beside published sizes",
        width=width,
        caption=_CAPTION,
    )
    return Padding(table, (1, 0, 0, 0))


def _memory(found: Sequence[tuple[PlanRow, PublishedSize]]) -> list[Cells]:
    """The columns of memory, where any row states it."""
    if not any(size.row.memory_gb for _, size in found):
        return []
    return [
        right("memory", (_printed(size.row.memory_gb) for _, size in found), "GB", stays=True),
        right("beyond weights", (format_bytes(size.beside_weights_bytes) for _, size in found), "as GiB"),
    ]


def _printed(figure: Figure | None) -> str:
    return UNKNOWN if figure is None else figure.printed
