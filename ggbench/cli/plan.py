"""`ggbench plan`: what each quant needs, from headers alone and before any download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
import msgspec.structs

from ggbench.commands.budget_options import BudgetOptions, budget_options
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.gpu_options import IgnoredGpuOptions
from ggbench.commands.header_progress import reading_headers, reading_notice
from ggbench.commands.options import (
    HubOptions,
    against_option,
    load_options,
    model_arguments,
    no_measure_option,
    offline_option,
    output_options,
)
from ggbench.commands.output import Output
from ggbench.errors import ExitCode
from ggbench.show.glossary import PLAN

if TYPE_CHECKING:
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.planned_variants import PlannedModel
    from ggbench.models.reference import ModelRef
    from ggbench.sizing.dry_allocator import DryAllocator
    from ggbench.sizing.plan_record import Budget, PlanRow


@click.command(
    cls=DocumentedCommand,
    terms=PLAN,
    examples="""
    ggbench plan qwen2.5-14b --gpu rtx-3060 -c 16k
    ggbench plan org/name-GGUF q6_k q4_k_m
    ggbench plan ~/models/model.gguf --memory-limit 8GiB -ctk q8_0 -ctv q8_0
    ggbench plan qwen1.5-moe-a2.7b q4_k_m --vram 8GiB --n-cpu-moe 12
    ggbench plan qwen2.5-32b q4_k_m --rpc 192.168.1.7:50052
    """,
)
@model_arguments
@budget_options
@no_measure_option
@load_options
@offline_option
@against_option
@output_options
def command(
    ref: ModelRef,
    memory: BudgetOptions,
    no_measure: bool,
    setup: LlamaConfig,
    hub: HubOptions,
    against: str | None,
    output: Output,
) -> None:
    """Show what each of QUANTS of MODEL needs: file, weights, KV and compute, the longest context, W and B at best.

    A header is enough: a catalog model needs no file, of a file only the header is read, even of one that has only
    begun to arrive, and of a repo of the Hub, org/name, the headers are read by range and cached, so that --offline
    gives the same table afterwards. llama.cpp's own quantizer and allocator compute the sizes; nothing is loaded. --gpu
    and --vram plan for a card that need not be here.

    Without --n-ctx the plan is for 8192 tokens, or the training context where that is shorter. Where the quant that
    misses least does not fit, single changes that would help are listed, each sized as the plan is; --json has them for
    every row. The exit code is 3 where none of the named quants fits, or the only one there is does not.

    Of a checkpoint of Transformers, tf:org/name, tf:FOLDER or synth-tf:ID, QUANTS are bf16, f16, f32, int8, nf4,
    nf4-dq, gptq-int4 and awq-int4.

    The first time the memory's bandwidth is measured, for a second or two. Expected speeds are of what this machine has
    run or forecast already: ggbench forecast measures those of a model.

    Defaults are those of llama-server with one slot (-np 1): logits of one token, flash attention where it works,
    sliding-window layers that keep their window alone. ggbench help defaults lists what differs.
    """
    shown = _Shown(output, setup, against=against is not None)
    if ref.is_checkpoint:
        rows = _plan_checkpoint(ref, memory, no_measure, setup, hub, shown)
    else:
        rows = _plan_files(ref, memory, no_measure, setup, hub, shown)
    raise click.exceptions.Exit(_exit_code(rows, named=bool(ref.quants) or len(rows) == 1))


class _Shown(msgspec.Struct, frozen=True):
    """Where and how a plan is shown."""

    output: Output
    setup: LlamaConfig
    against: bool
    """Whether published sizes stand below the rows."""

    def show(
        self,
        budget: Budget,
        sources: dict[str, str],
        rows: list[PlanRow],
        planned: PlannedModel,
        alternative: PlanRow | None = None,
    ) -> None:
        """Print the document, or the tables and what the Hub was asked for."""
        output = self.output
        if output.as_json:
            from ggbench.show.plan_document import PLAN, PLAN_ROW
            from ggbench.show.sizes_against import published_sizes

            output.document(
                PLAN,
                planned,
                model=rows[0].model,
                machine=budget,
                sources=sources,
                rows=[PLAN_ROW.value(row, against=published_sizes(row)) for row in rows] if self.against else rows,
                alternative=alternative,
            )
        else:
            from ggbench.show.terminal.plan import plan_report

            width = output.console().width
            setup = self.setup if rows[0].engine == self.setup.engine else None
            output.show(plan_report(budget, setup, sources, rows, width=width))
            if self.against:
                from ggbench.show.terminal.sizes_against import published_sizes_table

                output.show(published_sizes_table(rows, width=width))
        if planned.listing is not None:
            output.notice(reading_notice(planned.listing, planned.moved_bytes))
        if not budget.on_gpu and self.setup.n_gpu_layers:
            IgnoredGpuOptions(output).report("the plan is for main memory", "--gpu or --vram plans for a GPU")
        if budget.bandwidth is None:
            output.notice("For W, B and tok/s, give the memory's bandwidth: --bandwidth 1008GB/s")


def _plan_checkpoint(
    ref: ModelRef,
    memory: BudgetOptions,
    no_measure: bool,
    setup: LlamaConfig,
    hub: HubOptions,
    shown: _Shown,
) -> list[PlanRow]:
    """Show a plan without llama.cpp."""
    from ggbench.cli.checkpoint_plan import planned_rows, sources
    from ggbench.models.planned_variants import PlannedModel

    budget, rows, found = planned_rows(ref, memory, setup, hub, measures=not no_measure)
    moved = None if found.listing is None else found.moved_bytes
    shown.show(budget, dict(sources(found)), rows, PlannedModel((), found.listing, moved))
    return rows


def _plan_files(
    ref: ModelRef,
    memory: BudgetOptions,
    no_measure: bool,
    setup: LlamaConfig,
    hub: HubOptions,
    shown: _Shown,
) -> list[PlanRow]:
    """Show a plan of GGUF files, for which llama.cpp's allocator is run dry."""
    import threading

    from ggbench.engines.contract import DEFAULT_TIMEOUT_S
    from ggbench.engines.llama.engine import launch
    from ggbench.machine.cpu import default_threads
    from ggbench.machine.programs import programs_that_hold_memory
    from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load
    from ggbench.sizing.what_helps import with_other_quants, with_programs

    budget = memory.budget(setup, measures=not no_measure)
    loaded = msgspec.structs.replace(setup_to_load(setup, budget), threads=setup.threads or default_threads())
    engine = launch(threading.Event(), timeout_s=DEFAULT_TIMEOUT_S)  # first of all, as its worker takes a while
    with DryAllocator(engine, loaded, budget.devices) as allocator:
        from ggbench.decisions.known_speeds import known_here, with_expected
        from ggbench.models.planned_variants import planned_model
        from ggbench.sizing.plan import PlanRequest, plan

        request = PlanRequest(budget, setup, memory.given)
        with reading_headers(shown.output) as on_progress:
            planned = planned_model(ref, hub=hub.access(), on_progress=on_progress)
        rows = list(plan(planned.variants, request, allocator))
        rows = with_expected(rows, known_here([variant.file for variant in planned.variants], setup, budget))
        alternative = None
        if (ref.quants or len(rows) == 1) and not any(row.fits for row in rows):
            from ggbench.models.planned_variants import smaller_variants

            others = smaller_variants(ref, planned, _largest_bytes(rows), hub=hub.access())
            smaller = [row for row in plan(others, request, allocator) if row.fits or row.fits_with]
            alternative = next((row for row in smaller if row.fits), smaller[0] if smaller else None)
        rows = with_other_quants(rows, [] if alternative is None else [alternative])
        if budget.is_here and not all(row.fits for row in rows):
            rows = with_programs(rows, programs_that_hold_memory(on_gpu=budget.on_gpu, gpu_index=setup.main_gpu or 0))
        sources = _sources(rows, budget, allocator)
    shown.show(budget, sources, rows, planned, alternative)
    return rows


