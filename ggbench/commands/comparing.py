"""Compare what was measured: limits that fail a command, and one quant run by several engines in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec
from msgspec.structs import replace

from ggbench.commands.options import MeasureRequest, as_record, option
from ggbench.errors import ExitCode, UsageError
from ggbench.fields import config_options
from ggbench.show import letter
from ggbench.text import in_words, sanitize
from ggbench.units import counted, parse_percent

if TYPE_CHECKING:
    from ggbench.commands.measuring import MeasureResult
    from ggbench.decisions.compare.comparison import Comparison
    from ggbench.decisions.compare.thresholds import LimitCheck
    from ggbench.runs.experiment import Experiment
    from ggbench.runs.progress import Finished
    from ggbench.runs.run import Settings
    from ggbench.runs.store.database import Store
    from ggbench.runs.summary import QuantSummary


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _parse_limit(_ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    try:
        share = None if text is None else parse_percent(text)
    except UsageError as error:
        raise UsageError(f"{param.opts[0]}: {error.message}", error.hint) from None
    if share is not None and share >= 1 and param.opts[0] == "--fail-if-slower":
        raise UsageError(
            f"--fail-if-slower is a share of the first's speed, and none can be {sanitize(str(text))} slower",
            "give less than 100%",
        )
    return share


def limit_option(flag: str, text: str) -> Callable[[_Function], _Function]:
    """Return the option of a limit on regressions; the command gets a share, or None."""
    return option(flag, text, callback=_parse_limit, metavar="PERCENT")


fail_undecided_option = option(
    "--fail-if-undecided", "Exit with 1 also if such a limit is undecided.", is_flag=True
)


class EnginesLimit(msgspec.Struct, frozen=True):
    """The limit of a comparison of several engines."""

    fail_if_slower: float | None
    fail_if_undecided: bool


engines_limit_options = as_record(
    "limit",
    EnginesLimit,
    EnginesLimit.__struct_fields__,
    limit_option(
        "--fail-if-slower",
        "Exit with 1 if a later --engine is so much slower. By over PERCENT of the first's speed.",
    ),
    fail_undecided_option,
)
"""Add both; the command gets `limit`, an EnginesLimit."""


def refuse_undecided_alone(fail_if_undecided: bool, limits: Iterable[float | None]) -> None:
    """Raise UsageError for --fail-if-undecided without a limit."""
    if fail_if_undecided and all(limit is None for limit in limits):
        raise UsageError("--fail-if-undecided needs a limit", "add one, such as --fail-if-slower 5%")


def conclude(comparison: Comparison, checks: Sequence[LimitCheck], fail_if_undecided: bool) -> None:
    """Print one line about the limits on stderr, and exit with 1 if one is exceeded or, where asked, undecided."""
    for state in ("exceeded", "undecided", "kept"):
        fails = state == "exceeded" or (state == "undecided" and fail_if_undecided)
        code = ExitCode.UNEXPECTED if fails else ExitCode.DONE
        found = [check for check in checks if check.state == state]
        if found:
            worst = max(found, key=lambda check: check.worse_by_ci95[state != "exceeded"])
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            click.echo(f"{worst.message(comparison)}{more}", err=True)
            raise click.exceptions.Exit(code)


def refuse_limit_of_one(asked: MeasureRequest, limit: EnginesLimit) -> None:
    """Raise UsageError for a limit without engines to compare, and for --fail-if-undecided without a limit."""
    refuse_undecided_alone(limit.fail_if_undecided, [limit.fail_if_slower])
    if limit.fail_if_slower is not None and len(asked.engines) < 2:
        raise UsageError(
            "--fail-if-slower compares several --engine, of which fewer than two are given",
            "give two, or compare stored runs: ggbench compare NEW --against OLD --fail-if-slower 5%",
        )


def compare_engines(
    experiment: Experiment, once: Settings, n_turns: int, asked: MeasureRequest, limit: EnginesLimit
) -> NoReturn:
    """Measure one quant by every engine in turns, print the comparison of their means, and end the command.

    Each turn is a run of each engine with the settings `once`. A failed run decides the exit code, then the limit.
    """
    from ggbench.commands.measuring import exit_code_of

    measured, order = _measure_turns(experiment, once, n_turns, asked)
    columns, failed = _by_engine(measured, order)
    _notice_engines(asked, columns, failed)
    limits: dict[str, float] = {}
    if limit.fail_if_slower is not None and not any(failed):
        limits = {"--fail-if-slower": limit.fail_if_slower}
    found = [column for column in columns if column]
    compared = _compare_columns(measured, found, limits) if len(found) > 1 else None
    if measured.store_error is not None or measured.is_cancelled:
        measured.leave()
    for each in measured.finished:
        if not each.run.is_complete:
            raise click.exceptions.Exit(exit_code_of(each))
    if compared is not None:
        conclude(*compared, limit.fail_if_undecided)
    measured.leave()


def _measure_turns(
    experiment: Experiment, once: Settings, n_turns: int, asked: MeasureRequest
) -> tuple[MeasureResult, list[int]]:
    """Return the finished runs, and the engine of each by its number."""
    from ggbench.commands.measure_options import with_tuned
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.stats.turns import rotated

    engines = asked.engines
    if len(asked.model.quants) > 1:
        quants = in_words([sanitize(quant) for quant in asked.model.quants])
        raise UsageError(f"several engines measure one quant at a time, not {quants}", "name one of them")
    for setup in dict.fromkeys(engines):
        experiment.check(setup, once)
        setup.check_program()
    (job,) = with_tuned(make_jobs(experiment, once, replace(asked, engines=())), asked)
    order = [index for turn in range(n_turns) for index in rotated(range(len(engines)), turn)]
    return measure([replace(job, setup=engines[index]) for index in order], asked, is_sweep=True), order


def _by_engine(
    measured: MeasureResult, order: Sequence[int]
) -> tuple[list[list[QuantSummary]], list[list[Finished]]]:
    """Return the completed runs of each engine, and those that failed."""
    columns: list[list[QuantSummary]] = [[] for _ in measured.asked.engines]
    failed: list[list[Finished]] = [[] for _ in measured.asked.engines]
    for index, finished, summary in zip(order, measured.finished, measured.summaries, strict=False):
        if summary.run.is_complete:
            columns[index].append(summary)
        else:
            failed[index].append(finished)
    return columns, failed


def _notice_engines(
    asked: MeasureRequest, columns: Sequence[Sequence[QuantSummary]], failed: Sequence[Sequence[Finished]]
) -> None:
    """Print the letter and the number of runs of each engine, and the reason of its first failure."""
    found = [column for column in columns if column]
    for setup, column, failures in zip(asked.engines, columns, failed, strict=True):
        text = setup.engine_option or f"{' '.join(['llama', *config_options(setup)])}, ggbench's own"
        runs = (
            f"{letter(found.index(column))}, {counted(len(column), 'run')}"
            if column
            else "no run was completed"
        )
        failure = f", {len(failures)} failed: {failures[0].run.reason}" if failures else ""
        asked.output.notice(f"{text}: {runs}{failure}")


def _compare_columns(
    measured: MeasureResult, columns: Sequence[Sequence[QuantSummary]], limits: Mapping[str, float]
) -> tuple[Comparison, Sequence[LimitCheck]]:
    """Print the comparison of engines. Raises UsageError, after what it prints, for a limit that cannot be checked."""
    from ggbench.commands.run_output import show_run_ids
    from ggbench.decisions.compare.comparison import compare
    from ggbench.decisions.compare.estimates import RunSpreads, stored_repeats
    from ggbench.decisions.compare.show import COMPARE, ComparisonReport, comparison_fields
    from ggbench.decisions.compare.thresholds import check_limits
    from ggbench.runs.store.database import Store

    output = measured.asked.output
    with Store.open() as store:
        found = [[_as_stored(store, each) for each in column] for column in columns]
        comparison = compare(found, RunSpreads(stored_repeats(store, found)))
    if not output.as_json:
        output.show(ComparisonReport(comparison))
    show_run_ids(measured)
    checks: Sequence[LimitCheck] = ()
    try:
        checks = check_limits(comparison, limits)
    finally:
        if output.as_json:
            output.document(COMPARE, **comparison_fields(comparison, [column[0] for column in found], checks))
    return comparison, checks


def _as_stored(store: Store, summary: QuantSummary) -> QuantSummary:
    """Return the summary of a run with its times, by which turns are recognized."""
    from ggbench.runs.stored import read_run

    run_id = summary.run.run_id
    return summary if run_id is None else replace(summary, runs=(read_run(store, store.load_run(run_id)),))
