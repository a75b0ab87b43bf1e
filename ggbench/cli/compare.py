"""`ggbench compare`: runs of any kind side by side, and limits on regressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggbench.commands.comparing import conclude, fail_undecided_option, limit_option, refuse_undecided_alone
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import option, output_options, plot_option
from ggbench.commands.output import Output
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.decisions.compare.comparison import Comparison
    from ggbench.decisions.compare.differences import Column
    from ggbench.decisions.compare.thresholds import LimitCheck
    from ggbench.runs.run import Run
    from ggbench.runs.store.database import Store


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench compare 3 4 -r 4
    ggbench compare 12 --against base.json --fail-if-slower 5%
    """,
)
@click.argument("named", metavar="[RUN|FILE]...", nargs=-1)
@option(
    "--against", "Compare with this run or file, or show the nearest published rows.",
    metavar="RUN|FILE|published",
)  # fmt: skip
@option(
    "-r --repeat", "Measure the runs again this often, in turns, and compare those.", click.IntRange(1, 1000)
)
@limit_option("--fail-if-slower", "Exit with 1 if a run is slower by more than PERCENT of the first's speed.")
@limit_option("--fail-if-larger", "Exit with 1 if a run takes more than PERCENT more memory than the first.")
@limit_option("--fail-if-worse", "Exit with 1 if perplexity or KLD is more than PERCENT above the first's.")
@fail_undecided_option
@plot_option
@output_options
def command(
    named: tuple[str, ...],
    against: str | None,
    repeat: int | None,
    fail_if_slower: float | None,
    fail_if_larger: float | None,
    fail_if_worse: float | None,
    fail_if_undecided: bool,
    plot: bool,
    output: Output,
) -> None:
    """Compare runs of any kind, by their numbers in `ggbench results` or from files: which is better, and by how much.

    Repeats of one setting are averaged. Files are read but not stored: whole runs of `ggbench export --format json`,
    and llama-bench's files.

    Times of one run each have a ratio but no verdict; -r measures both in turns. Of four turns or more, a run is better
    (★) if the 95 % interval of the ratios within turns excludes 1. There is no difference if it lies within 10 % either
    way; otherwise it is undecided. Three runs or more share these 5 % (Holm). PPL, KLD and same top tokens are compared
    chunk by chunk, and only if text, chunks, base and n_batch are the same.

    If the whole interval exceeds a --fail-if-... limit, compare says why and exits with 1. An undecided limit, or times
    without a verdict, exit with 0, or with --fail-if-undecided with 1.
    """
    from ggbench.cli.named_runs import PUBLISHED, compared_runs
    from ggbench.decisions.compare.thresholds import check_limits
    from ggbench.runs.store.database import Store

    limits = {
        "--fail-if-slower": fail_if_slower,
        "--fail-if-larger": fail_if_larger,
        "--fail-if-worse": fail_if_worse,
    }
    asked = {name: share for name, share in limits.items() if share is not None}
    refuse_undecided_alone(fail_if_undecided, limits.values())
    if plot and output.as_json:
        hint = "omit --json, or save the plot: ggbench report RUN -o FILE.html"
        raise UsageError("--plot cannot be used with --json", hint)
    published = PUBLISHED if against == PUBLISHED else None
    with Store.open() as store:
        columns = compared_runs(store, named, against)
        output.notice(*store.notices)
        comparison = _compared(store, columns, is_alone_enough=bool(published) and not asked and repeat is None)
    if repeat is not None:
        from ggbench.commands.comparing import compare_again

        compare_again([column[0].run for column in columns], repeat, output, asked, fail_if_undecided)
    checks = check_limits(comparison, asked)
    runs = [column[0].run for column in columns]
    _show(runs, comparison, checks, published, plot, output)
    conclude(checks, fail_if_undecided)


def _compared(store: Store, columns: Sequence[Column], *, is_alone_enough: bool) -> Comparison:
    """Return the comparison. Raises UsageError for a single run unless that is enough, or if nothing is comparable."""
    from ggbench.decisions.compare.comparison import compare_stored

    if len(columns) < 2 and not is_alone_enough:
        raise UsageError("comparing needs at least two runs", "ggbench results lists their numbers")
    comparison = compare_stored(store, columns)
    if comparison.is_empty and len(columns) > 1:
        kinds = ", ".join(
            f"{row.letter} is {row.name}, a run of {row.run.head.kind}" for row in comparison.rows
        )
        raise UsageError(comparison.sentence.rstrip("."), f"compare runs of one kind: {kinds}")
    return comparison


def _show(
    runs: Sequence[Run],
    comparison: Comparison,
    checks: Sequence[LimitCheck],
    against: str | None,
    plot: bool,
    output: Output,
) -> None:
    from ggbench.commands.run_output import nearest_rows, show_answer
    from ggbench.decisions.compare.show import COMPARE, NearestRows, comparison_answer, comparison_document
    from ggbench.show.answer import Answer

    if output.as_json:
        published = [NearestRows(run.run_id, nearest_rows(run)) for run in (runs if against else ())]
        output.record(COMPARE, comparison_document(comparison, checks, published))
        return
    answer = comparison_answer(comparison) if len(comparison.rows) > 1 else Answer("")
    show_answer(answer, runs, output, plot=plot, against=against)
