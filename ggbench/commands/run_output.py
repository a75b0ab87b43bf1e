"""Finished runs on stdout: details, tables, plots and JSON documents, all from the presenters."""

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


def show_measured(measured: MeasureResult, *, plot: bool = False, against: str | None = None) -> None:
    """Show one run in full, or several side by side; with --json, print one document."""
    runs = [each.run for each in measured.finished]
    if measured.asked.output.as_json or measured.is_sweep or measured.error is None:
        show_runs(
            measured.jobs[0].experiment.kind,
            runs,
            measured.asked.output,
            model=measured.asked.model.text,
            is_sweep=measured.is_sweep,
            plot=plot,
            against=against,
        )


def show_runs(
    kind: str,
    runs: Sequence[Run],
    output: Output,
    *,
    model: str,
    is_sweep: bool,
    plot: bool = False,
    against: str | None = None,
) -> None:
    """Show runs of one kind: a sweep side by side, a single run in full; with --json, print their documents."""
    presenter = presenter_of(kind)
    if output.as_json:
        documents = [run_document(run, against=against) for run in runs]
        if is_sweep and presenter.documents.several is not None:
            output.record(presenter.documents.several, {"model": model, "rows": documents})
        else:
            for document in documents:
                output.record(presenter.documents.one, document)
    elif is_sweep and runs:
        output.answer(_with_against(presenter.table(runs), runs, against))
    elif runs and presenter.has_details(runs[0]):
        show_run(runs[0], output, plot=plot, against=against)


def run_document(run: Run, *, against: str | None = None) -> dict[str, object]:
    """Return the run for JSON, with `against` with the nearest published rows."""
    presenter = presenter_of(run.head.kind)
    given = presenter.against_document(run) if against else None
    return presenter.documents.value(run, **(given or {}))


def show_run(
    run: Run,
    output: Output,
    *,
    plot: bool = False,
    readings: Sequence[MachineReading] = (),
    against: str | None = None,
) -> None:
    output.answer(_with_against(presenter_of(run.head.kind).details(run, readings), [run], against))
    if plot:
        show_plot([QuantSummary.of([run])], output)


def show_summaries(
    summaries: Sequence[QuantSummary], output: Output, *, plot: bool, against: str | None = None
) -> None:
    from ggbench.show.quants import bench_answer

    output.answer(_with_against(bench_answer(summaries), [each.run for each in summaries], against))
    if plot:
        show_plot(summaries, output)


def _with_against(answer: Answer, runs: Sequence[Run], against: str | None) -> Answer:
    """Return the answer, with the nearest published rows of the runs that can be compared."""
    parts = [*answer.parts]
    for run in runs if against else ():
        presenter = presenter_of(run.head.kind)
        if presenter.against_document(run) is not None:
            parts += presenter.against([run])
    return replace(answer, parts=parts)


def show_against(runs: Sequence[Run], output: Output) -> None:
    """Show the nearest published rows of runs."""
    output.answer(_with_against(Answer(""), runs, "published"))


def show_plot(summaries: Sequence[QuantSummary], output: Output) -> None:
    """Draw the figures of stored runs, a curve for each run."""
    from ggbench.show.listed_runs import SavedRun, saved_figures

    with Store.open() as store:
        runs = [SavedRun.of(store, each) for each in summaries if each.run.run_id is not None]
    for figure in saved_figures(runs):
        output.plot(figure, _PLOT_HEIGHT)
