"""Each case of a speed run beside the published rows of the same protocol that are nearest to it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from ggbench.experiments.speed.document import case_document
from ggbench.experiments.speed.record import Case, SpeedCase, case_note, result_of
from ggbench.models.published.rows import PublishedRow, load_published
from ggbench.models.published.selection import NearRow, nearest_published
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.against import Beside, against_table, device_of, own_speed, printed
from ggbench.show.names import quant_name
from ggbench.show.published_document import NEAR
from ggbench.show.tables import spaced
from ggbench.text import plain
from ggbench.units import format_count, format_gb, format_number

_NEAREST = 3


def nearest_to_case(run: Run, case: Case) -> tuple[NearRow, ...]:
    """Return published rows of the model that count as the case does, every difference named; empty without any.

    For one sequence those are speeds by input length, for several the throughputs of batches, where there are any.
    Rows of the case's own input length, or batch, come before those of the nearest.
    """
    own = own_speed(QuantSummary.of([run]), case.n_input, case.n_gen, case.n_seqs)
    if own is None:
        return ()
    rows = [row for row in load_published() if row.model == own.model and _is_of_protocol(row)]
    if case.n_seqs > 1:
        rows = [row for row in rows if row.throughput_tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == case.n_seqs] or rows
    else:
        rows = [row for row in rows if row.tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == 1] or rows
    rows = [row for row in rows if row.n_prompt == case.n_input] or rows
    return nearest_published(rows, own, _NEAREST)


def speed_against_document(run: Run) -> dict[str, object]:
    """Return the `cases` of a run, each with the nearest published rows as `against`."""
    cases = []
    for found in result_of(run).cases:
        rows = [NEAR.value(each) for each in nearest_to_case(run, found.case)]
        cases.append(case_document(run.subject.quant, found) | {"against": rows})
    return {"cases": cases}


def _is_of_protocol(row: PublishedRow) -> bool:
    """Whether the row has the tokens per second of a batch of known size, for one sequence or for all."""
    return row.batch_size is not None and (row.tok_s is not None or row.throughput_tok_s is not None)


def case_against_tables(runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
    """Return a table for each case: its own figures, the nearest published rows, and every difference below."""
    parts: list[RenderableType] = []
    for run in runs:
        found = [(each, near) for each in result_of(run).cases if (near := nearest_to_case(run, each.case))]
        if found:
            parts.append(Text(f"{quant_name(run.subject)} against published rows", style="bold"))
            parts += [_table(run, each, near, width) for each, near in found]
        else:
            parts.append(Text(f"{quant_name(run.subject)}: no published row of speed measures this model"))
    return spaced(parts)


def _table(run: Run, found: SpeedCase, near: Sequence[NearRow], width: int | None) -> RenderableType:
    case, memory = found.case, found.ended.memory
    own_memory = format_gb(None if memory is None else memory.total_bytes, binary=True)
    columns = (
        Beside("Qwen2.5", "tok/s", format_number(found.tok_s_qwen2_5), printed("tok_s")),
        Beside("throughput", "tok/s", format_number(found.decode_tok_s), printed("throughput_tok_s")),
        Beside("memory", "GiB", own_memory, printed("memory_gb"), 1),
        Beside("input", "tokens", format_count(case.n_input), lambda row: format_count(row.n_prompt), 2),
        Beside("batch", "", format_count(case.n_seqs), lambda row: format_count(row.batch_size), 3),
    )
    device = device_of(QuantSummary.of([run])) or "device not known"
    note = "; ".join(filter(None, (f"llama.cpp, {device}", case_note(found))))
    return against_table(case.name, plain(run.subject.quant), columns, near, note, width=width)
