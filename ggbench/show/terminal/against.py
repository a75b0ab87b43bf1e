"""Published rows under a person's own quants: the same figures side by side, with every difference named."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.models.published.rows import Figure, PublishedRow
from ggbench.models.published.selection import NearRow
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.against import device_of, nearest_to
from ggbench.show.columns import ANSWERS, COLUMNS
from ggbench.show.names import quant_name
from ggbench.show.terminal.tables import new_table
from ggbench.text import plain
from ggbench.units import format_count, format_ms

_OTHERS = {
    "memory_gb": "memory {} GB",
    "prefill_ms": "prefill {} ms",
    "throughput_tok_s": "throughput {} tok/s",
    "bpw": "{} BPW",
}


def against_tables(summaries: Sequence[QuantSummary]) -> RenderableType:
    """For each quant a table of its own figures with the nearest published ones below, differences named."""
    parts: list[RenderableType] = []
    for summary in summaries:
        near = nearest_to(summary)
        none = Text(f"No published row measures {quant_name(summary.subject)}.", style="dim")
        parts += [_table(summary, near) if near else none, Text()]
    return Group(*parts[:-1])


def difference_lines(near: Sequence[NearRow], name: Callable[[PublishedRow], str]) -> list[str]:
    """Return what all rows differ in, then what else each differs in and where it is published."""
    shared = [text for text in near[0].differences if all(text in each.differences for each in near)]
    lines = [f"all published rows: {'; '.join(shared)}"] if shared else []
    for each in near:
        row, own = each.row, [text for text in each.differences if text not in shared]
        text = "; ".join([*(own or ([] if shared else ["no difference"])), f"{row.source} {row.table}"])
        lines.append(f"{name(row)}: {text}")
    return lines


def _table(summary: QuantSummary, near: Sequence[NearRow]) -> Table:
    figures = dict.fromkeys(("W\ntokens/ms", "B\nms", "speed\ntok/s"), "right")
    columns = {"": "left", "quant": "left", **figures, "differences and more figures": "wrap"}
    table = new_table(f"{quant_name(summary.subject)} against published rows", columns)
    own = "yours", *(COLUMNS[key].text(summary) for key in ("quant", *ANSWERS)), _own_note(summary)
    table.add_row(*map(Text, own), style="bold")
    for each in near:
        row = each.row
        printed = map(_printed, (row.w_tokens_per_ms, row.b_ms, row.tok_s))
        table.add_row(*map(Text, (row.system, row.quant or UNKNOWN, *printed, _note(row, each.differences))))
    return table


def _own_note(summary: QuantSummary) -> str:
    parts, decode = [plain(device_of(summary) or "device not known")], summary.decode
    if decode is not None and decode.n_gen:
        parts.append(f"input {format_count(decode.n_prompt)}, generated {format_count(decode.n_gen)}")
    if decode is not None and decode.prefill_ms is not None:
        parts.append(f"prefill {format_ms(decode.prefill_ms)} ms")
    return "; ".join(parts)


def _note(row: PublishedRow, differences: Sequence[str]) -> str:
    figures = [
        form.format(figure.printed)
        for name, form in _OTHERS.items()
        if (figure := getattr(row, name)) is not None and figure.value is not None
    ]
    setting = [words for words in (row.setting, row.remark) if words]
    text = "; ".join(differences) if differences else "no difference"
    return "; ".join([text, *figures, *setting, f"{row.source} {row.table}"])


def _printed(figure: Figure | None) -> str:
    return UNKNOWN if figure is None else figure.printed
