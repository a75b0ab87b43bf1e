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
    from ggbench.decisions.compare.estimates import Column, RunSpreads
    from ggbench.decisions.compare.thresholds import LimitCheck
    from ggbench.runs.summary import QuantSummary


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench compare 3 4 --plot
    ggbench compare --model qwen2.5-7b
    ggbench compare 12 --against base.json --fail-if-slower 5%
    """,
)
@click.argument("named", metavar="[RUN|FILE]...", nargs=-1)
@option("--model", "Compare the quants of this MODEL. By the newest run of each kind.")
@option(
    "--against", "Compare with this, or show published rows. The nearest ones.",
    metavar="RUN|FILE|published",
)  # fmt: skip
@option(
    "--average", "Average repeated runs; of a --model, at most the 12 newest of each setting.", is_flag=True
)
@limit_option(
    "--fail-if-slower", "Exit with 1 if a run is so much slower. By more than PERCENT of the first's speed."
)
@limit_option(
    "--fail-if-larger", "Exit with 1 if a run takes so much more memory. More than PERCENT above the first's."
)
@limit_option(
    "--fail-if-worse",
    "Exit with 1 if perplexity or KLD is higher. By more than PERCENT above the first's.",
)
@fail_undecided_option
@plot_option
@output_options
def command(
    named: tuple[str, ...],
    model: str | None,
    against: str | None,
    average: bool,
    fail_if_slower: float | None,
    fail_if_larger: float | None,
    fail_if_worse: float | None,
    fail_if_undecided: bool,
    plot: bool,
    output: Output,
) -> None:
    """Compare stored runs, by their numbers in `ggbench results`, or files: which is better, and by how much.

    A run is better (★) if the ratio's 95 % interval excludes 1. There is no difference if the interval lies within 10 %
    either way; otherwise it is undecided.

    Files are read but not stored: whole runs of `ggbench export --format json`, and llama-bench's files.

    The interval includes the variation between loads of the same file, estimated from repeated runs in the store; until
    there are a few, 2 % is assumed (10 % if unsteady), so a single run of each rarely shows that there is no
    difference. Times are undecided if other programs used a quarter of the CPU or more, on average over the runs of one
    side, unless the interval of runs in turns, twice as wide, still excludes 1. Not judged: a run far from its repeats,
    values without an interval, bounds, speeds over different lengths, and memory at different n_ctx. Perplexities are
    compared chunk by chunk, and only if text, chunks and n_batch are the same.

    If the whole interval exceeds a --fail-if-... limit, compare says why and exits with 1. An undecided limit exits
    with 0, or with --fail-if-undecided with 1.
    """
    from ggbench.cli.named_runs import PUBLISHED, compared_runs
    from ggbench.decisions.compare.estimates import RunSpreads, stored_repeats
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
        hint = "omit --json, or save the plot: ggbench report RUN -o FILE.svg"
        raise UsageError("--plot cannot be used with --json", hint)
    with Store.open() as store:
        columns, notices = compared_runs(store, named, model, against, average=average)
        output.notice(*store.notices, *notices)
        repeats = stored_repeats(store, columns)
    summaries = [column[0] for column in columns]
    if len(columns) == 1 and against == PUBLISHED and not asked:
        _show(summaries, None, (), True, plot, output)
        return
    comparison = _compared(columns, RunSpreads(repeats))
    checks = check_limits(comparison, asked)
    _show(summaries, comparison, checks, against == PUBLISHED, plot, output)
    if checks:
        conclude(comparison, checks, fail_if_undecided)


def _compared(columns: Sequence[Column], spreads: RunSpreads) -> Comparison:
    """Return the comparison. Raises UsageError for a single run, or if nothing is comparable."""
    from ggbench.decisions.compare.comparison import compare
    from ggbench.show import letter

    if len(columns) < 2:
        hint = "ggbench results lists their numbers; --average makes one of repeats"
        raise UsageError("comparing needs at least two runs", hint)
    comparison = compare(columns, spreads)
    if comparison.is_empty:
        runs = ", ".join(f"{letter(index)} is {name}" for index, name in enumerate(comparison.names))
        raise UsageError(comparison.sentences[0].rstrip("."), f"compare runs of one kind: {runs}")
    return comparison


def _show(
    summaries: Sequence[QuantSummary],
    comparison: Comparison | None,
    checks: Sequence[LimitCheck],
    with_published: bool,
    plot: bool,
    output: Output,
) -> None:
    if output.as_json:
        _print_document(summaries, comparison, checks, with_published, output)
        return
    from ggbench.commands.run_output import show_against, show_plot
    from ggbench.decisions.compare.show import ComparisonReport

    if plot:
        show_plot(summaries, output)
        click.echo()
    if comparison is not None:
        output.show(ComparisonReport(comparison))
    if with_published:
        show_against([run for summary in summaries for run in summary.runs], output)


def _print_document(
    summaries: Sequence[QuantSummary],
    comparison: Comparison | None,
    checks: Sequence[LimitCheck],
    with_published: bool,
    output: Output,
) -> None:
    from ggbench.decisions.compare.show import COMPARE, PUBLISHED_RUN, comparison_fields
    from ggbench.show.presenter import presenter_of

    fields: dict[str, object] = {"rows": summaries}
    if comparison is not None:
        fields = comparison_fields(comparison, summaries, checks)
    if with_published:
        fields["published"] = [
            PUBLISHED_RUN.value(run, **(presenter_of(run.head.kind).against_document(run) or {}))
            for summary in summaries
            for run in summary.runs
        ]
    output.document(COMPARE, **fields)
