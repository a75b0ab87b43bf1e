"""`ggbench bench`: the table of every quant of a model."""

from __future__ import annotations

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import tuned_option, with_tuned
from ggbench.commands.options import MeasureRequest, against_option, measuring_options, option, settings_options
from ggbench.errors import UsageError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.show.glossary import DECODE


@click.command(
    cls=DocumentedCommand,
    terms=DECODE,
    examples="""
    ggbench bench ~/models/Qwen2.5-7B-Instruct-GGUF
    ggbench bench twin:qwen1.5-0.5b q8_0 q4_k_m -n 1000 --plot
    ggbench bench org/name-GGUF q4_k_m --maxctx --memory-limit 8GiB
    ggbench bench http://127.0.0.1:8080
    """,
)
@settings_options(DecodeSettings)
@option(
    "--maxctx",
    "Search the largest n_ctx of each as well, and prove it as maxctx does; the default --timeout is then 3600.",
    is_flag=True,
)
@option("--plot", "Plot the latencies in the terminal.", is_flag=True)
@option(
    "--format text_format",
    "Print the table as text, CSV or Markdown.",
    click.Choice(["table", "csv", "md"]),
    default="table",
)
@against_option
@tuned_option
@measuring_options(many=True, servers=True, own_models=True)
def command(
    settings: DecodeSettings, maxctx: bool, plot: bool, text_format: str, against: str | None, asked: MeasureRequest
) -> None:
    """Measure every quant of a model and show one table: BPW, memory, prefill, W and B beside their limits.

    Each quant is loaded, reads the 25-token prompt and decodes. Without QUANTS, every quant is measured; of a server,
    each model that it offers. A quant that fails is a row with its reason, and the others go on. Each decode is stored
    as a run, and so is each search of --maxctx, which finds the largest n_ctx whatever the length of the run.
    """
    from ggbench.cli.bench_runs import run_bench, with_expected_speeds
    from ggbench.commands.load_options import given_setup
    from ggbench.commands.measuring import make_jobs, measure, warn_of_memory_use
    from ggbench.commands.run_output import show_run_ids, show_summaries
    from ggbench.experiments.decode.measure import EXPERIMENT
    from ggbench.experiments.maxctx.measure import EXPERIMENT as MAXCTX
    from ggbench.experiments.maxctx.measure import SEARCH_TIMEOUT_S

    output = asked.output
    if output.as_json and text_format != "table":
        raise UsageError(f"--json and --format {text_format} exclude each other", "omit one of them")
    if plot and (output.as_json or text_format != "table"):
        hint = "omit --json and --format, or use results show ID --plot"
        raise UsageError("--plot goes with neither --json nor --format", hint)
    if against and text_format != "table":
        raise UsageError(f"--against {against} does not go into {text_format}", "omit --format, or use --json")
    if maxctx:
        given_setup(MAXCTX, asked)
    jobs = with_tuned(make_jobs(EXPERIMENT, settings, asked, every=True), asked)
    if maxctx:
        warn_of_memory_use(asked)
        asked = replace(asked, timeout_s=asked.timeout_s or SEARCH_TIMEOUT_S)
    targets = [job.target for job in jobs]
    measured = measure(jobs, asked, run=lambda context, jobs: run_bench(context, jobs, maxctx=maxctx))
    begun = targets[: len(measured.summaries)]
    summaries = with_expected_speeds(measured.summaries, begun, asked.setup, asked.bandwidth)
    if output.as_json:
        from ggbench.show.against import nearest_to
        from ggbench.show.run_documents import BENCH, QUANT

        rows = [QUANT.value(each, **({"against": nearest_to(each)} if against else {})) for each in summaries]
        output.document(BENCH, model=asked.model.text, n_gen=settings.n_gen, rows=rows)
    elif summaries and measured.error is None:
        show_summaries(summaries, output, text_format=text_format, plot=plot)
        if against:
            from ggbench.show.against import against_tables

            click.echo()
            output.show(against_tables(summaries, width=output.console().width))
    show_run_ids(measured)
    measured.leave()
