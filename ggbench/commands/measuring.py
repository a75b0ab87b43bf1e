"""From jobs to finished runs: what every command that measures does, whatever its experiment.

A command makes its jobs, and calls `measure`, `show_measured` of `run_output`, and `MeasureResult.leave`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import NoReturn

import click
import msgspec
from msgspec.structs import replace

from ggbench.commands.downloads import allow_downloads, show_left_out
from ggbench.commands.hints import hint_for, tuning_hint
from ggbench.commands.load_options import IgnoredGpuOptions, check_main_gpu, check_rpc, given_setup
from ggbench.commands.options import MeasureRequest
from ggbench.commands.process import DOWNLOAD_INTERRUPTED, interrupt_sets, interruptible
from ggbench.commands.progress import view_of
from ggbench.engines.endings import Outcome
from ggbench.errors import ExitCode, GgbenchError, StoreError
from ggbench.models.targets import resolve, resolve_one
from ggbench.runs.driver import run_jobs
from ggbench.runs.experiment import Experiment, Job
from ggbench.runs.progress import Finished, ModelReady, Progress, Started, Working
from ggbench.runs.run import Run, Settings
from ggbench.runs.session import RunContext, run_context
from ggbench.runs.store.database import Store
from ggbench.runs.summary import QuantSummary
from ggbench.show.names import distinct_by_kv, quant_names
from ggbench.text import sanitize

_EXIT_CODES = {
    Outcome.COMPLETED: ExitCode.DONE,
    Outcome.OUT_OF_MEMORY: ExitCode.DOES_NOT_FIT,
    Outcome.CANCELLED: ExitCode.INTERRUPTED,
}
_STOPPING = "stopping; what was measured is kept (Ctrl-C again exits at once)"


class MeasureResult(msgspec.Struct, frozen=True):
    """What the jobs of a command led to."""

    asked: MeasureRequest
    jobs: tuple[Job, ...]
    groups: tuple[tuple[Finished, ...], ...]
    """What each job that ended led to: its own run, then any that belong to it, such as the search after a decode of
    `bench`. Jobs that were not begun have none."""
    is_sweep: bool
    """Whether the runs are shown side by side, and an error of one is a row among them."""
    is_cancelled: bool

    @property
    def finished(self) -> tuple[Finished, ...]:
        """The end of each job itself."""
        return tuple(group[0] for group in self.groups)

    @property
    def summaries(self) -> tuple[QuantSummary, ...]:
        """Each job's runs joined."""
        return tuple(QuantSummary.of(record.run for record in group) for group in self.groups)

    @property
    def error(self) -> GgbenchError | None:
        """Why an only job has no result; the command ends with it."""
        return self.finished[0].error if self.groups and not self.is_sweep else None

    @property
    def store_error(self) -> StoreError | None:
        """Why the store does not have all of it."""
        records = itertools.chain.from_iterable(self.groups)
        return next((record.store_error for record in records if record.store_error is not None), None)

    @property
    def exit_code(self) -> ExitCode:
        """0 where any job completed and none was cancelled, else that of the first."""
        if self.is_cancelled or not self.groups:
            return ExitCode.INTERRUPTED
        if any(record.run.is_complete for record in self.finished):
            return ExitCode.DONE
        first = self.finished[0]
        return first.error.exit_code if first.error else _EXIT_CODES.get(first.run.outcome, ExitCode.ENGINE_FAILED)

    def leave(self) -> NoReturn:
        """End the command, once the runs are shown, with the error of an only job, the store's, or its exit code."""
        if self.error is not None:
            if self.store_error is not None:
                self.asked.output.notice(self.store_error.message)
            raise self.error
        if self.store_error is not None:
            raise self.store_error
        raise click.exceptions.Exit(self.exit_code)


def make_jobs(experiment: Experiment, settings: Settings, asked: MeasureRequest, *, every: bool = False) -> list[Job]:
    """One job for the target that was asked for, or for `every` one that MODEL and QUANTs mean.

    Downloads are agreed to. Raises UsageError for a setup that does not hold the settings, for a GPU that is not here
    and where several targets are meant by what has to be one, and as `resolve` and `allow_downloads`.
    """
    given = given_setup(experiment, asked)
    if not asked.model.is_server:
        experiment.check(given, settings)
        check_main_gpu(asked.setup)
        check_rpc(asked.setup)
    with interruptible(asked.output):
        hub, server = asked.hub.access(), asked.server
        if server is not None and asked.timeout_s is not None:
            server = replace(server, timeout_s=min(server.timeout_s, asked.timeout_s))
        if every:
            targets = resolve(asked.model, hub=hub, server=server)
        else:
            targets = (resolve_one(asked.model, hub=hub, server=server),)
    if every:
        show_left_out(asked, targets)
    for target in targets:
        if target.own is not None:
            target.own.check_runs()
    setups = [target.setup(given) for target in targets]
    allow_downloads(targets, asked.hub, asked.output)
    return [Job(experiment, target, setup, settings) for target, setup in zip(targets, setups, strict=True)]


