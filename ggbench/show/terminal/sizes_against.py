"""Published sizes under a plan, with what differs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ggbench.models.published.rows import Figure
from ggbench.show import UNKNOWN
from ggbench.show.sizes_against import PublishedSize, published_sizes
from ggbench.show.tables import Cells, fitted_table, left, names, right
from ggbench.sizing.plan_record import PlanRow
from ggbench.units import format_bytes, format_gb, format_share

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
