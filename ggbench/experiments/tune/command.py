"""`ggbench tune`: the settings that beat the defaults, with the gain and its interval."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import TOKENS, Asked, echo_tokens, measuring_options, option, plot_option
from ggbench.engines.llama.config import KV_TYPES
from ggbench.errors import UsageError
from ggbench.experiments.tune.record import DEPTHS, N_PROMPT, Objective
from ggbench.units import parse_duration, parse_tokens


def _parse_depths(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    """Parse numbers of tokens, 0 included, without duplicates. Raises UsageError, naming the option."""
    depths = []
    for part in text.split(","):
        try:
            depths.append(parse_tokens(part, least=0))
        except UsageError as error:
            raise UsageError(f"{param.opts[-1]}: {error.message}", "write depths in tokens: 0,8192") from None
        echo_tokens(ctx, part, depths[-1])
    return tuple(dict.fromkeys(depths))


def _parse_kv_types(_ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Parse types of a KV cache. Raises UsageError, naming the option."""
    types = tuple(dict.fromkeys(part.strip().lower() for part in text.split(","))) if text else ()
    for each in types:
        if each not in KV_TYPES:
            raise UsageError(
                f"{param.opts[-1]}: {each!r} is not a type of a KV cache", f"llama.cpp has {', '.join(KV_TYPES)}"
            )
    return types


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench tune ~/models/model-q4_k_m.gguf --depth 0,4k --within 4m
    ggbench tune qwen2.5-7b q4_k_m --for both --allow-kv q8_0
    ggbench decode qwen2.5-7b q4_k_m --tuned
    """,
)
@option(
    "--depth depths",
    "Tokens in the KV cache at which to compare, e.g. 0,32k. The mean of all decides.",
    callback=_parse_depths,
    default=",".join(map(str, DEPTHS)),
    metavar="N,N,...",
)
@option(
    "--for objective",
    "What should be faster: decoding, reading a prompt, or the mean of both.",
    click.Choice(["decode", "prefill", "both"]),
    default="decode",
)
@option("--within", "Stop the search after this time, e.g. 5m.", metavar="TIME", default="10m")
@option(
    "--allow-kv kv_types",
    "Try the KV cache in these types too, which cost quality, e.g. q8_0.",
    callback=_parse_kv_types,
    metavar="TYPE,...",
)
@option("-p --n-prompt", "With --for prefill or both: tokens of the prompt.", TOKENS, default=N_PROMPT)
@plot_option
@measuring_options()
def command(
    depths: tuple[int, ...],
    objective: Objective,
    within: str,
    kv_types: tuple[str, ...],
    n_prompt: int,
    plot: bool,
    asked: Asked,
) -> None:
    """Search for the settings with which QUANT is fastest on this machine, and say how much is gained.

    Settings that look equal at a short context can differ by 3 times at a long one, so --depth decides: the mean over
    the depths counts. Candidates change the number of threads, flash attention, the physical batch, the mapping of the
    file, how several GPUs split the model, and for a model that does not fit which experts, layers or tensors stay in
    main memory. What does not fit is never tried. Not tried: NUMA, process priority, and settings of the build.

    All candidates are measured a little at each depth; those that are clearly slower than the leader are dropped, the
    rest are measured longer, and what was faster alone is tried together. The defaults are measured again every few
    candidates, and where they took 10 % more or less than before, what lies between is repeated; a machine that drifts
    on is called too noisy, with the programs that computed.

    The best of several is better by chance, so its gain is measured again, by turns with the defaults, each time in a
    new process where the time allows, and only that is stated, with its 95 % interval. Often no setting beats the
    defaults. Ctrl-C keeps the best so far. --tuned of decode, speed, bench, maxctx and quality takes what was found for
    this machine, file and llama.cpp, and says what has changed where one of them is another.
    """
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_measured
    from ggbench.experiments.tune.measure import EXPERIMENT
    from ggbench.experiments.tune.record import TuneSettings

    if plot and asked.output.as_json:
        raise UsageError("--plot does not go into JSON", "omit --json, or use results show ID --plot")
    settings = TuneSettings(depths, objective, parse_duration(within), kv_types, n_prompt)
    measured = measure(make_jobs(EXPERIMENT, settings, asked), asked)
    show_measured(measured, plot=plot)
    measured.leave()
