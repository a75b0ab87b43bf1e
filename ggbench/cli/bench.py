"""`ggbench bench`: the table of every quant of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.comparing import compare_engines
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_decodes
from ggbench.commands.measure_options import measuring_options, tuned_option
from ggbench.commands.options import MeasureRequest, against_option, option, settings_options
from ggbench.errors import UsageError
from ggbench.experiments.decode.record import DecodeSettings

if TYPE_CHECKING:
    from ggbench.runs.run import Run


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench bench ~/models/Qwen2.5-7B-Instruct-GGUF
    ggbench bench twin:qwen1.5-0.5b q8_0 q4_k_m -n 1000 --plot
    ggbench bench x.gguf -d 8k -r 5 --engine llama --engine llama-server
    """,
)
@settings_options(DecodeSettings)
@option("--plot", "Plot the latencies in the terminal.", is_flag=True)
@against_option
@tuned_option
@measuring_options(many=True, servers=True, own_models=True, load=load_options_of_decodes)
def command(
    settings: DecodeSettings,
    plot: bool,
    against: str | None,
    asked: MeasureRequest,
) -> None:
    """Measure every quant of a model, or every model of a server, and show them in one table.

    Each quant is loaded, reads a 25-token prompt and decodes. Several --engine measure one quant in turns, and end in
    the verdict of ggbench compare.

    If a quant fails, its row shows the reason and the rest continue. Each decode is stored as a run.

    Several --engine, builds, forks, or the same program with other flags, such as 'llama -fa on' and 'llama -fa off',
    make a run for each of --repeat, at least 4; the verdict is over the ratios within each turn. No difference means
    none over 10 %. With --json it is compare's document. If a run fails, the others go on, and the exit code is its.
    """
    from ggbench.commands.measure_options import with_tuned
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_answer
    from ggbench.experiments.decode.measure import EXPERIMENT
    from ggbench.show.quants import bench_answer

    output = asked.output
    _refuse_what_excludes(asked, plot=plot, against=against)
    if len(asked.engines) > 1:
        compare_engines(EXPERIMENT, replace(settings, repeat=1), settings.repeat, asked)
    measured = measure(with_tuned(make_jobs(EXPERIMENT, settings, asked, every=True), asked), asked)
    runs = measured.runs
    if output.as_json:
        _print_document(runs, asked, settings.n_gen, against)
    elif runs and measured.error is None:
        show_answer(bench_answer(runs), runs, output, plot=plot, against=against)
    measured.leave()


def _refuse_what_excludes(asked: MeasureRequest, *, plot: bool, against: str | None) -> None:
    """Raise UsageError for options that exclude each other."""
    if plot and asked.output.as_json:
        raise UsageError("--plot cannot be used with --json", "omit --json, or use results show ID --plot")
    if len(asked.engines) > 1 and (plot or against):
        raise UsageError("several engines exclude --plot and --against", "omit them")


def _print_document(runs: Sequence[Run], asked: MeasureRequest, n_gen: int, against: str | None) -> None:
    from ggbench.commands.run_output import nearest_rows
    from ggbench.show.run_documents import BENCH, bench_row

    rows = [bench_row(each, **({"against": nearest_rows(each)} if against else {})) for each in runs]
    asked.output.record(BENCH, {"model": asked.model.text, "n_gen": n_gen, "rows": rows})
