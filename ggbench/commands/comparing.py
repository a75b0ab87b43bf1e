"""Compare what was measured: limits that fail a command, and one quant run by several engines in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec
from msgspec.structs import replace

from ggbench.commands.options import HubOptions, MeasureRequest, as_record, option
from ggbench.errors import ExitCode, UsageError
from ggbench.text import in_words, sanitize
from ggbench.units import counted, parse_percent

if TYPE_CHECKING:
    from ggbench.commands.measuring import MeasureResult
    from ggbench.commands.output import Output
    from ggbench.decisions.compare.thresholds import LimitCheck
    from ggbench.runs.experiment import Experiment, Job
    from ggbench.runs.progress import Finished
    from ggbench.runs.run import Run, Settings
    from ggbench.runs.store.database import Store
    from ggbench.runs.summary import QuantSummary


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _parse_limit(_ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else parse_percent(text)
    except UsageError as error:
        raise UsageError(f"{param.opts[0]}: {error.message}", error.hint) from None


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


def conclude(checks: Sequence[LimitCheck], fail_if_undecided: bool) -> None:
    """Print one line about the limits on stderr, and exit with 1 if one is exceeded or, where asked, undecided."""
    for state in ("exceeded", "undecided", "kept"):
        fails = state == "exceeded" or (state == "undecided" and fail_if_undecided)
        code = ExitCode.UNEXPECTED if fails else ExitCode.DONE
        found = [check for check in checks if check.state == state]
        if found:
            worst = max(found, key=lambda check: check.worse_by)
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            click.echo(f"{worst.message}{more}", err=True)
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
    experiment: Experiment, once: Settings, repeat: int, asked: MeasureRequest, limit: EnginesLimit
) -> NoReturn:
    """Measure one quant by every engine with the settings `once`, in at least four turns, like `measure_in_turns`."""
    from ggbench.commands.measure_options import with_tuned
    from ggbench.commands.measuring import make_jobs
    from ggbench.stats.turns import FEWEST_TURNS

    engines = asked.engines
    if len(asked.model.quants) > 1:
        quants = in_words([sanitize(quant) for quant in asked.model.quants])
        raise UsageError(f"several engines measure one quant at a time, not {quants}", "name one of them")
    for setup in dict.fromkeys(engines):
        experiment.check(setup, once)
        setup.check_program()
    (job,) = with_tuned(make_jobs(experiment, once, replace(asked, engines=())), asked)
    limits = {} if limit.fail_if_slower is None else {"--fail-if-slower": limit.fail_if_slower}
    measure_in_turns(
        [replace(job, setup=setup) for setup in engines],
        max(repeat, FEWEST_TURNS),
        asked,
        limits,
        limit.fail_if_undecided,
    )


def compare_again(
    runs: Sequence[Run], n_turns: int, output: Output, limits: Mapping[str, float], fail_if_undecided: bool
) -> NoReturn:
    """Measure stored runs again, like `measure_in_turns`. Raises UsageError for one that cannot be repeated."""
    from ggbench.commands.downloads import allow_downloads
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.reference import parse_model
    from ggbench.models.targets import resolve_one
    from ggbench.runs.comparable import is_repeatable
    from ggbench.runs.experiment import Job, experiment_of

    jobs, refs = [], []
    for run in runs:
        experiment, subject = experiment_of(run.head.kind), run.subject
        if not is_repeatable(run):
            raise UsageError(
                f"run {run.run_id} cannot be measured again by compare", "measure it by its command"
            )
        name = (subject.file,) if subject.source == "file" else (subject.model, subject.quant)
        refs.append(parse_model(*name))
        jobs.append(Job(experiment, resolve_one(refs[-1]), run.head.setup, run.head.settings))
    asked = MeasureRequest(refs[0], LlamaConfig(), HubOptions(), output)
    allow_downloads([job.target for job in jobs], asked.hub, output)
    measure_in_turns(jobs, n_turns, asked, limits, fail_if_undecided)


def measure_in_turns(
    sides: Sequence[Job],
    n_turns: int,
    asked: MeasureRequest,
    limits: Mapping[str, float],
    fail_if_undecided: bool,
) -> NoReturn:
    """Measure jobs in turns, a run of each in every turn, print the comparison of their means, and end the command.

    A failed run decides the exit code, then a limit.
    """
    from ggbench.commands.measuring import exit_code_of, measure
    from ggbench.stats.turns import ordered

    order = [index for turn in range(n_turns) for index in ordered(range(len(sides)), turn)]
    measured = measure([sides[index] for index in order], asked, is_sweep=True)
    columns = _complete(order, measured.summaries)
    failed = [each for each in measured.finished if not each.run.is_complete]
    _notice_failures(failed, asked.output)
    compared: Sequence[LimitCheck] = ()
    if len(columns) > 1:
        compared = _show_columns(measured, columns, {} if failed else limits)
    if measured.store_error is None and not measured.is_cancelled:
        if failed:
            raise click.exceptions.Exit(exit_code_of(failed[0]))
        conclude(compared, fail_if_undecided)
    measured.leave()


def _complete(order: Sequence[int], summaries: Sequence[QuantSummary]) -> list[list[QuantSummary]]:
    """Return the complete runs of each side that has any; `order` has the side of each run."""
    sides: dict[int, list[QuantSummary]] = {side: [] for side in sorted(order)}
    for side, summary in zip(order, summaries, strict=False):
        if summary.run.is_complete:
            sides[side].append(summary)
    return list(filter(None, sides.values()))


def _notice_failures(failed: Sequence[Finished], output: Output) -> None:
    """Print how many runs of each engine failed, and why the first did."""
    for setup in dict.fromkeys(each.run.head.setup for each in failed):
        reasons = [each.run.reason for each in failed if each.run.head.setup == setup]
        engine = sanitize(setup.engine_option or setup.engine)
        output.notice(f"{engine}: {counted(len(reasons), 'run')} failed: {reasons[0]}")


def _show_columns(
    measured: MeasureResult, columns: Sequence[Sequence[QuantSummary]], limits: Mapping[str, float]
) -> Sequence[LimitCheck]:
    """Print the comparison. Raises UsageError, after what it prints, for a limit that cannot be checked."""
    from ggbench.decisions.compare.comparison import compare_stored
    from ggbench.decisions.compare.show import COMPARE, comparison_answer, comparison_document
    from ggbench.decisions.compare.thresholds import check_limits
    from ggbench.runs.store.database import Store

    output = measured.asked.output
    with Store.open() as store:
        comparison = compare_stored(store, [[_as_stored(store, each) for each in column] for column in columns])
    if not output.as_json:
        output.answer(comparison_answer(comparison))
    checks: Sequence[LimitCheck] = ()
    try:
        checks = check_limits(comparison, limits)
    finally:
        if output.as_json:
            output.record(COMPARE, comparison_document(comparison, checks))
    return checks


def _as_stored(store: Store, summary: QuantSummary) -> QuantSummary:
    """Return the summary of a run with its times, by which turns are recognized."""
    from ggbench.runs.stored import read_run

    run_id = summary.run.run_id
    return summary if run_id is None else replace(summary, run=read_run(store, store.load_run(run_id)))
