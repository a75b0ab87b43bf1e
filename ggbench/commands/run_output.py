"""Finished runs on stdout: details, tables, plots and JSON documents, all from the presenters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggbench.commands.output import Output
from ggbench.runs.comparable import setting_of
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.summary import QuantSummary
from ggbench.show.presenter import presenter_of

if TYPE_CHECKING:
    from ggbench.commands.measuring import MeasureResult
    from ggbench.machine.records import MachineReading


_PLOT_HEIGHT = 18


def show_measured(measured: MeasureResult, *, plot: bool = False, against: str | None = None) -> None:
    """Show one run in full, or several side by side; with --json, print one document."""
    kind, output = measured.jobs[0].experiment.kind, measured.asked.output
    runs = [each.run for each in measured.finished]
    if output.as_json or measured.is_sweep or measured.error is None:
        documents = [run_document(run, against=against) for run in runs] if output.as_json else []
        show_runs(
            kind,
            runs,
            output,
            documents,
            model=measured.asked.model.text,
            is_sweep=measured.is_sweep,
            plot=plot,
        )
    if against and not output.as_json and measured.error is None:
        show_against(runs, output)
    show_run_ids(measured)


def show_runs(
    kind: str,
    runs: Sequence[Run],
    output: Output,
    documents: Sequence[dict[str, object]],
    *,
    model: str,
    is_sweep: bool,
    plot: bool = False,
) -> None:
    """Show runs of one kind: a sweep side by side, a single run in full; with --json, print their documents."""
    printed = presenter_of(kind).documents
    if output.as_json and is_sweep and printed.several is not None:
        output.document(printed.several, model=model, rows=documents)
    elif output.as_json:
        for document in documents:
            output.document(printed.one, document)
    elif is_sweep and runs:
        output.show(presenter_of(kind).table(runs, width=output.console().width))
    elif runs and presenter_of(kind).has_details(runs[0]):
        show_run(runs[0], output, plot=plot)


def show_run_ids(measured: MeasureResult) -> None:
    """Print on stderr the runs' numbers, and the command that shows one again or compares several."""
    runs = [record.run for group in measured.groups for record in group if record.run.run_id is not None]
    run_ids = [run.run_id for run in runs if presenter_of(run.head.kind).has_details(run)]
    if run_ids and measured.store_error is None:
        stored = f"run{'s' if len(run_ids) > 1 else ''} {', '.join(map(str, run_ids))}"
        kind = measured.jobs[0].experiment.kind
        alike = [run for run in runs if run.head.kind == kind and run.is_complete]
        has_repeats = 1 < len(set(map(setting_of, alike))) < len(alike)
        named = [str(run.run_id) for run in alike]
        if has_repeats:
            named.insert(0, "--average")
        then = f"compare {' '.join(named)}" if len(alike) > 1 else f"results show {run_ids[-1]}"
        measured.asked.output.notice(f"Stored as {stored}: ggbench {then}")


def run_document(run: Run, *, against: str | None = None) -> dict[str, object]:
    """Return the run for JSON, with `against` with the nearest published rows."""
    presenter = presenter_of(run.head.kind)
    given = presenter.against_document(run) if against else None
    return presenter.documents.value(run, **(given or {}))


def show_run(run: Run, output: Output, *, plot: bool = False, readings: Sequence[MachineReading] = ()) -> None:
    output.show(presenter_of(run.head.kind).details(run, readings=readings))
    if plot:
        show_plot([QuantSummary.of([run])], output)


def show_summaries(summaries: Sequence[QuantSummary], output: Output, *, plot: bool) -> None:
    from ggbench.show.columns import bench_columns
    from ggbench.show.quants import rows_table

    output.show(rows_table(summaries, bench_columns(summaries), width=output.console().width))
    if plot:
        show_plot(summaries, output)


def show_against(runs: Sequence[Run], output: Output) -> None:
    """Show the nearest published rows below runs, a table for each kind that can be compared."""
    compared: dict[str, list[Run]] = {}
    for run in runs:
        if presenter_of(run.head.kind).against_document(run) is not None:
            compared.setdefault(run.head.kind, []).append(run)
    for kind, alike in compared.items():
        click.echo()
        output.show(presenter_of(kind).against(alike, width=output.console().width))


def show_plot(summaries: Sequence[QuantSummary], output: Output) -> None:
    """Draw the figures of stored runs, a curve for each run."""
    from ggbench.show.listed_runs import SavedRun, saved_figures

    with Store.open() as store:
        runs = [SavedRun.of(store, each) for each in summaries if each.run.run_id is not None]
    for figure in saved_figures(runs):
        output.plot(figure, _PLOT_HEIGHT)
