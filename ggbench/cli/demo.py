"""`ggbench demo`: a tour without a network: pick, measure twins, compare, judge a draft model."""

from __future__ import annotations

import shlex

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import TOKENS, HubOptions, MeasureRequest, option, quiet_option
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
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_answer
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.experiments.decode.measure import EXPERIMENT
    from ggbench.experiments.decode.record import DecodeSettings
    from ggbench.models.reference import parse_model
    from ggbench.show.quants import bench_answer

    _step(1, "Which quant of a 14B should run on a 12 GB card? Neither has to be here.", _PICK, output)
    line = f"bench {_MODEL} {' '.join(_QUANTS)} -n {n_gen} --plot"
    _announce(2, "How fast is a 0.5B here, token by token? Its twins are written, then measured.", line, output)
    asked = MeasureRequest(parse_model(_MODEL, *_QUANTS), LlamaConfig(), HubOptions(), output)
    measured = measure(make_jobs(EXPERIMENT, DecodeSettings(n_gen), asked, every=True), asked)
    show_answer(bench_answer(measured.runs), measured.runs, output, plot=True)
    if measured.exit_code:
        measured.leave()
    output.show("")
    ids = [
        each.run.run_id for each in measured.finished if each.run.is_complete and each.run.run_id is not None
    ]
    if len(ids) > 1:
        _step(
            3,
            "Which of the two is better, in what, and by how much?",
            f"compare {' '.join(map(str, ids))}",
            output,
        )
    _step(
        4,
        "Would it make a 1.8B faster here, as its draft model? Steps of both are timed.",
        _SPECULATE,
        output,
    )
    output.show(_NEXT)
    measured.leave()


def _announce(number: int, question: str, line: str, output: Output) -> None:
    output.show(f"{number}/{_N_STEPS}  {question}\n$ ggbench {line}")


def _step(number: int, question: str, line: str, output: Output) -> None:
    """Show a question, the command line that answers it, and its output. Raises GgbenchError if the command does."""
    _announce(number, question, line, output)
    words = [*shlex.split(line), *(["--quiet"] if output.quiet else [])]
    code = click.get_current_context().find_root().command.main(words, "ggbench", standalone_mode=False)
    if code:
        raise click.exceptions.Exit(code)
    output.show("")
