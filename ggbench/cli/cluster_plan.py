"""`ggbench cluster plan`: the split of a model over machines, and which of them only slow it down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options
from ggbench.commands.options import HubOptions, model_arguments, offline_option, output_options
from ggbench.commands.output import Output
from ggbench.errors import DoesNotFit, ExitCode, NetworkError, UsageError

if TYPE_CHECKING:
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.sizing.cluster import ClusterPlan
    from ggbench.sizing.cluster_plan import Cluster


@click.command(
    cls=DocumentedCommand,
    short_help="The fastest split of a model over several machines.",
    examples="""
    ggbench cluster plan qwen2.5-32b q4_k_m --rpc 192.168.1.7:50052
    """,
)
@model_arguments
@load_options
@offline_option
@output_options
def command(ref: ModelRef, setup: LlamaConfig, hub: HubOptions, output: Output) -> None:
    """Find the fastest split of each of QUANTS of MODEL over the servers of --rpc, this machine's GPUs and its CPU.

    Twins of some of the model's layers are timed on each device alone, over its real link; nothing is downloaded but
    headers. The split keeps within every device's memory at --n-ctx, 8192 unless given, and leaves out machines that
    only slow the model down; --memory-limit is for each device, main memory included. The exit code is 3 where it fits
    in no way.
    """
    from ggbench.commands.downloads import reading_headers
    from ggbench.models.targets import resolve_headers
    from ggbench.sizing.cluster_plan import plan_cluster

    if not setup.rpc_servers:
        raise UsageError("there are no machines to plan for", "name their servers: --rpc HOST:PORT,...")
    if setup.tensor_split or setup.main_gpu is not None or setup.n_gpu_layers >= 0:
        raise UsageError("the split is the answer of this command", "omit --tensor-split, --main-gpu and -ngl")
    setup, cluster = _cluster(setup, output)
    with reading_headers(output) as on_progress:
        variants = resolve_headers(ref, hub=hub.access(), on_progress=on_progress)
    plans = [_with_server_line(plan_cluster(each, setup, cluster), each, setup) for each in variants]
    if output.as_json:
        from ggbench.show.plan import CLUSTER_PLAN

        output.document(CLUSTER_PLAN, model=ref.text, plans=plans)
    else:
        from ggbench.show.plan import cluster_report

        output.show(*(cluster_report(plan, width=output.console().width) for plan in plans))
    if all(plan.best is None for plan in plans):
        if output.as_json:
            raise click.exceptions.Exit(ExitCode.DOES_NOT_FIT)
        raise DoesNotFit(
            "no split over these machines holds it", "a smaller quant, a shorter --n-ctx or another machine"
        )


def _cluster(setup: LlamaConfig, output: Output) -> tuple[LlamaConfig, Cluster]:
    """The machines, probed. Raises UsageError and NetworkError."""
    from ggbench.commands.load_options import check_rpc
    from ggbench.engines.contract import launch_engine
    from ggbench.engines.llama.rpc_client import probe_server
    from ggbench.machine.host import default_threads
    from ggbench.sizing.budget import devices_budget
    from ggbench.sizing.cluster import device_memories
    from ggbench.sizing.cluster_plan import Cluster

    check_rpc(setup)
    links = {}
    for server in setup.rpc_servers:
        probe = probe_server(server)
        if not probe.is_usable or probe.link is None:
            raise NetworkError(f"RPC server {server} {probe.reason}", f"see: ggbench cluster probe {server}")
        links[server] = probe.link
    limit_bytes = setup.memory_limit_bytes
    devices = devices_budget(device_memories(setup), limit_bytes=limit_bytes, reserve_bytes=None).devices
    threads = setup.threads or default_threads()
    return replace(setup, threads=threads), Cluster(devices, links, lambda: launch_engine(setup), output.notice)


def _with_server_line(plan: ClusterPlan, variant: Target, setup: LlamaConfig) -> ClusterPlan:
    """The plan with the line for llama-server, where the file is known."""
    from ggbench.decisions.pick.run_commands import run_commands

    if plan.best is None or variant.to_run is None:
        return plan
    asked = replace(
        setup,
        n_ctx=plan.n_ctx,
        rpc_servers=plan.rpc_servers,
        tensor_split=plan.tensor_split,
        n_gpu_layers=plan.n_gpu_layers,
        threads=None,
    )
    found = run_commands(variant.to_run, asked, on_gpu=bool(plan.rpc_servers))
    return replace(plan, llama_server=found.llama_server)
