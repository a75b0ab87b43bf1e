"""`ggbench results`: the stored runs of this machine."""

from __future__ import annotations

import sys

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedGroup
from ggbench.commands.options import against_option, option, output_options, plot_option
from ggbench.commands.output import Output
from ggbench.errors import ExitCode, UsageError


@click.group(
    cls=DocumentedGroup,
    invoke_without_command=True,
    examples="""
    ggbench results --model qwen2.5-7b
    ggbench results show 12 --plot
    ggbench results rm 3 4
    """,
)
@option("--model", "Only runs of this MODEL, as it was typed or as the list names it.")
@option("--limit", "Show at most N most recent runs.", click.IntRange(1), metavar="N", default=15)
@output_options
def command(model: str | None, limit: int, output: Output) -> None:
    """List the stored runs, show one in full, or remove some.

    A run is stored with its raw samples, versions, CPU, GPU, all parameters and the command that reproduces it; a
    search also stores its probes and certificate. A run that was killed keeps its measurements up to then. Runs are
    stored in one SQLite file in the data folder; a damaged file is moved aside, never deleted.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from ggbench.runs.store.database import Store
    from ggbench.show.listed_runs import RESULTS, ListedRun, listed_rows, results_answer, runs_named

    with Store.open() as store:
        if model is None:
            found, n_runs = store.list_runs(limit=limit), store.count_runs()
        else:
            found, n_runs = runs_named(store, model, limit)
        runs = [ListedRun.of(stored, store) for stored in found]
        output.notice(*store.notices)
    output.either(RESULTS, listed_rows(runs), results_answer(runs, n_runs, model))


@command.command(
    "show",
    short_help="Show one run with its environment and its command line.",
    examples="""
    ggbench results show 12 --plot
    ggbench results show 12 --json
    """,
)
@click.argument("run_id", metavar="ID", type=int)
@plot_option
@against_option
@output_options
def show(run_id: int, output: Output) -> None:
    """Show one run, even an interrupted one, with its environment and its command line."""
    from ggbench.commands.run_output import nearest_rows, run_document, show_answer
    from ggbench.runs.store.database import Store
    from ggbench.runs.stored import read_observations, read_run
    from ggbench.show.presenter import presenter_of

    with Store.open() as store:
        stored = store.load_run(run_id)
        output.notice(*store.notices)
        run = read_run(store, stored)
        readings = read_observations(store, stored).readings
        presenter = presenter_of(stored.kind)
    if output.plot and not presenter.has_figures:
        output.notice(f"run {run_id} has no samples to plot")
    if output.against and nearest_rows(run) is None:
        output.notice(f"run {run_id} has nothing to compare with published rows")
    if output.as_json:
        output.record(presenter.documents.one, run_document(run, output) | {"readings": readings})
        return
    answer = presenter.details(run)
    if answer.command.endswith(" --plot"):
        answer = replace(answer, command="")
    show_answer(answer, [run], output)


@command.command(
    "rm",
    examples="""
    ggbench results rm 3 4
    """,
)
@click.argument("run_ids", metavar="ID...", type=int, nargs=-1, required=True)
@option("-y --yes", "Do not ask.", is_flag=True)
def remove(run_ids: tuple[int, ...], yes: bool) -> None:
    """Remove runs and their samples. This cannot be undone."""
    from ggbench.runs.store.database import Store
    from ggbench.show.names import quant_names

    with Store.open() as store:
        runs = [store.load_run(run_id) for run_id in run_ids]
        if not yes and not sys.stdin.isatty():
            raise UsageError("removing runs needs confirmation", "add --yes")
        for stored, name in zip(runs, quant_names([stored.subject for stored in runs]), strict=True):
            click.echo(f"{stored.run_id}  {name}  {stored.n_samples} samples  {stored.started_at}", err=True)
        if not yes and not click.confirm("Remove?", err=True):
            click.echo("nothing was removed", err=True)
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)
        for run_id in run_ids:
            store.delete_run(run_id)
