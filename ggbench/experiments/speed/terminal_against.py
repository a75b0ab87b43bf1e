"""Published rows under each case of a speed run, with every difference named."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from ggbench.experiments.speed.against import nearest_to_case
from ggbench.experiments.speed.document import case_note, result_of
from ggbench.experiments.speed.record import SpeedCase
from ggbench.models.published.rows import Figure
from ggbench.models.published.selection import NearRow
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.against import device_of
from ggbench.show.names import quant_name
from ggbench.show.terminal.against import difference_lines
from ggbench.show.terminal.tables import new_table, spaced
from ggbench.text import plain
from ggbench.units import format_count, format_gb, format_number


def case_against_tables(runs: Sequence[Run]) -> RenderableType:
    """Return a table for each case: its own figures, the nearest published rows, and every difference below."""
    parts: list[RenderableType] = []
    for run in runs:
        found = [(each, nearest_to_case(run, each.case)) for each in result_of(run).cases]
        if any(near for _, near in found):
            parts.append(Text(f"{quant_name(run.subject)} against published rows", style="bold"))
            parts += [_table(run, *each) for each in found if each[1]]
        else:
            parts.append(Text(f"{quant_name(run.subject)}: no published row of speed measures this model"))
    return spaced(parts)


def _table(run: Run, found: SpeedCase, near: Sequence[NearRow]) -> RenderableType:
    rows = [_own(run, found), *map(_published, near)]
    figures = ("Qwen2.5\ntok/s", "throughput\ntok/s", "memory\nGiB", "input\ntokens", "batch")
    table = new_table(found.case.name, {"": "left", "quant": "left"} | dict.fromkeys(figures, "right"))
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style="" if number else "bold")
    device = device_of(QuantSummary.of([run])) or "device not known"
    own = "; ".join(filter(None, (f"yours: llama.cpp, {device}", case_note(found))))
    lines = [plain(own), *difference_lines(near, lambda row: f"{row.system} {row.quant or UNKNOWN}")]
    table.lines_below = tuple(map(Text, lines))
    return table


def _own(run: Run, found: SpeedCase) -> tuple[str, ...]:
    case, memory = found.case, found.ended.memory
    return (
        "yours",
        plain(run.subject.quant),
        format_number(found.tok_s_qwen2_5),
        format_number(found.decode_tok_s),
        format_gb(None if memory is None else memory.total_bytes, binary=True),
        format_count(case.n_input),
        format_count(case.n_seqs),
    )


def _published(near: NearRow) -> tuple[str, ...]:
    row = near.row
    return (
        row.system,
        row.quant or UNKNOWN,
        *map(_printed, (row.tok_s, row.throughput_tok_s, row.memory_gb)),
        format_count(row.n_prompt),
        format_count(row.batch_size),
    )


def _printed(figure: Figure | None) -> str:
    return UNKNOWN if figure is None else figure.printed
