"""`ggbench maxctx`: the largest n_ctx that really works, with its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, download_options
from ggbench.cli.options import load_options
from ggbench.cli.output import Output, output_options

if TYPE_CHECKING:
    from ggbench.records.setup import LlamaSetup


def _parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    from ggbench.units import parse_size

    return None if text is None else 0 if text.strip() == "0" else parse_size(text)


@click.command()
@click.argument("model")
@click.argument("quant", required=False)
@click.option("--all", "every", is_flag=True, help="Search every quant, and compare them with theory in one table.")
@click.option(
    "--reserve",
    "reserve_bytes",
    callback=_parse_size,
    metavar="SIZE",
    help="Memory to leave free. Default: 1 GiB of main memory without a limit, else none.",
)
@click.option("--cap-train", is_flag=True, help="Search no further than the context that the model was trained on.")
@click.option(
    "--prove/--no-prove", default=True, show_default=True, help="Decode at the far end of the largest context."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop the worker after SECONDS without output. Default: 3600, as a batch at the far end is slow on a CPU.",
)
@load_options
@download_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    quant: str | None,
    every: bool,
    reserve_bytes: int | None,
    cap_train: bool,
    prove: bool,
    timeout_s: float | None,
    setup: LlamaSetup,
    hub: HubOptions,
    output: Output,
) -> None:
    """Find the largest n_ctx by real allocations, and decode at its far end to prove it.

    Theory and a dry run of llama.cpp's allocator say where to look; then one worker makes contexts until the largest
    that works and the smallest that fails are 256 tokens apart. --n-ctx is the upper end of the search.
    """
    from ggbench.cli.measuring import find_target, find_targets, measure
    from ggbench.cli.notices import warn_of_memory_use
    from ggbench.cli.run_output import show_measured
    from ggbench.errors import UsageError
    from ggbench.experiments.maxctx import EXPERIMENT
    from ggbench.recording.experiment import Job
    from ggbench.records.context import ContextSettings

    if every and quant is not None:
        raise UsageError(f"--all and the quant {quant!r} exclude each other", "omit one of them")
    settings = ContextSettings(reserve_bytes=reserve_bytes, prove=prove, cap_train=cap_train)
    if every:
        targets = list(find_targets(model, (), setup, hub, output))
    else:
        targets = [find_target(model, quant, setup, hub, output)]
    warn_of_memory_use(setup, output)
    jobs = [Job(EXPERIMENT, target, setup, settings) for target in targets]
    measured = measure(jobs, output, timeout_s=timeout_s, is_sweep=every)
    show_measured(measured, output, model=model)
    measured.leave(ctx, output)
