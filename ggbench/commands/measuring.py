"""Turn jobs into finished runs, for every command that measures.

A command calls `make_jobs` and `run_output.measure_and_show`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import NoReturn

import click

from ggbench.commands.downloads import allow_downloads
from ggbench.commands.load_options import IgnoredGpuOptions
from ggbench.commands.measure_options import engine_offer, given_setup
from ggbench.commands.options import MeasureRequest
from ggbench.commands.output import DOWNLOAD_INTERRUPTED, interruptible
from ggbench.commands.process import interrupt_sets
from ggbench.commands.progress import view_of
from ggbench.engines.endings import Outcome
from ggbench.errors import ExitCode, GgbenchError, StoreError
from ggbench.machine.readings import BUSY_SHARE, OthersWatch
from ggbench.models.targets import resolve, single
from ggbench.record import Record
from ggbench.runs.driver import run_jobs
from ggbench.runs.experiment import Experiment, Job, experiment_of
from ggbench.runs.progress import Finished, ModelReady, Progress, Started, Working
from ggbench.runs.run import Run, Settings
from ggbench.runs.session import RunContext, run_context
from ggbench.runs.store.database import Store
from ggbench.show.listed_runs import measuring_elsewhere
from ggbench.show.names import distinct_by_engine, quant_names
from ggbench.show.words import say
from ggbench.text import sanitize
from ggbench.units import KV_CELLS, format_percent

_EXIT_CODES = {
    Outcome.COMPLETED: ExitCode.DONE,
    Outcome.OUT_OF_MEMORY: ExitCode.DOES_NOT_FIT,
    Outcome.CANCELLED: ExitCode.INTERRUPTED,
}
_STOPPING = "stopping; measurements are kept (Ctrl-C again exits at once)"


class MeasureResult(Record):
    """The finished runs of a command's jobs."""

    asked: MeasureRequest
    jobs: tuple[Job, ...]
    finished: tuple[Finished, ...]
    is_cancelled: bool

    @property
    def is_sweep(self) -> bool:
        """Whether runs are shown side by side, with errors as rows."""
        return len(self.jobs) > 1

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(record.run for record in self.finished)

    @property
    def error(self) -> GgbenchError | None:
        """The error of a single job, which ends the command."""
        return self.finished[0].error if self.finished and not self.is_sweep else None

    @property
    def store_error(self) -> StoreError | None:
        """The first error while storing runs."""
        return next((each.store_error for each in self.finished if each.store_error is not None), None)

    @property
    def exit_code(self) -> ExitCode:
        """0 if any job completed and none was cancelled, else the exit code of the first job."""
        if self.is_cancelled or not self.finished:
            return ExitCode.INTERRUPTED
        if any(record.run.is_complete for record in self.finished):
            return ExitCode.DONE
        return exit_code_of(self.finished[0])

    def leave(self) -> NoReturn:
        """End the command with the single job's error, the store's error, or the exit code."""
        if self.error is not None:
            if self.store_error is not None:
                self.asked.output.notice(self.store_error.message)
            raise self.error
        if self.store_error is not None:
            raise self.store_error
        raise click.exceptions.Exit(self.exit_code)


def exit_code_of(finished: Finished) -> ExitCode:
    """Return the exit code of a command that ends with this run."""
    error, run = finished.error, finished.run
    return error.exit_code if error else _EXIT_CODES.get(run.outcome, ExitCode.ENGINE_FAILED)


def make_jobs(
    experiment: Experiment, settings: Settings, asked: MeasureRequest, *, every: bool = False
) -> list[Job]:
    """Return the job of the target that MODEL and QUANT select, or with `every` all of them; asks about downloads.

    Raises UsageError for settings that do not fit the setup, or several targets without `every`, and
    like `resolve` and `allow_downloads`.
    """
    given = given_setup(experiment, asked)
    if not asked.model.is_server:
        experiment.check(given, settings)
        asked.setup.check_program()
    with interruptible(asked.output):
        key, timeout_s = asked.api_key_env or "", asked.timeout_s
        targets = resolve(asked.model, hub=asked.hub.access(), api_key_env=key, timeout_s=timeout_s)
    if not every:
        targets = (single(targets),)
    for target in targets:
        if target.source is not None:
            target.source.check_runs()
    jobs = experiment.jobs(settings, asked.model, targets, given, asked.hub.access())
    allow_downloads(targets, asked.hub, asked.output)
    return jobs


