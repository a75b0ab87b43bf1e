"""Finished runs on stdout: answers, plots and JSON documents, all from the presenters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from msgspec.structs import replace

from ggbench.commands.measure_options import with_tuned
from ggbench.commands.measuring import MeasureResult, measure
from ggbench.commands.options import MeasureRequest
from ggbench.commands.output import Output
from ggbench.models.published.selection import NearRow
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.show.answer import Answer, Part
from ggbench.show.names import quant_name, row_labels
from ggbench.show.presenter import presenter_of
from ggbench.show.words import say
from ggbench.text import in_words

_PLOT_HEIGHT = 18


def measure_and_show(
    jobs: Sequence[Job],
    asked: MeasureRequest,
    *,
    is_sweep: bool | None = None,
    plot: bool = False,
    against: str | None = None,
    keeps_cache: bool = False,
) -> NoReturn:
    """Run the jobs with tuned settings if asked to, like `with_tuned`, show one run in full, or several side by side,
    with --json as one document, and end the command.
    """
    measured = measure(with_tuned(jobs, asked, keeps_cache=keeps_cache), asked, is_sweep=is_sweep)
    runs, output = measured.runs, asked.output
    presenter = presenter_of(jobs[0].experiment.kind)
    if output.as_json:
        _record(measured, [run_document(run, against=against) for run in runs])
    elif measured.is_sweep and runs:
        answer = presenter.table(runs)
        if left := [job.target.subject for job in measured.jobs[len(runs) :]]:
            names = in_words(row_labels(left))
            note = say(
                "run.left", n_done=sum(run.is_complete for run in runs), n_jobs=len(measured.jobs), names=names
            )
            answer = replace(answer, notes=[note, *answer.notes])
        show_answer(answer, runs, output, against=against)
    elif measured.error is None and runs and presenter.has_details(runs[0]):
        show_answer(presenter.details(runs[0]), runs, output, plot=plot, against=against)
    measured.leave()


def _record(measured: MeasureResult, rows: Sequence[dict[str, object]]) -> None:
    output, documents = measured.asked.output, presenter_of(measured.jobs[0].experiment.kind).documents
    if measured.is_sweep and documents.several is not None:
        output.record(documents.several, {"model": measured.asked.model.text, "rows": rows})
        return
    for row in rows:
        output.record(documents.one, row)


def run_document(run: Run, *, against: str | None) -> dict[str, object]:
    """Return the run for JSON, with `against` with the nearest published rows."""
    documents = presenter_of(run.head.kind).documents
    return documents.value(run, **({"against": nearest_rows(run)} if against else {}))


def show_run(run: Run, output: Output, *, plot: bool, against: str | None) -> None:
    """Show a stored run in full."""
    answer = presenter_of(run.head.kind).details(run)
    if answer.command.endswith(" --plot"):
        answer = replace(answer, command="")
    show_answer(answer, [run], output, plot=plot, against=against)


def show_answer(
    answer: Answer, runs: Sequence[Run], output: Output, *, plot: bool = False, against: str | None = None
) -> None:
    """Show the answer of runs, with their nearest published rows and their plots."""
    nearest = nearest_parts(runs) if against else []
    output.answer(replace(answer, parts=[*answer.parts, *nearest]))
    if plot:
        show_plot(runs, output)


def nearest_rows(run: Run) -> list[NearRow] | None:
    """Return the nearest published rows; None if there is nothing to compare."""
    found = presenter_of(run.head.kind).beside(run)
    return None if found is None else [row for each in found for row in each.near]


def nearest_parts(runs: Sequence[Run]) -> list[Part]:
    """Return the published rows nearest to the runs that can be compared."""
    parts: list[Part] = []
    for run in runs:
        if found := presenter_of(run.head.kind).beside(run):
            shown = [part for each in found for part in each.parts()]
            parts += shown or [say("published.no_row", quant=quant_name(run.subject))]
    return parts


def show_plot(shown: Sequence[Run], output: Output) -> None:
    """Draw the figures of stored runs, a curve for each run."""
    from ggbench.show.listed_runs import SavedRun, saved_figures

    with Store.open() as store:
        runs = [SavedRun.of(store, each) for each in shown if each.run_id is not None]
    for figure in saved_figures(runs):
        output.plot(figure, _PLOT_HEIGHT)
