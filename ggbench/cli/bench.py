"""`ggbench bench`: the table of every quant of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.comparing import EnginesLimit, compare_engines, engines_limit_options, refuse_limit_of_one
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_decodes
from ggbench.commands.measure_options import measuring_options, tuned_option
from ggbench.commands.options import MeasureRequest, against_option, option, settings_options
from ggbench.errors import UsageError
from ggbench.experiments.decode.record import DecodeSettings

if TYPE_CHECKING:
    from ggbench.runs.experiment import Job
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import RunContext
    from ggbench.runs.summary import QuantSummary


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench bench ~/models/Qwen2.5-7B-Instruct-GGUF
    ggbench bench twin:qwen1.5-0.5b q8_0 q4_k_m -n 1000 --plot
    ggbench bench x.gguf -d 8k -r 5 --engine llama --engine llama-server
    """,
)
@settings_options(DecodeSettings)
@option(
    "--maxctx",
    "Also find each quant's largest n_ctx, like maxctx. Changes the default --timeout to 3600.",
    is_flag=True,
)
@option("--plot", "Plot the latencies in the terminal.", is_flag=True)
@against_option
@engines_limit_options
@tuned_option
@measuring_options(many=True, servers=True, own_models=True, load=load_options_of_decodes)
def command(
    settings: DecodeSettings,
    maxctx: bool,
    plot: bool,
    against: str | None,
    limit: EnginesLimit,
    asked: MeasureRequest,
) -> None:
    """Measure every quant of a model, or every model of a server, and show them in one table.

    Each quant is loaded, reads a 25-token prompt and decodes. Several --engine measure one quant in turns, and end in
    the verdict of ggbench compare.

    If a quant fails, its row shows the reason and the rest continue. Each decode and each --maxctx search is stored as
    a run; the search does not depend on -n.

    Several --engine, builds, forks, or the same program with other flags, such as 'llama -fa on' and 'llama -fa off',
    make a run for each of --repeat, at least 4; the verdict is over the ratios within each turn. No difference means
    none over 10 %. With --json it is compare's document. --fail-if-slower compares each later
    engine with the first, at each depth of -d; a limit that stays undecided fails only with --fail-if-undecided. If a
    run fails, the others go on, and the exit code is its.
    """
    from ggbench.commands.measure_options import given_setup, with_tuned
    from ggbench.commands.measuring import make_jobs, measure, warn_of_memory_use
    from ggbench.commands.run_output import show_answer
    from ggbench.experiments.decode.measure import EXPERIMENT
    from ggbench.experiments.maxctx.measure import EXPERIMENT as MAXCTX
    from ggbench.experiments.maxctx.measure import SEARCH_TIMEOUT_S
    from ggbench.show.quants import bench_answer

    output = asked.output
    refuse_limit_of_one(asked, limit)
    _refuse_what_excludes(asked, plot=plot, maxctx=maxctx, against=against)
    if len(asked.engines) > 1:
        compare_engines(EXPERIMENT, replace(settings, repeat=1), settings.repeat, asked, limit)
    if maxctx:
        given_setup(MAXCTX, asked)
        warn_of_memory_use(asked)
        asked = replace(asked, timeout_s=asked.timeout_s or SEARCH_TIMEOUT_S)
    jobs = with_tuned(make_jobs(EXPERIMENT, settings, asked, every=True), asked)
    measured = measure(jobs, asked, run=lambda context, jobs: run_bench(context, jobs, maxctx=maxctx))
    summaries = measured.summaries
    if output.as_json:
        _print_document(summaries, asked, settings.n_gen, against)
    elif summaries and measured.error is None:
        show_answer(
            bench_answer(summaries), [each.run for each in summaries], output, plot=plot, against=against
        )
    measured.leave()


def _refuse_what_excludes(asked: MeasureRequest, *, plot: bool, maxctx: bool, against: str | None) -> None:
    """Raise UsageError for options that exclude each other."""
    if plot and asked.output.as_json:
        raise UsageError("--plot cannot be used with --json", "omit --json, or use results show ID --plot")
    if len(asked.engines) > 1 and (maxctx or plot or against):
        raise UsageError("several engines exclude --maxctx, --plot and --against", "omit them")


def _print_document(
    summaries: Sequence[QuantSummary], asked: MeasureRequest, n_gen: int, against: str | None
) -> None:
    from ggbench.commands.run_output import nearest_rows
    from ggbench.show.run_documents import BENCH, bench_row

    rows = [bench_row(each, **({"against": nearest_rows(each.run)} if against else {})) for each in summaries]
    asked.output.record(BENCH, {"model": asked.model.text, "n_gen": n_gen, "rows": rows})


def run_bench(context: RunContext, decodes: Sequence[Job], *, maxctx: bool = False) -> Generator[Progress]:
    """Run the decodes; with `maxctx`, search the largest n_ctx of the same file and setup after each.

    No search follows a decode that failed for a reason other than memory: it would fail the same way.
    """
    from ggbench.engines.endings import Outcome
    from ggbench.runs.driver import run_job
    from ggbench.runs.experiment import Job, experiment_of
    from ggbench.runs.progress import Finished, Started

    experiment = experiment_of("maxctx")
    for index, decode in enumerate(decodes):
        if context.cancel.is_set():
            return
        searches = False
        with contextlib.closing(run_job(context, decode, index, len(decodes))) as progress:
            for record in progress:
                if isinstance(record, Finished):
                    searches = maxctx and record.error is None
                    searches &= record.run.outcome in (Outcome.COMPLETED, Outcome.OUT_OF_MEMORY)
                yield record
        if searches and not context.cancel.is_set():
            search = Job(experiment, decode.target, decode.setup.as_asked(), experiment.settings_type())
            with contextlib.closing(run_job(context, search)) as progress:
                yield from (record for record in progress if not isinstance(record, Started))
