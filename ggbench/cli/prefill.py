"""`ggbench prefill`: time to the first token against the length of the prompt."""

from __future__ import annotations

import click

from ggbench.cli.glossary import CommandWithTerms
from ggbench.cli.options import Asked, echo_tokens, measuring_options, option
from ggbench.errors import UsageError
from ggbench.report.glossary import PREFILL
from ggbench.units import parse_tokens


def _parse_lengths(ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, ...]:
    """Parse numbers of tokens separated by commas, without duplicates. Raises UsageError."""
    lengths = []
    for part in text.split(","):
        try:
            lengths.append(parse_tokens(part))
        except UsageError as error:
            hint = "write numbers of tokens separated by commas: 1,25,512,16k"
            raise UsageError(f"--lengths: {error.message}", hint) from None
        echo_tokens(ctx, part, lengths[-1])
    return tuple(dict.fromkeys(lengths))


@click.command(cls=CommandWithTerms, terms=PREFILL)
@option(
    "--lengths",
    "Prompt lengths in tokens, e.g. 512,2k,16k.",
    callback=_parse_lengths,
    default="1,25,128,512,2048",
    metavar="N,N,...",
)
@option("-r --repeat", "Time each length N times.", click.IntRange(1), metavar="N", default=3)
@measuring_options()
def command(lengths: tuple[int, ...], repeat: int, asked: Asked) -> None:
    """Time prompts of several lengths, each from an empty cache after an untimed one, and show the medians."""
    from ggbench.cli.measuring import make_jobs, measure
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.prefill import EXPERIMENT
    from ggbench.records.prefill import PrefillSettings

    measured = measure(make_jobs(EXPERIMENT, PrefillSettings(lengths, repeat), asked), asked)
    show_measured(measured)
    measured.leave()
