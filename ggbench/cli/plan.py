"""`ggbench plan`: what each quant needs, from headers, before any download."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.budget_options import BudgetOptions, budget_options, dry_allocator, find_draft, with_draft
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.downloads import reading_headers, reading_notice
from ggbench.commands.load_options import IgnoredGpuOptions, load_options_of_plans
from ggbench.commands.options import (
    HubOptions,
    memory_option,
    model_arguments,
    offline_option,
    output_options,
    workload_option,
)
from ggbench.commands.output import Output, plan_exit_code
from ggbench.errors import ExitCode, UsageError
from ggbench.expect.sessions import parse_session

if TYPE_CHECKING:
    from ggbench.engines.contract import Engine
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.expect.sessions import Conversation
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.sizing.plan_record import EnginePlan


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench plan qwen2.5-14b q4_k_m q5_k_m -c 16k --gpu rtx-3060
    ggbench plan ~/models/model-q4_k_m.gguf -ctk q8_0 -ctv q8_0
    ggbench plan qwen3-14b q4_k_m --gpu rtx-3060 --or rtx-4060-ti-16gb
    """,
)
@model_arguments
@budget_options
@memory_option(
    "--or others",
    "Also plan for these GPUs instead, and compare; repeatable. Without --gpu, this machine is the first.",
    multiple=True,
    metavar="NAME|SIZE,...",
)
@workload_option()
@load_options_of_plans
@offline_option
@output_options
def command(
    ref: ModelRef,
    memory: BudgetOptions,
    others: tuple[str, ...],
    workload: str | None,
    setup: LlamaConfig,
    hub: HubOptions,
    output: Output,
) -> None:
    """Show what each quant needs, whether it fits, its longest context, expected speed and loss.

    Only headers are read, so catalog models need no file, and nothing is loaded; llama.cpp's own quantizer and
    allocator compute the sizes. Exit code 3: none of the requested quants fits, or the model was trained with a shorter
    context than asked for, which is then planned, as llama-server gives a slot no more.

    Headers of a Hub repo (org/name) are fetched with range requests and cached for --offline; incomplete files work.
    --gpu and --vram plan for a card that this machine lacks, and --or compares several. Then, and with --workload, the
    fewest experts of a mixture stay in main memory with which it fits, as in pick, unless -ncmoe gives their number.

    If nothing fits, plan lists single changes that would make the closest quant fit; --json has them for every row.

    For a Transformers checkpoint, transformers:org/name or transformers:FOLDER, QUANTS are bf16, f16, f32, int8, nf4,
    nf4-dq, gptq-int4 and awq-int4.

    The first run measures memory bandwidth, for a second or two. Expected speeds come from earlier runs and forecasts
    on this machine; ggbench forecast MODEL adds one.

    Defaults match llama-server -np 1: logits of one token, flash attention if supported, sliding-window layers caching
    only their window. ggbench help defaults lists the differences.
    """
    if others and (ref.engine or setup.rpc_servers):
        raise UsageError("--or compares plans of GGUF files alone", "omit --or, --rpc or the other engine")
    session = parse_session(workload) if workload else None
    if session is not None and setup.n_ctx is None:
        setup = replace(setup, n_ctx=session.n_ctx * setup.n_seq_max)
    memory = memory.of_model(ref, setup, hub)
    if ref.engine:
        plans = [_plan_elsewhere(ref, memory, setup, hub)]
    else:
        plans = _plan_files(ref, _machines(memory, others), setup, hub, output, workload, session)
    if others:
        _compare(plans, output, session.name if session else "")
    else:
        _show(plans[0], setup, output, is_named=bool(ref.quants))
    raise click.exceptions.Exit(_exit_code(plans))


def _exit_code(plans: Sequence[EnginePlan]) -> ExitCode:
    rows = [row for plan in plans for row in plan.rows]
    return plan_exit_code(
        rows, misses=any(plan.is_capped for plan in plans) or not any(row.fits for row in rows)
    )


