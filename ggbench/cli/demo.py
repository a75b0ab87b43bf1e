"""`ggbench demo`: a tour without a network: pick, measure twins, compare, judge a draft model."""

from __future__ import annotations

import shlex

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import TOKENS, option, quiet_option
from ggbench.commands.output import Output

_MODEL = "twin:qwen1.5-0.5b"
_QUANTS = ("q8_0", "q4_k_m")
_N_STEPS = 4
_PICK = "pick qwen2.5-14b --gpu rtx-3060 --need-ctx 16k"
_SPECULATE = f"speculate twin:qwen1.5-1.8b q4_k_m --draft {_MODEL}:q4_k_m -k 1,3 -d 0 --within 10s"
_NEXT = """\
What to type next:
  ggbench pick PATH/TO/FOLDER       which of your own files to run, and how
  ggbench bench PATH/TO/FILE.gguf   the same figures for one of your files
  ggbench tui                       the same by hand; ? explains keys and numbers"""


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench demo
    ggbench demo -n 2k
    """,
)
@option("-n --n-gen", "Number of tokens to decode.", TOKENS, default=256)
@quiet_option
def command(n_gen: int, output: Output) -> None:
    """Tour ggbench in about a minute: pick, measure, compare, and judge a draft model.

    Each step prints its command line. Nothing is downloaded: the measured files are twins, with the true shape and
    types of a model but without trained weights. Speed and memory are real; the generated text is not.
    """
    from ggbench.runs.store.database import Store

    _step(1, "Which quant of a 14B should run on a 12 GB card? Neither has to be here.", _PICK, output)
    line = f"bench {_MODEL} {' '.join(_QUANTS)} -n {n_gen} --plot"
    _step(2, "How fast is a 0.5B here, token by token? Its twins are written, then measured.", line, output)
    with Store.open() as store:
        ids = sorted(run.run_id for run in store.list_runs(limit=len(_QUANTS)))
    line = f"compare {' '.join(map(str, ids))}"
    _step(3, "Which of the two is better, in what, and by how much?", line, output)
    question = "Would it make a 1.8B faster here, as its draft model? Steps of both are timed."
    _step(4, question, _SPECULATE, output)
    output.show(_NEXT)


def _step(number: int, question: str, line: str, output: Output) -> None:
    """Show a question, the command line that answers it, and its output. Raises GgbenchError if the command does."""
    output.show(f"{number}/{_N_STEPS}  {question}\n$ ggbench {line}")
    words = [*shlex.split(line), *(["--quiet"] if output.quiet else [])]
    code = click.get_current_context().find_root().command.main(words, "ggbench", standalone_mode=False)
    if code:
        raise click.exceptions.Exit(code)
    output.show("")
