"""`ggbench check`: whether a pasted llama-server command fits here, what it wastes, and what will bite."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.budget_options import (
    BudgetOptions,
    budget_options,
    find_draft,
    start_allocator,
    with_draft,
)
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.downloads import reading_headers
from ggbench.commands.load_options import load_options_of_plans
from ggbench.commands.options import HubOptions, offline_option, output_options
from ggbench.commands.output import Output
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import ExitCode, GgbenchError, UsageError
from ggbench.paths import path_exists

if TYPE_CHECKING:
    from ggbench.engines.llama.command_line import CommandLine
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.sizing.dry_allocator import DryAllocator


@click.command()
@budget_options
@load_options_of_plans
def _settings(memory: BudgetOptions, setup: LlamaConfig) -> tuple[BudgetOptions, LlamaConfig]:
    """Return the options of a pasted command as plan takes them."""
    return memory, setup


class _LineCommand(DocumentedCommand):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words. Raises UsageError for a line without quotes."""
        first = args[0] if args else ""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not first.endswith("llama-server"):
                raise
            raise UsageError(error.message, "quote the line: ggbench check 'llama-server ...'") from None


@click.command(
    cls=_LineCommand,
    examples="""
    ggbench check 'llama-server -m Qwen3-8B-Q4_K_M.gguf -c 65536' --gpu rtx-3060
    ggbench check 'llama-server -m model.gguf -c 8192 -fa on' qwen3-14b q4_k_m
    ggbench check < start.sh
    """,
)
@click.argument("words", nargs=-1, metavar="[LINE|-] [MODEL] [QUANT]")
@budget_options
@offline_option
@output_options
def command(words: tuple[str, ...], memory: BudgetOptions, hub: HubOptions, output: Output) -> None:
    """Check a llama-server command from a forum: does it fit here, what does it waste, what will bite?

    LINE is one text in quotes, or on stdin, with line continuations, LLAMA_ARG_ variables, as `llama serve` or in a
    docker run. A file that is not here is planned as the model of the catalog with its name; MODEL and QUANT say which
    otherwise. Exit code 3: it does not fit, or llama-server refuses it.

    What is not given is as llama-server has it: four slots, the training context, and --fit, which shortens the context
    and keeps layers or experts in main memory until the rest fits. Each finding is a plan of the same command with one
    change. The second line is the command with all that is faster, or with which it fits.
    """
    from ggbench.decisions.check.findings import check_line, server_setup
    from ggbench.decisions.check.model import find_target
    from ggbench.decisions.check.show import CHECK, check_answer, check_record, unused_options
    from ggbench.engines.llama.command_line import parse_command
    from ggbench.models.targets import smaller_targets

    text, named = _line_of(words)
    line = parse_command(text)
    own, idle = line.words({flag for param in _settings.params for flag in param.opts})
    of_line, given = _settings.main(own, prog_name="ggbench check", standalone_mode=False)
    with reading_headers(output) as on_progress:
        ref, target, stand_in = find_target(line, named, hub.access(), on_progress)
    memory, uncounted = _beside(memory, of_line, line, ref, given, hub)
    setup = server_setup(line, given)
    budget = memory.budget(replace(setup, tensor_split=()))
    if len(setup.tensor_split) > max(1, len(budget.devices)):
        setup = replace(setup, tensor_split=())
    draft = find_draft(memory.draft, setup if memory.draft or setup.mtp else setup.undrafted(), hub)
    budget = with_draft(budget, draft)

    def allocate(setup: LlamaConfig) -> DryAllocator:
        return start_allocator(setup, budget, draft)

    def smaller(most_bytes: int) -> Sequence[Target]:
        return smaller_targets(ref, [target], most_bytes, hub=hub.access())

    checked = check_line(line, target, budget, setup, allocate, memory.given, smaller)
    notes = (stand_in, *unused_options(idle, (*line.uncounted, *uncounted)))
    output.either(CHECK, check_record(checked, budget, notes), check_answer(checked, budget, notes))
    raise click.exceptions.Exit(
        ExitCode.DONE if checked.row.fits and not checked.refused else ExitCode.DOES_NOT_FIT
    )


def _line_of(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the pasted line, from stdin without one or for `-`, and MODEL and QUANT; bare words are one line."""
    from ggbench.engines.llama.command_line import MOST_CHARACTERS

    if words[:1] in ((), ("-",)):
        return sys.stdin.read(MOST_CHARACTERS + 1), words[1:]
    if len(words) == 1 or any(each.isspace() for each in words[0]):
        return words[0], words[1:]
    return shlex.join(words), ()


def _beside(
    memory: BudgetOptions,
    of_line: BudgetOptions,
    line: CommandLine,
    ref: ModelRef,
    setup: LlamaConfig,
    hub: HubOptions,
) -> tuple[BudgetOptions, tuple[str, ...]]:
    """Return the machine with what the command puts beside the model, and the options of which that is unknown.

    A projector whose file is not here counts as the one of the model's repo, which `-hf` loads by default.
    """
    found = replace(memory, draft=_draft(of_line.draft))
    projector = of_line.mmproj
    automatic = line.last("--mmproj-auto")
    if projector is None and line.last("--hf-repo") and not (automatic and automatic.is_off):
        projector = Path("auto")
    if projector is None:
        return found, ()
    is_here = path_exists(str(projector))
    try:
        return replace(found, mmproj=projector if is_here else Path("auto")).of_model(ref, setup, hub), ()
    except GgbenchError:
        return found, () if of_line.mmproj is None else ("--mmproj",)


def _draft(text: str | None) -> str | None:
    """Return a draft's file, or the model of the catalog with its name if it is not here."""
    from ggbench.gguf_file.quants import plain_quant, quant_label
    from ggbench.models.catalog import load_catalog

    if text is None or path_exists(text):
        return text
    known, quant = load_catalog().called(text), quant_label(text.partition(":")[0])
    return text if known is None else f"{known.id}:{plain_quant(quant or text.partition(':')[2])}".rstrip(":")
