"""`ggbench compare`: runs of any kind side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import against_option, option, output_options, plot_option
from ggbench.commands.output import Output
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.decisions.compare.comparison import Comparison
    from ggbench.decisions.compare.differences import Column
    from ggbench.runs.run import Run


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench compare 3 4 -r 4
    ggbench compare 3 4 --md
    """,
)
@click.argument("run_ids", metavar="RUN...", type=int, nargs=-1)
@against_option
@option(
    "-r --repeat", "Measure the runs again this often, in turns, and compare those.", click.IntRange(1, 1000)
)
@plot_option
@output_options
def command(run_ids: tuple[int, ...], repeat: int | None, output: Output) -> None:
    """Compare runs of any kind, by their numbers in `ggbench results`: which is better, and by how much.

    Repeats of one setting are averaged. `ggbench import` gives a number to the runs of a file.

    Times of one run each have a ratio but no verdict; -r measures both in turns. Of four turns or more, a run is better
    (★) if the 95 % interval of the ratios within turns excludes 1. There is no difference if it lies within 10 % either
    way; otherwise it is undecided. Three runs or more share these 5 % (Holm). PPL, KLD and same top tokens are compared
    chunk by chunk, and only if text, chunks, base and n_batch are the same.
    """
    from ggbench.decisions.compare.comparison import columns_of
    from ggbench.runs.store.database import Store
    from ggbench.runs.stored import read_run

    with Store.open() as store:
        columns = columns_of([read_run(store, store.load_run(run_id)) for run_id in dict.fromkeys(run_ids)])
        output.notice(*store.notices)
        comparison = _compared(columns, is_alone_enough=bool(output.against) and repeat is None)
    if repeat is not None:
        from ggbench.commands.comparing import compare_again

        compare_again([column[0] for column in columns], repeat, output)
    _show([column[0] for column in columns], comparison, output)


def _compared(columns: Sequence[Column], *, is_alone_enough: bool) -> Comparison:
    """Return the comparison. Raises UsageError for a single run unless that is enough, or if nothing is comparable."""
    from ggbench.decisions.compare.comparison import compare

    if len(columns) < 2 and not is_alone_enough:
        raise UsageError("comparing needs at least two runs", "ggbench results lists their numbers")
    comparison = compare(columns)
    if comparison.is_empty and len(columns) > 1:
        kinds = ", ".join(
            f"{row.letter} is {row.name}, a run of {row.run.head.kind}" for row in comparison.rows
        )
        raise UsageError(comparison.sentence.rstrip("."), f"compare runs of one kind: {kinds}")
    return comparison


def _show(runs: Sequence[Run], comparison: Comparison, output: Output) -> None:
    from ggbench.commands.run_output import nearest_rows, show_answer
    from ggbench.decisions.compare.show import COMPARE, NearestRows, comparison_answer, comparison_document
    from ggbench.show.answer import Answer

    if output.as_json:
        published = [NearestRows(run.run_id, nearest_rows(run)) for run in (runs if output.against else ())]
        output.record(COMPARE, comparison_document(comparison, published))
        return
    answer = comparison_answer(comparison) if len(comparison.rows) > 1 else Answer("")
    show_answer(answer, runs, output)
