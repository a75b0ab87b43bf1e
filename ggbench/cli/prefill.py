"""`ggbench prefill`: time to the first token against the length of the prompt."""

from __future__ import annotations

import click

from ggbench.cli.glossary import CommandWithTerms
from ggbench.cli.options import Asked, measuring_options, option
from ggbench.errors import UsageError
from ggbench.report.glossary import PREFILL


@click.command(cls=CommandWithTerms, terms=PREFILL)
@option("--lengths", "Tokens of each prompt.", default="1,25,128,512,2048")
@option("-r --repeat", "Timings of each length.", click.IntRange(1), default=3)
@measuring_options()
def command(lengths: str, repeat: int, asked: Asked) -> None:
    """Time prompts of several lengths, each from an empty cache after an untimed one, and show the medians."""
    from ggbench.cli.measuring import make_jobs, measure
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.prefill import EXPERIMENT
    from ggbench.records.prefill import PrefillSettings

    measured = measure(make_jobs(EXPERIMENT, PrefillSettings(_parse_lengths(lengths), repeat), asked), asked)
    show_measured(measured)
    measured.leave()


def _parse_lengths(text: str) -> tuple[int, ...]:
    """Parse whole numbers separated by commas, without duplicates. Raises UsageError."""
    try:
        lengths = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a list of lengths", "write whole numbers separated by commas: 1,25,512"
        ) from None
    if min(lengths) < 1:
        raise UsageError(f"{min(lengths)} is not the length of a prompt", "lengths are 1 or more")
    return lengths