def measure(jobs: Sequence[Job], asked: MeasureRequest) -> MeasureResult:
    """Run the jobs and draw their progress; the first Ctrl-C stops them and keeps the results."""
    times_here = any(job.experiment.measures_speed and not job.target.is_served for job in jobs)
    watch, output = OthersWatch(), asked.output
    with Store.open() as store:
        is_one = len({type(job.setup) for job in jobs}) == 1
        offer = engine_offer(jobs[0].experiment, jobs[0].setup) if is_one else ""
        output.notice(*filter(None, [offer, *store.notices, measuring_elsewhere(store)]))
        context = _context_of(jobs, asked, store, times_here)
        share = (watch.share() or 0.0) if times_here else 0.0
        if share >= BUSY_SHARE:
            output.notice(say("hint.busy", share=format_percent(share)))
        measured = _follow(run_jobs(context, jobs), context, tuple(jobs), asked)
    _advise(measured)
    return measured


def _context_of(jobs: Sequence[Job], asked: MeasureRequest, store: Store, needs_bandwidth: bool) -> RunContext:
    timeouts_s = [job.experiment.timeout_s for job in jobs if job.experiment.timeout_s is not None]
    has_downloads = any(job.target.download_bytes for job in jobs)
    with interruptible(asked.output) if has_downloads else contextlib.nullcontext():
        return run_context(
            store,
            given_bandwidth=asked.bandwidth,
            timeout_s=asked.timeout_s or max(timeouts_s, default=None),
            needs_bandwidth=needs_bandwidth,
        )


def _follow(
    progress: Generator[Progress],
    context: RunContext,
    jobs: tuple[Job, ...],
    asked: MeasureRequest,
) -> MeasureResult:
    setups = [job.setup for job in jobs]
    names = distinct_by_engine(quant_names([job.target.subject for job in jobs]), setups)
    view = view_of(asked.output, names)
    ignored = IgnoredGpuOptions(asked.output)
    finished: list[Finished] = []
    job, is_stopping = jobs[0], False
    with interrupt_sets(context.cancel), contextlib.closing(view), contextlib.closing(progress):
        for record in progress:
            if not is_stopping and _stops(context, record):
                is_stopping = True
                view.notice(_STOPPING)
            match record:
                case Started(index=index):
                    job = jobs[index]
                case ModelReady(memory):
                    ignored.look(job.setup, memory)
                case Finished(run):
                    ignored.look(job.setup, run.memory)
                    finished.append(record)
                    if len(jobs) == 1 and record.ends_command:
                        continue
            view.draw(record)
    return MeasureResult(asked, jobs, tuple(finished), context.cancel.is_set())


def _stops(context: RunContext, record: Progress) -> bool:
    """Return whether a measurement ends at its next step; an interrupted download ends at once."""
    return context.cancel.is_set() and not (isinstance(record, Working) and record.is_bytes)


def _advise(measured: MeasureResult) -> None:
    """Print what remains after the last run: hints, failures despite --quiet, an interrupted download."""
    jobs, finished, output = measured.jobs, measured.finished, measured.asked.output
    if hint := _failure_hint(measured):
        output.notice(f"Hint: {hint}")
    if output.quiet and measured.error is None:  # --quiet does not hide failures
        for run, name in zip(measured.runs, quant_names([run.subject for run in measured.runs]), strict=True):
            if run.outcome not in (Outcome.COMPLETED, Outcome.CANCELLED):
                click.echo(f"Error: {name}: {sanitize(run.reason)}", err=True)
    if measured.is_cancelled and any(job.target.download_bytes for job in jobs[len(finished) :]):
        output.notice(DOWNLOAD_INTERRUPTED)


def _failure_hint(measured: MeasureResult) -> str:
    """Return advice for the only run of a command, if it failed; empty without any."""
    jobs, finished = measured.jobs, measured.finished
    if len(jobs) != 1 or len(finished) != 1 or finished[0].error is not None:
        return ""
    job, run = jobs[0], finished[0].run
    if run.outcome is Outcome.OUT_OF_MEMORY:
        return _less_memory(job, run)
    if run.outcome in (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMED_OUT):
        return next((hint for words, hint in job.setup.failure_hints.items() if words in run.reason), "")
    return ""


def _less_memory(job: Job, run: Run) -> str:
    setup, environment = run.setup, run.environment
    has_gpu = bool(environment and environment.gpus) or any(not each.is_host for each in run.memory.buffers)
    needs_less = setup.less_memory(has_gpu=has_gpu, has_context=bool(run.memory.buffers))
    # without a buffer not even the weights fit, and a search tries no context below KV_CELLS
    n_ctx = setup.n_ctx or run.head.settings.n_ctx_needed or 0
    if not run.memory.buffers or n_ctx <= KV_CELLS:
        return needs_less
    maxctx = experiment_of("maxctx")
    search = maxctx.command(Job(maxctx, job.target, setup.as_asked(), maxctx.settings_type()))
    return say("hint.maxctx", command=search, otherwise=needs_less)