def _machines(memory: BudgetOptions, others: tuple[str, ...]) -> list[BudgetOptions]:
    """Return the options, and the same for each of other GPUs, which may have main memory of their own."""
    from ggbench.machine.description import brings_memory

    alone = replace(memory, vram=None, bandwidth=None)
    found = [replace(alone, gpu=(gpu,), ram=None if brings_memory(gpu) else memory.ram) for gpu in others]
    return [memory, *found]


def _plan_elsewhere(ref: ModelRef, memory: BudgetOptions, setup: LlamaConfig, hub: HubOptions) -> EnginePlan:
    """Return the plan of another engine's model, by that engine."""
    from ggbench.plugins import load_plugin

    module = load_plugin("ggbench.engines", ref.engine, "plan", "engine")
    plan: EnginePlan = module.plan_model(ref, memory, setup, hub)
    return plan


def _show(plan: EnginePlan, setup: LlamaConfig, output: Output, *, is_named: bool) -> None:
    from ggbench.show.plan import PLAN, plan_answer, plan_record

    headers = "" if plan.listing is None else reading_notice(plan.listing)
    output.either(PLAN, plan_record(plan), plan_answer(plan, headers, is_named=is_named))
    if not plan.budget.on_gpu and setup.n_gpu_layers:
        IgnoredGpuOptions(output).report("the plan is for main memory", "--gpu and --vram plan for a GPU")


def _compare(plans: Sequence[EnginePlan], output: Output, session: str) -> None:
    """Show the plans of several machines and which to choose."""
    from ggbench.decisions.machines import (
        PLAN_MACHINES,
        choose_machine,
        machine_name,
        machines_answer,
        machines_record,
    )

    names = [machine_name(plan.budget) for plan in plans]
    choices = [
        choose_machine(names, rows, session) for rows in zip(*(plan.rows for plan in plans), strict=True)
    ]
    output.either(PLAN_MACHINES, machines_record(plans, choices), machines_answer(plans, choices))


def _options(memory: BudgetOptions, workload: str | None) -> tuple[tuple[str, str], ...]:
    """Return the options for the command that plans a row again."""
    return memory.given if workload is None else (*memory.given, ("workload", workload))


def _plan_files(
    ref: ModelRef,
    machines: Sequence[BudgetOptions],
    setup: LlamaConfig,
    hub: HubOptions,
    output: Output,
    workload: str | None,
    session: Conversation | None,
) -> list[EnginePlan]:
    """Plan GGUF files for each machine by running llama.cpp's allocator dry."""
    from ggbench.engines.contract import launch_engine
    from ggbench.engines.llama.build import gpu_backends
    from ggbench.machine.gpus import visible_gpus

    with contextlib.ExitStack() as stack:
        engine: Engine | None = None
        if not (gpu_backends() or visible_gpus()):  # while modules are imported; else after reading free memory
            engine = stack.enter_context(contextlib.closing(launch_engine(setup)))
        budgets = [memory.budget(setup) for memory in machines]
        if engine is None:
            engine = stack.enter_context(contextlib.closing(launch_engine(setup)))
        from ggbench.decisions.plan import plan_model
        from ggbench.models.targets import resolve_headers, smaller_targets
        from ggbench.sizing.plan import PlanRequest

        draft = find_draft(machines[0].draft, setup, hub)
        with reading_headers(output) as on_progress:
            targets = resolve_headers(ref, hub=hub.access(), on_progress=on_progress)
        compares = len(machines) > 1
        is_named = bool(ref.quants) or len(targets) == 1

        def smaller(most_bytes: int) -> Sequence[Target]:
            may_add = is_named and not compares
            return smaller_targets(ref, targets, most_bytes, hub=hub.access()) if may_add else ()

        importlib.import_module("ggbench.show.plan")  # while the worker starts
        found = []
        places_experts = compares or session is not None
        for memory, known in zip(machines, budgets, strict=True):
            budget = with_draft(known, draft)
            allocator = stack.enter_context(dry_allocator(engine, setup, budget, draft))
            request = PlanRequest(budget, setup, _options(memory, workload), places_experts=places_experts)
            found.append(plan_model(targets, request, allocator, smaller, session))
    return found
