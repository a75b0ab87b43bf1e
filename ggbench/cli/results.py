"""`ggbench results`: what was measured on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggbench.cli.notices import tell_store_notices
from ggbench.cli.options import against_option
from ggbench.cli.output import Output, output_options
from ggbench.errors import ExitCode, UsageError
from ggbench.plain import plain

if TYPE_CHECKING:
    from ggbench.store.database import Store
    from ggbench.store.runs import Run

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _list_options(function: _Function) -> _Function:
    model = click.option("--model", help="Only runs of this MODEL, as it was written then.")
    limit = click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
    return model(limit(output_options(function)))


@click.group(invoke_without_command=True)
@_list_options
@click.pass_context
def command(ctx: click.Context, /, model: str | None, limit: int, output: Output) -> None:
    """List the stored runs, show one with all that is known of it, or remove some."""
    if ctx.invoked_subcommand is None:
        _list_runs(model, limit, output)


@command.command("list")
@_list_options
def list_runs(model: str | None, limit: int, output: Output) -> None:
    """List the newest runs; the same without `list`."""
    _list_runs(model, limit, output)


def _list_runs(model: str | None, limit: int, output: Output) -> None:
    from ggbench.report.documents import run_summary_document
    from ggbench.report.terminal.listings import runs_table
    from ggbench.store.database import Store

    with Store.open() as store:
        runs = store.list_runs(model=model, limit=limit)
        tell_store_notices(store, output)
    if output.as_json:
        output.document("results", rows=[run_summary_document(run) for run in runs])
    elif not runs:
        output.notice("No runs yet. Make some with: ggbench demo")
    else:
        output.show(runs_table(runs, width=output.console().width))


@command.command("show")
@click.argument("run_id", metavar="ID", type=int)
@click.option("--samples", is_flag=True, help="With --json: every position and its step_ns and sample_ns.")
@click.option("--plot", is_flag=True, help="Plot the latency in the terminal.")
@against_option
@output_options
def show(run_id: int, samples: bool, plot: bool, against: str | None, output: Output) -> None:
    """Show one run with its environment and its command; one that was interrupted, as far as it came."""
    from ggbench.cli.shown_runs import against_document, run_document, show_against, show_run
    from ggbench.experiments.stored import stored_row
    from ggbench.store.database import Store

    with Store.open() as store:
        run = store.load_run(run_id)
        tell_store_notices(store, output)
        if run.kind == "maxctx":
            if samples or plot or against:
                output.notice("a search has no samples to show, to plot or to hold against others")
            _show_search(store, run, output)
            return
        row = stored_row(store, run)
    if output.as_json:
        fields = run_document(row, samples=samples) | (against_document(row) if against else {})
        output.document("results.show", **fields, **_state(run))
        return
    click.echo(_heading(run))
    if run.row_error:
        output.notice(f"its row cannot be read ({run.row_error}); what follows is made from its samples")
    show_run(row, output, plot=plot)
    if against:
        show_against([row], output)


def _show_search(store: Store, run: Run, output: Output) -> None:
    from ggbench.experiments.stored import stored_certificate
    from ggbench.report.certificate_document import certificate_document
    from ggbench.report.terminal.certificates import certificate_details

    found = stored_certificate(store, run)
    if output.as_json:
        output.document("results.search", **certificate_document(found), **_state(run))
        return
    click.echo(_heading(run))
    output.show(certificate_details(found))


def _heading(run: Run) -> str:
    return f"run {run.run_id}  {run.kind}  {run.state.replace('_', ' ')}  {run.started_at}"


def _state(run: Run) -> dict[str, str | None]:
    return {"state": run.state, "started_at": run.started_at, "finished_at": run.finished_at}


@command.command("rm")
@click.argument("run_ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(run_ids: tuple[int, ...], yes: bool) -> None:
    """Remove runs with their samples; this cannot be undone."""
    from ggbench.store.database import Store

    with Store.open() as store:
        for run_id in run_ids:
            run = store.load_run(run_id)
            what = plain(f"{run.model} {run.quant}")
            click.echo(f"{run_id}  {what}  {run.n_samples} samples  {run.started_at}", err=True)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("removing runs needs a yes", "give --yes")
            if not click.confirm("Remove?", err=True):
                click.echo("nothing was removed", err=True)
                raise click.exceptions.Exit(ExitCode.INTERRUPTED)
        for run_id in run_ids:
            store.delete_run(run_id)