def _largest_bytes(rows: list[PlanRow]) -> int:
    """The most that the file of another quant may take, if its context takes what theirs does; none without a plan."""
    return max(((row.file_bytes or 0) + min(row.left_bytes or 0, 0) for row in rows), default=0)


def _sources(rows: list[PlanRow], budget: Budget, allocator: DryAllocator) -> dict[str, str]:
    """Where each kind of figure comes from."""
    weights = "tensor table of the header"
    if any(row.provenance == "catalog" for row in rows):
        weights = "simulated by llama.cpp's quantizer on the catalog's shape; a file adds its tokenizer, some MB"
    build = "" if allocator.versions is None else f" {allocator.versions.get('llama_cpp', '')}"
    sized = f"simulated by llama.cpp{build}'s allocator, nothing loaded"
    if allocator.compute_devices:
        sized += f"; compute in {', '.join(allocator.compute_devices)}"
    if budget.on_gpu and allocator.compute_devices and not allocator.has_gpu:
        sized += ", whose buffer stands for the GPU's, as this build has no GPU backend"
    return {"weights": weights, "kv_and_compute": sized}


def _exit_code(rows: list[PlanRow], *, named: bool) -> ExitCode:
    from ggbench.engines.endings import Outcome

    if all(row.n_params is None for row in rows):
        return ExitCode.BAD_FILE
    if all(row.outcome is not Outcome.COMPLETED for row in rows):
        return ExitCode.ENGINE_FAILED
    if named and not any(row.fits for row in rows):
        return ExitCode.DOES_NOT_FIT
    return ExitCode.DONE
