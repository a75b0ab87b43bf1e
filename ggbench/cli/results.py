"""`ggbench results`: what was measured on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ggbench.cli.output import Output, output_options
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.store.database import Store


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List the stored runs, show one with all that is known of it, or remove some."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_runs)


@command.command("list")
@click.option("--model", help="Only runs of this MODEL, as it was written then.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
@output_options
def list_runs(model: str | None = None, limit: int = 50, *, output: Output) -> None:
    """List the newest runs."""
    from ggbench.report.documents import run_summary_document
    from ggbench.report.terminal import runs_table
    from ggbench.store.database import Store

    with Store.open() as store:
        runs = store.list_runs(model=model, limit=limit)
        _tell(store, output)
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
@output_options
def show(run_id: int, samples: bool, plot: bool, output: Output) -> None:
    """Show one run with its environment and its command; one that was interrupted, as far as it came."""
    from ggbench.cli.shown_runs import run_document, show_run
    from ggbench.experiments.stored import stored_row
    from ggbench.store.database import Store

    with Store.open() as store:
        run = store.load_run(run_id)
        row = stored_row(store, run)
        _tell(store, output)
    if output.as_json:
        fields = run_document(row, samples=samples)
        output.document("results", **fields, state=run.state, started_at=run.started_at, finished_at=run.finished_at)
        return
    click.echo(f"run {run_id}  {run.kind}  {run.state}  {run.started_at}")
    if run.row_error:
        output.notice(f"its row cannot be read ({run.row_error}); what follows is made from its samples")
    show_run(row, output, plot=plot)


@command.command("rm")
@click.argument("run_ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(run_ids: tuple[int, ...], yes: bool) -> None:
    """Remove runs with their samples; this cannot be undone."""
    from ggbench.store.database import Store

    with Store.open() as store:
        for run_id in run_ids:
            run = store.load_run(run_id)
            click.echo(f"{run_id}  {run.model} {run.quant}  {run.n_samples} samples  {run.started_at}", err=True)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("removing runs needs a yes", "give --yes")
            click.confirm("Remove?", abort=True, err=True)
        for run_id in run_ids:
            store.delete_run(run_id)


def _tell(store: Store, output: Output) -> None:
    for notice in store.notices:
        output.notice(notice)
