"""`ggbench speculate`: whether speculative decoding pays here, before the download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import MeasureRequest, measuring_options, option, plot_option, settings_options
from ggbench.experiments.speculate.record import SpeculateSettings

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target

_DRAFT = ("--draft", "-md")


class _SpeculateCommand(DocumentedCommand):
    """Reads `--draft MODEL QUANT` as `--draft MODEL:QUANT`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from ggbench.gguf_file.quants import names_quant, quant_from_file_name

        joined: list[str] = []
        for word in args:
            if len(joined) > 1 and joined[-2] in _DRAFT and names_quant(word, quant_from_file_name(word), ()):
                joined[-1] += f":{word}"
            else:
                joined.append(word)
        return super().parse_args(ctx, joined)


@click.command(
    cls=_SpeculateCommand,
    examples="""
    ggbench speculate qwen2.5-32b q4_k_m --draft qwen2.5-0.5b q8_0
    ggbench speculate ~/big-q4_k_m.gguf --draft ~/small-q8_0.gguf -k 3,5
    ggbench speculate org/name-GGUF q4_k_m --draft qwen2.5-0.5b q8_0 -d 16k
    """,
)
@option("-md --draft draft", "The draft model: MODEL QUANT, or a file.", metavar="MODEL [QUANT]", required=True)
@settings_options(SpeculateSettings)
@plot_option
@measuring_options()
def command(draft: str, settings: SpeculateSettings, plot: bool, asked: MeasureRequest) -> None:
    """Time the parts of speculative decoding, and compute how many drafted tokens must be accepted for it to pay.

    A step drafts k tokens, verifies them in one batch, and yields L tokens on average, the model's own included. It
    pays above the break-even L. That needs no trained weights: of a model that is not on this disk, twins are measured,
    of a large one only some layers, and the whole is extrapolated. The required time is printed first. Which L a draft
    reaches depends on the text: code and repetition reach more than prose.

    Steps follow llama-server with --spec-type draft-simple: the draft reads each verified batch again.

    Not supported: recurrent models, heads such as eagle3 or MTP, and drafting by n-grams.
    """
    from ggbench.commands.load_options import check_main_gpu, check_rpc, given_setup
    from ggbench.commands.measuring import measure
    from ggbench.commands.process import interruptible
    from ggbench.commands.run_output import show_measured
    from ggbench.experiments.speculate.measure import EXPERIMENT
    from ggbench.models.reference import parse_model
    from ggbench.runs.experiment import Job

    given = given_setup(EXPERIMENT, asked)
    EXPERIMENT.check(given, settings)
    check_main_gpu(asked.setup)
    check_rpc(asked.setup)
    with interruptible(asked.output):
        hub = asked.hub.access()
        target, drafting = (_found(ref.require_gguf(), hub) for ref in (asked.model, parse_model(draft)))
    measured = measure([Job(EXPERIMENT, target, given, settings, draft=drafting)], asked)
    show_measured(measured, plot=plot)
    measured.leave()


def _found(ref: ModelRef, hub: HubAccess) -> Target:
    """Return the file if it is on this disk, else a twin of the model. Raises like `resolve_one`."""
    from msgspec.structs import replace

    from ggbench.errors import NetworkError, UsageError
    from ggbench.models.targets import resolve_one

    twin = ref.as_twin() if ref.kind != "hub" else replace(ref, kind="published_twin", label=f"twin:{ref.label}")
    try:
        found = resolve_one(ref, hub=hub)
    except (NetworkError, UsageError):
        if twin == ref or not ref.quants:
            raise
        return resolve_one(twin, hub=hub)
    return found if not found.download_bytes else resolve_one(twin, hub=hub)
