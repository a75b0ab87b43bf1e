"""Finished runs on stdout: answers, plots and JSON documents, all from the presenters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.commands.output import Output
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.summary import QuantSummary
from ggbench.show.answer import Answer
from ggbench.show.presenter import presenter_of

if TYPE_CHECKING:
    from ggbench.commands.measuring import MeasureResult
    from ggbench.machine.records import MachineReading


_PLOT_HEIGHT = 18


def show_measured(measured: MeasureResult, *, plot: bool = False) -> None:
    """Show one run in full, or several side by side; with --json, print one document."""
    runs, output = [each.run for each in measured.finished], measured.asked.output
    presenter = presenter_of(measured.jobs[0].experiment.kind)
    if output.as_json:
        _record(measured, list(map(run_document, runs)))
    elif measured.is_sweep and runs:
        show_answer(presenter.table(runs), runs, output)
    elif measured.error is None and runs and presenter.has_details(runs[0]):
        show_answer(presenter.details(runs[0]), runs, output, plot=plot)


def _record(measured: MeasureResult, rows: Sequence[dict[str, object]]) -> None:
    output, documents = measured.asked.output, presenter_of(measured.jobs[0].experiment.kind).documents
    if measured.is_sweep and documents.several is not None:
        output.record(documents.several, {"model": measured.asked.model.text, "rows": rows})
        return
    for row in rows:
        output.record(documents.one, row)


def run_document(run: Run) -> dict[str, object]:
    """Return the run for JSON."""
    return presenter_of(run.head.kind).documents.value(run)


def show_run(run: Run, readings: Sequence[MachineReading], output: Output, *, plot: bool) -> None:
    """Show a stored run in full."""
    answer = presenter_of(run.head.kind).details(run, readings)
    if plot and answer.command.endswith(" --plot"):
        answer = replace(answer, command="")
    show_answer(answer, [run], output, plot=plot)


def show_answer(answer: Answer, runs: Sequence[Run], output: Output, *, plot: bool = False) -> None:
    """Show the answer of runs, with their plots."""
    output.answer(answer)
    if plot:
        show_plot([QuantSummary.of([run]) for run in runs], output)


def show_plot(summaries: Sequence[QuantSummary], output: Output) -> None:
    """Draw the figures of stored runs, a curve for each run."""
    from ggbench.show.listed_runs import SavedRun, saved_figures

    with Store.open() as store:
        runs = [SavedRun.of(store, each) for each in summaries if each.run.run_id is not None]
    for figure in saved_figures(runs):
        output.plot(figure, _PLOT_HEIGHT)