def warn_of_memory_use(asked: MeasureRequest) -> None:
    """Warn before a search without a limit, which goes as far as memory does."""
    if asked.setup.memory_limit_bytes is None:
        asked.output.notice("without --memory-limit a search may use nearly all free memory")


def measure(
    jobs: Sequence[Job],
    asked: MeasureRequest,
    *,
    run: Callable[[RunContext, Sequence[Job]], Generator[Progress]] = run_jobs,
    is_sweep: bool | None = None,
) -> MeasureResult:
    """Run the jobs, drawing their progress; the first Ctrl-C stops them, and what was measured is kept.

    `run` may add runs to those of the jobs. `is_sweep` as in `MeasureResult`; None where there are several jobs.
    """
    experiments = [job.experiment for job in jobs]
    default_s = max((each.timeout_s for each in experiments if each.timeout_s is not None), default=None)
    has_downloads = any(job.target.download_bytes for job in jobs)
    with Store.open() as store:
        asked.output.notice(*store.notices)
        with interruptible(asked.output) if has_downloads else contextlib.nullcontext():
            context = run_context(
                store,
                given_bandwidth=asked.bandwidth,
                timeout_s=asked.timeout_s or default_s,
                needs_bandwidth=any(job.experiment.measures_speed and job.setup.loads_file for job in jobs),
            )
        sweeps = len(jobs) > 1 if is_sweep is None else is_sweep
        measured = _follow(run(context, jobs), context, tuple(jobs), asked, is_sweep=sweeps)
    _advise(measured)
    return measured


def _follow(
    progress: Generator[Progress], context: RunContext, jobs: tuple[Job, ...], asked: MeasureRequest, *, is_sweep: bool
) -> MeasureResult:
    names = quant_names([job.target.subject for job in jobs])
    view = view_of(asked.output, distinct_by_kv(names, [job.setup for job in jobs]))
    ignored = IgnoredGpuOptions(asked.output)
    groups: list[list[Finished]] = []
    job, is_started, is_stopping = jobs[0], False, False
    with interrupt_sets(context.cancel), contextlib.closing(view), contextlib.closing(progress):
        for record in progress:
            if context.cancel.is_set() and not is_stopping and not (isinstance(record, Working) and record.is_bytes):
                is_stopping = True
                view.notice(_STOPPING)
            ends_command = False
            match record:
                case Started(index=index):
                    job, is_started = jobs[index], True
                case ModelReady(memory):
                    ignored.look(job.setup, memory)
                case Finished(run, error):
                    ignored.look(job.setup, run.memory)
                    ends_command = is_started and error is not None and not is_sweep
                    if is_started:
                        groups.append([])
                    groups[-1].append(record)
                    is_started = False
            if not ends_command:
                view.draw(record)
    return MeasureResult(asked, jobs, tuple(map(tuple, groups)), is_sweep, context.cancel.is_set())


def _named(finished: Sequence[Finished]) -> tuple[list[Run], tuple[str, ...]]:
    runs = [record.run for record in finished]
    return runs, quant_names([run.subject for run in runs])


def _advise(measured: MeasureResult) -> None:
    """What to print after the last run: a hint, failures that `--quiet` has not shown, an interrupted download."""
    jobs, finished, output = measured.jobs, measured.finished, measured.asked.output
    for run, name in zip(*_named(finished), strict=True):
        for change in run.head.environment.changes if run.head.environment else ():
            output.notice(f"{name}: {change} while it was measured")
    if len(jobs) == len(finished) == 1 and finished[0].error is None:
        hint = hint_for(jobs[0], finished[0].run, is_searched=len(measured.groups[0]) > 1)
        if hint:
            output.notice(f"Hint: {hint}")
    if hint := tuning_hint(jobs[: len(finished)], [record.run for record in finished]):
        output.notice(f"Hint: {hint}")
    if output.quiet and measured.error is None:  # silent only while nothing fails
        for run, name in zip(*_named(finished), strict=True):
            if run.outcome not in (Outcome.COMPLETED, Outcome.CANCELLED):
                click.echo(f"Error: {name}: {sanitize(run.reason)}", err=True)
    was_measuring = bool(finished) and finished[-1].run.outcome is Outcome.CANCELLED
    next_job = jobs[len(finished) : len(finished) + 1]
    if measured.is_cancelled and not was_measuring and any(job.target.download_bytes for job in next_job):
        output.notice(DOWNLOAD_INTERRUPTED)
