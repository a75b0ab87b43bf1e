"""`ggbench prefill`: time to the first token against the length of the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, download_options
from ggbench.cli.options import load_options, parse_lengths, trial_options
from ggbench.cli.output import Output, output_options

if TYPE_CHECKING:
    from ggbench.records.setup import LlamaSetup
    from ggbench.records.speed import Bandwidth


@click.command()
@click.argument("model")
@click.argument("quant", required=False)
@click.option("--lengths", default="1,25,128,512,2048", show_default=True, help="Tokens of each prompt.")
@click.option("-r", "--repeat", type=click.IntRange(1), default=3, show_default=True, help="Timings of each length.")
@load_options
@download_options
@trial_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    quant: str | None,
    lengths: str,
    repeat: int,
    bandwidth: Bandwidth | None,
    timeout_s: float | None,
    config: LlamaSetup,
    hub: HubOptions,
    output: Output,
) -> None:
    """Time prompts of several lengths, each from an empty cache, after one that does not count; tells the medians."""
    from ggbench.catalog.selector import resolve_one
    from ggbench.cli.downloads import allow_downloads, interruptible
    from ggbench.cli.gpu_options import check_main_gpu
    from ggbench.cli.trials import measure
    from ggbench.experiments.settings import TrialSettings
    from ggbench.report.documents import row_document
    from ggbench.report.terminal.row_details import prefill_table

    check_main_gpu(config)
    settings = TrialSettings("prefill", config, prefill_lengths=parse_lengths(lengths), repeat=repeat)
    with interruptible(output):
        target = resolve_one(model, quant, hub=hub.access())
    allow_downloads([target], hub, output)
    measured = measure([target], settings, output, bandwidth=bandwidth, timeout_s=timeout_s)
    for row in measured.rows:
        if output.as_json:
            output.document("prefill", **row_document(row))
        else:
            output.show(prefill_table(row))
    measured.leave(ctx)
