"""`ggbench plan`: what each quant needs, from headers alone and before any download."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec
import msgspec.structs

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.downloads import reading_headers, reading_notice
from ggbench.commands.load_options import BudgetOptions, IgnoredGpuOptions, budget_options, load_options
from ggbench.commands.options import (
    HubOptions,
    against_option,
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
    from ggbench.hub.repo_records import RepoListing
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.sizing.plan_record import Budget, EnginePlan, PlanRow


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

    Of a checkpoint of Transformers, transformers:org/name, transformers:FOLDER or transformers-twin:ID, QUANTS are
    bf16, f16, f32, int8, nf4, nf4-dq, gptq-int4 and awq-int4.

    The first time the memory's bandwidth is measured, for a second or two. Expected speeds are of what this machine has
    run or forecast already: ggbench forecast measures those of a model.

    Defaults are those of llama-server with one slot (-np 1): logits of one token, flash attention where it works,
    sliding-window layers that keep their window alone. ggbench help defaults lists what differs.
    """
    shown = _Shown(output, setup, against=against is not None)
    if ref.engine:
        rows = _plan_own(ref, memory, no_measure, setup, hub, shown)
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
        rows: Sequence[PlanRow],
        read: tuple[RepoListing, int] | None,
        alternative: PlanRow | None = None,
    ) -> None:
        """Print the document, or the tables and what the Hub was asked for."""
        output = self.output
        if output.as_json:
            from ggbench.show.against import published_sizes
            from ggbench.show.plan import PLAN, PLAN_ROW

            output.document(
                PLAN,
                read,
                model=rows[0].model,
                machine=budget,
                sources=sources,
                rows=[PLAN_ROW.value(row, against=published_sizes(row)) for row in rows] if self.against else rows,
                alternative=alternative,
            )
        else:
            from ggbench.engines.contract import config_type
            from ggbench.show.plan import plan_report

            width = output.console().width
            setup = self.setup if config_type(rows[0].engine).loads_gguf else None
            output.show(plan_report(budget, setup, sources, rows, width=width))
            if self.against:
                from ggbench.show.against import published_sizes_table

                output.show(published_sizes_table(rows, width=width))
        if read is not None:
            output.notice(reading_notice(*read))
        if not budget.on_gpu and self.setup.n_gpu_layers:
            IgnoredGpuOptions(output).report("the plan is for main memory", "--gpu or --vram plans for a GPU")
        if budget.bandwidth is None:
            output.notice("For W, B and tok/s, give the memory's bandwidth: --bandwidth 1008GB/s")


def _plan_own(
    ref: ModelRef, memory: BudgetOptions, no_measure: bool, setup: LlamaConfig, hub: HubOptions, shown: _Shown
) -> Sequence[PlanRow]:
    """Show a plan of what an engine loads from something else than a GGUF."""
    from ggbench.plugins import load_plugin

    module = load_plugin("ggbench.engines", ref.engine, "plan", "engine")
    found: EnginePlan = module.plan_model(ref, memory, setup, hub, measures=not no_measure)
    read = None if found.listing is None else (found.listing, found.moved_bytes)
    shown.show(found.budget, dict(found.sources), found.rows, read)
    return found.rows


def _plan_files(
    ref: ModelRef,
    memory: BudgetOptions,
    no_measure: bool,
    setup: LlamaConfig,
    hub: HubOptions,
    shown: _Shown,
) -> Sequence[PlanRow]:
    """Show a plan of GGUF files, for which llama.cpp's allocator is run dry."""
    from ggbench.engines.contract import launch_engine
    from ggbench.machine.gpus import visible_gpus

    with contextlib.ExitStack() as stack:
        # The worker starts while modules are imported; where there is a GPU, after its free memory was read.
        engine = None if visible_gpus() else stack.enter_context(contextlib.closing(launch_engine(setup)))
        budget = memory.budget(setup, measures=not no_measure)
        engine = engine or stack.enter_context(contextlib.closing(launch_engine(setup)))
        from ggbench.machine.host import default_threads
        from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load

        loaded = msgspec.structs.replace(setup_to_load(setup, budget), threads=setup.threads or default_threads())
        allocator = DryAllocator(engine, loaded, budget.devices)
        from ggbench.decisions.plan import plan_model
        from ggbench.models.targets import repo_read, resolve_headers, smaller_targets
        from ggbench.sizing.plan import PlanRequest

        request = PlanRequest(budget, setup, memory.given)
        with reading_headers(shown.output) as on_progress:
            targets = resolve_headers(ref, hub=hub.access(), on_progress=on_progress)

        def smaller(most_bytes: int) -> Sequence[Target]:
            is_named = ref.quants or len(targets) == 1
            return smaller_targets(ref, targets, most_bytes, hub=hub.access()) if is_named else ()

        if not shown.output.as_json:
            importlib.import_module("ggbench.show.plan")  # while the worker starts
        plan = plan_model(targets, request, allocator, smaller)
    shown.show(budget, plan.sources, plan.rows, repo_read(targets), plan.alternative)
    return plan.rows


def _exit_code(rows: Sequence[PlanRow], *, named: bool) -> ExitCode:
    from ggbench.engines.endings import Outcome

    if all(row.n_params is None for row in rows):
        return ExitCode.BAD_FILE
    if all(row.outcome is not Outcome.COMPLETED for row in rows):
        return ExitCode.ENGINE_FAILED
    if named and not any(row.fits for row in rows):
        return ExitCode.DOES_NOT_FIT
    return ExitCode.DONE
