"""Each case of a speed run beside the published rows of the same protocol that are nearest to it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from ggbench.experiments.speed.document import CASE
from ggbench.experiments.speed.record import Case, SpeedCase, case_note, result_of
from ggbench.models.published.rows import Figure, PublishedRow, load_published
from ggbench.models.published.selection import NearRow, nearest_published
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.against import device_of, published_model, system_of
from ggbench.show.names import quant_name
from ggbench.show.terminal.against import difference_lines
from ggbench.show.terminal.tables import new_table, spaced
from ggbench.text import plain
from ggbench.units import format_count, format_gb, format_number

_NEAREST = 3


def nearest_to_case(run: Run, case: Case) -> tuple[NearRow, ...]:
    """Return published rows of the model that count as the case does, every difference named; empty without any.

    For one sequence those are speeds by input length, for several the throughputs of batches, where there are any.
    Rows of the case's own input length, or batch, come before those of the nearest.
    """
    model = published_model(run.subject)
    if model is None:
        return ()
    rows = [row for row in load_published() if row.model == model and _is_of_protocol(row)]
    if case.n_seqs > 1:
        rows = [row for row in rows if row.throughput_tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == case.n_seqs] or rows
    else:
        rows = [row for row in rows if row.tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == 1] or rows
    rows = [row for row in rows if row.n_prompt == case.n_input] or rows
    return nearest_published(
        rows,
        model,
        run.subject.quant,
        device=device_of(QuantSummary.of([run])),
        n_prompt=case.n_input,
        n_gen=case.n_gen,
        batch_size=case.n_seqs,
        limit=_NEAREST,
        system=system_of(QuantSummary.of([run])),
    )


def speed_against_document(run: Run) -> dict[str, object]:
    """Return the `cases` of a run, each with the nearest published rows as `against`."""
    cases = []
    for found in result_of(run).cases:
        near = nearest_to_case(run, found.case)
        cases.append(CASE.value(found, quant=run.subject.quant, against=near))
    return {"cases": cases}


def _is_of_protocol(row: PublishedRow) -> bool:
    """Whether the row has the tokens per second of a batch of known size, for one sequence or for all."""
    return row.batch_size is not None and (row.tok_s is not None or row.throughput_tok_s is not None)


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
