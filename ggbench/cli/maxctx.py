"""`ggbench maxctx`: the largest n_ctx that really works, with its certificate."""

from __future__ import annotations

import click

from ggbench.cli.options import Asked, measuring_options, option, timeout_option
from ggbench.errors import UsageError


def _parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    from ggbench.units import parse_size

    return None if text is None else 0 if text.strip() == "0" else parse_size(text)


@click.command()
@option("--all every", "Search every quant, and compare them with theory in one table.", is_flag=True)
@option(
    "--reserve reserve_bytes",
    "Memory to leave free. Default: 1 GiB of main memory without a limit, else none.",
    callback=_parse_size,
    metavar="SIZE",
)
@option("--cap-train", "Search no further than the context that the model was trained on.", is_flag=True)
@option("--prove/--no-prove", "Decode at the far end of the largest context.", default=True)
@timeout_option("3600, as a batch at the far end is slow on a CPU")
@measuring_options(has_own_timeout=True)
def command(every: bool, reserve_bytes: int | None, cap_train: bool, prove: bool, asked: Asked) -> None:
    """Find the largest n_ctx by real allocations, and decode at its far end to prove it.

    Theory and a dry run of llama.cpp's allocator say where to look; then one worker makes contexts until the largest
    that works and the smallest that fails are 256 tokens apart. --n-ctx is the upper end of the search.
    """
    from ggbench.cli.measuring import make_jobs, measure, warn_of_memory_use
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.maxctx import EXPERIMENT
    from ggbench.records.context import ContextSettings

    if every and asked.quants:
        raise UsageError(f"--all and the quant {asked.quants[0]!r} exclude each other", "omit one of them")
    settings = ContextSettings(reserve_bytes=reserve_bytes, prove=prove, cap_train=cap_train)
    jobs = make_jobs(EXPERIMENT, settings, asked, every=every)
    warn_of_memory_use(asked)
    measured = measure(jobs, asked, is_sweep=every)
    show_measured(measured)
    measured.leave()
