"""Finished runs on stdout: answers, plots and JSON documents, all from the presenters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from msgspec.structs import replace

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


def measure_and_show(jobs: Sequence[Job], asked: MeasureRequest) -> NoReturn:
    """Run the jobs, show one run in full, or several side by side, with --json as one document, and end the command."""
    measured = measure(jobs, asked)
    runs, output = measured.runs, asked.output
    presenter = presenter_of(jobs[0].experiment.kind)
    if output.as_json:
        _record(measured, [run_document(run, output) for run in runs])
    elif measured.is_sweep and runs:
        answer = presenter.table(runs)
        if left := [job.target.subject for job in measured.jobs[len(runs) :]]:
            names = in_words(row_labels(left))
            note = say(
                "run.left", n_done=sum(run.is_complete for run in runs), n_jobs=len(measured.jobs), names=names
            )
            answer = replace(answer, notes=[note, *answer.notes])
        show_answer(answer, runs, output)
    elif measured.error is None and runs and presenter.has_details(runs[0]):
        show_answer(presenter.details(runs[0]), runs, output)
    measured.leave()


def _record(measured: MeasureResult, rows: Sequence[dict[str, object]]) -> None:
    output, documents = measured.asked.output, presenter_of(measured.jobs[0].experiment.kind).documents
    if measured.is_sweep and documents.several is not None:
        output.record(documents.several, {"model": measured.asked.model.text, "rows": rows})
        return
    for row in rows:
        output.record(documents.one, row)


def run_document(run: Run, output: Output) -> dict[str, object]:
    """Return the run for JSON, with `--against` with the nearest published rows."""
    documents = presenter_of(run.head.kind).documents
    return documents.value(run, **({"against": nearest_rows(run)} if output.against else {}))


def show_answer(answer: Answer, runs: Sequence[Run], output: Output) -> None:
    """Show the answer of runs, with their nearest published rows and their plots."""
    nearest = nearest_parts(runs) if output.against else []
    output.answer(replace(answer, parts=[*answer.parts, *nearest]))
    if not output.plot:
        return
    from ggbench.show.listed_runs import SavedRun, saved_figures

    with Store.open() as store:
        saved = [SavedRun.load(store, each.run_id) for each in runs if each.run_id is not None]
    for figure in saved_figures(saved):
        output.draw(figure, _PLOT_HEIGHT)


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
