"""Measure jobs in turns and compare them: one quant run by several engines, or stored runs again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click
from msgspec.structs import replace

from ggbench.commands.options import HubOptions, MeasureRequest
from ggbench.errors import UsageError
from ggbench.text import in_words, sanitize
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.commands.measuring import MeasureResult
    from ggbench.commands.output import Output
    from ggbench.runs.experiment import Experiment, Job
    from ggbench.runs.progress import Finished
    from ggbench.runs.run import Run, Settings
    from ggbench.runs.store.database import Store


def compare_engines(experiment: Experiment, once: Settings, repeat: int, asked: MeasureRequest) -> NoReturn:
    """Measure one quant by every engine with the settings `once`, in at least four turns, like `measure_in_turns`."""
    from ggbench.commands.measuring import make_jobs
    from ggbench.stats.turns import FEWEST_TURNS

    engines = asked.engines
    if len(asked.model.quants) > 1:
        quants = in_words([sanitize(quant) for quant in asked.model.quants])
        raise UsageError(f"several engines measure one quant at a time, not {quants}", "name one of them")
    for setup in dict.fromkeys(engines):
        experiment.check(setup, once)
        setup.check_program()
    (job,) = make_jobs(experiment, once, replace(asked, engines=()))
    measure_in_turns([replace(job, setup=setup) for setup in engines], max(repeat, FEWEST_TURNS), asked)


def compare_again(runs: Sequence[Run], n_turns: int, output: Output) -> NoReturn:
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
        jobs.append(Job(experiment, resolve_one(refs[-1]), run.setup, run.head.settings))
    asked = MeasureRequest(refs[0], LlamaConfig(), HubOptions(), output)
    allow_downloads([job.target for job in jobs], asked.hub, output)
    measure_in_turns(jobs, n_turns, asked)


def measure_in_turns(sides: Sequence[Job], n_turns: int, asked: MeasureRequest) -> NoReturn:
    """Measure jobs in turns, a run of each in every turn, print the comparison of their means, and end the command.

    A failed run decides the exit code.
    """
    from ggbench.commands.measuring import exit_code_of, measure
    from ggbench.stats.turns import ordered

    order = [index for turn in range(n_turns) for index in ordered(range(len(sides)), turn)]
    measured = measure([sides[index] for index in order], asked)
    columns = _complete(order, measured.runs)
    failed = [each for each in measured.finished if not each.run.is_complete]
    _notice_failures(failed, asked.output)
    if len(columns) > 1:
        _show_columns(measured, columns)
    if failed and measured.store_error is None and not measured.is_cancelled:
        raise click.exceptions.Exit(exit_code_of(failed[0]))
    measured.leave()


def _complete(order: Sequence[int], runs: Sequence[Run]) -> list[list[Run]]:
    """Return the complete runs of each side that has any; `order` has the side of each run."""
    sides: dict[int, list[Run]] = {side: [] for side in sorted(order)}
    for side, run in zip(order, runs, strict=False):
        if run.is_complete:
            sides[side].append(run)
    return list(filter(None, sides.values()))


def _notice_failures(failed: Sequence[Finished], output: Output) -> None:
    """Print how many runs of each engine failed, and why the first did."""
    for setup in dict.fromkeys(each.run.setup for each in failed):
        reasons = [each.run.reason for each in failed if each.run.setup == setup]
        engine = sanitize(setup.engine_option or setup.engine)
        output.notice(f"{engine}: {counted(len(reasons), 'run')} failed: {reasons[0]}")


def _show_columns(measured: MeasureResult, columns: Sequence[Sequence[Run]]) -> None:
    from ggbench.decisions.compare.comparison import compare
    from ggbench.decisions.compare.show import COMPARE, comparison_answer, comparison_document
    from ggbench.runs.store.database import Store

    with Store.open() as store:
        comparison = compare([[_as_stored(store, each) for each in column] for column in columns])
    measured.asked.output.either(COMPARE, comparison_document(comparison), comparison_answer(comparison))


def _as_stored(store: Store, run: Run) -> Run:
    """Return a run with its times, by which turns are recognized."""
    from ggbench.runs.stored import read_run

    return run if run.run_id is None else read_run(store, store.load_run(run.run_id))
