"""`ggbench compare`: stored runs side by side."""

from __future__ import annotations

import click

from ggbench.cli.options import output_options, plot_option
from ggbench.cli.output import Output
from ggbench.cli.saving import SavingOptions, saving_options
from ggbench.errors import UsageError


@click.command()
@click.argument("run_ids", metavar="RUN...", type=int, nargs=-1, required=True)
@plot_option
@saving_options
@output_options
def command(run_ids: tuple[int, ...], plot: bool, saving: SavingOptions, output: Output) -> None:
    """Compare stored runs, by their numbers in `ggbench results`: which is better in what, and by how much.

    A run is better (★) where its 95 % interval lies wholly beyond the other's; bounds are not compared.
    """
    from ggbench.cli.run_output import show_plot
    from ggbench.experiments.stored import read_run
    from ggbench.records.summary import QuantSummary
    from ggbench.report.comparison import compare_quants
    from ggbench.report.comparison_document import comparison_document
    from ggbench.report.comparison_sentence import sentence_of
    from ggbench.report.terminal.comparison import ComparisonReport
    from ggbench.store.database import Store

    if len(run_ids) < 2:
        raise UsageError("comparing needs two runs or more", "their numbers are in: ggbench results")
    for run_id in run_ids:
        if run_ids.count(run_id) > 1:
            raise UsageError(f"run {run_id} is given {run_ids.count(run_id)} times", "give each run once")
    if plot and output.as_json:
        raise UsageError("--plot goes under a table", "omit --json, or save the plot with --svg FILE")
    with Store.open() as store:
        stored = [store.load_run(run_id) for run_id in run_ids]
        output.notice(*store.notices)
        summaries = [QuantSummary.of([read_run(store, each)]) for each in stored]
        to_save = saving.read(store, summaries)
    comparison = compare_quants(summaries)
    if comparison.is_empty:
        raise UsageError(sentence_of(comparison).rstrip("."), "compare runs of one kind")
    saved = saving.save(to_save)
    if output.as_json:
        output.document("compare", **comparison_document(comparison, summaries))
    else:
        if plot:
            show_plot(summaries, output)
            click.echo()
        output.show(ComparisonReport(comparison))
    output.notice(*saved)
