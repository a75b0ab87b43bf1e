"""`ggbench speed`: tokens/s and memory by input length and batch size, as defined by the published tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_batches
from ggbench.commands.measure_options import measuring_options, tuned_option, with_tuned
from ggbench.commands.options import MeasureRequest, against_option, settings_options
from ggbench.errors import ExitCode
from ggbench.experiments.speed.record import SpeedSettings
from ggbench.show.glossary import SPEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ggbench.commands.measuring import MeasureResult
    from ggbench.runs.experiment import Job


@click.command(
    cls=DocumentedCommand,
    terms=SPEED,
    examples="""
    ggbench speed twin:qwen1.5-0.5b q4_k_m --inputs 1,512 -n 64 --batch 1,4
    ggbench speed ~/models/model-q4_k_m.gguf --within 1h --against published
    ggbench speed https://host Qwen/Qwen2.5-7B-Instruct --inputs 512 -n 256 \\
      --batch 1,8,32 --api-key-env VLLM_API_KEY
    """,
)
@settings_options(SpeedSettings)
@against_option
@tuned_option
@measuring_options(
    many=True,
    load=load_options_of_batches,
    timeout="3600, as a long prompt is slow on a CPU",
    servers=True,
    own_models=True,
)
def command(settings: SpeedSettings, against: str | None, asked: MeasureRequest) -> None:
    """Measure tokens/s and memory for each input length and batch size, as defined by the published tables.

    Each case uses a fresh context: it reads a separate prompt per sequence, then generates N tokens for all at once;
    memory is the case's own. Qwen2.5's tables divide generated tokens by total time, Qwen3's add prompt tokens; both
    are shown, plus separate prefill and decode rates as in llama-batched-bench.

    Cheap cases run first. A case that would take too long is skipped, and one that does not fit in memory fails; its
    row shows the estimate or the reason, and the rest continue. Without QUANTS, all quants share the time. `decode` is
    the total over all sequences of a batch, `each` the speed of one; for a server, batch N means N concurrent requests.

    In a step the weights are read once and every sequence's cache is read, so W falls with the batch size. Dense speed
    does not depend on the tokens, so a twin suffices; in a mixture of experts a twin may route to other experts.
    """
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.experiments.speed.measure import EXPERIMENT, run_within

    jobs = with_tuned(make_jobs(EXPERIMENT, settings, asked, every=True), asked)
    if click.get_current_context().get_parameter_source("within_s") is ParameterSource.DEFAULT:
        _confirm(jobs, settings, asked)
    measured = measure(jobs, asked, run=run_within)
    _show(measured, against)
    measured.leave()


def _confirm(jobs: Sequence[Job], settings: SpeedSettings, asked: MeasureRequest) -> None:
    """Ask before a run that may take this long, if the user is at a terminal. "No" ends the command with 130."""
    from ggbench.commands.downloads import can_ask
    from ggbench.experiments.speed.record import WITHIN_S
    from ggbench.units import counted

    if asked.hub.yes or not can_ask():
        return
    cases = counted(len(jobs) * len(settings.cases), "case")
    question = f"Measure {cases} within {WITHIN_S / 60:.0f} min in total? --within sets the time"
    if not click.confirm(question, default=True, err=True):
        asked.output.notice("nothing was measured")
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _show(measured: MeasureResult, against: str | None) -> None:
    from ggbench.commands.run_output import run_document, show_measured, show_run_ids
    from ggbench.experiments.speed.document import DOCUMENTS, joined_documents

    if not measured.asked.output.as_json:
        show_measured(measured, against=against)
        return
    documents = [run_document(each.run, against=against) for each in measured.finished]
    joined = joined_documents(documents)
    measured.asked.output.document(DOCUMENTS.one, model=measured.asked.model.text, **joined)
    show_run_ids(measured)
