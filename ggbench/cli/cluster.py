"""`ggbench cluster`: one model across several machines, with llama.cpp's RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedGroup
from ggbench.commands.load_options import load_options_of_plans
from ggbench.commands.options import THREADS, HubOptions, model_arguments, offline_option, option, output_options
from ggbench.commands.output import Output
from ggbench.engines.llama.config import DEFAULT_PORT, parse_server
from ggbench.errors import DoesNotFit, ExitCode, NetworkError, UsageError

if TYPE_CHECKING:
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.sizing.cluster import ClusterPlan
    from ggbench.sizing.cluster_plan import Cluster


_TRUST = (
    "llama.cpp's RPC has no authentication and no encryption: whoever reaches the port can use and crash the server"
)


@click.group(
    cls=DocumentedGroup,
    examples="""
    ggbench cluster serve --host 192.168.1.7 --trust-network --memory 20GiB
    ggbench cluster probe 192.168.1.7:50052
    ggbench cluster plan qwen2.5-32b q4_k_m --rpc 192.168.1.7:50052
    ggbench decode qwen2.5-32b q4_k_m --rpc 192.168.1.7:50052
    """,
)
def command() -> None:
    """Run one model across several machines with llama.cpp's RPC: serve devices, probe servers, plan the best split.

    Start `ggbench cluster serve` on each of the other machines, then pass their addresses to --rpc in plan, maxctx,
    decode, prefill, bench, speed, forecast and tune. All of them need the same llama.cpp, built with RPC.
    """


@command.command(
    short_help="Expose the devices of this machine to one client.",
    examples="""
    ggbench cluster serve
    ggbench cluster serve --host 192.168.1.7 --trust-network --memory 20GiB
    """,
)
@option("--host", "Listen at this address of this machine.", default="127.0.0.1", metavar="ADDRESS")
@option("-p --port", "Listen on this port.", click.IntRange(1, 65535), default=DEFAULT_PORT, metavar="PORT")
@option("--memory", "Expose at most this much of each device, e.g. 8GiB. Default: what is free.", metavar="SIZE")
@option(
    "--device devices", "Expose these devices, e.g. CUDA0,CPU. Default: all GPUs, else the CPU.", metavar="NAME,..."
)
@option("-t --threads", "CPU threads to compute with. Default: one per physical core.", THREADS, metavar="N")
@option("--trust-network", "Allow an ADDRESS that other machines can reach.", is_flag=True)
@output_options
def serve(
    host: str,
    port: int,
    memory: str | None,
    devices: str | None,
    threads: int | None,
    trust_network: bool,
    output: Output,
) -> None:
    """Expose the devices of this machine to one client at a time, until Ctrl-C.

    llama.cpp's RPC has no authentication and no encryption: whoever reaches the port can use the server, read what is
    sent to it and crash it. By default it accepts only connections from this machine; give --trust-network if you trust
    everyone who can reach ADDRESS.
    """
    from ggbench.engines.llama.ggml_devices import BUILD_HINT, is_built_with_rpc
    from ggbench.engines.llama.rpc_server import RpcServerProcess, ServeRequest, ipv4_address
    from ggbench.machine.host import default_threads
    from ggbench.sizing.search_budget import main_memory_budget
    from ggbench.units import format_bytes, parse_size

    if not is_built_with_rpc():
        raise UsageError("this llama.cpp was built without RPC", BUILD_HINT)
    address = ipv4_address(host)
    if not address.startswith("127."):
        if not trust_network:
            raise UsageError(
                f"{_TRUST}, but other machines can reach {host}",
                "add --trust-network if you trust everyone who can reach it",
            )
        output.notice(f"Warning: {_TRUST}")
    request = ServeRequest(
        host=address,
        port=port,
        threads=threads or default_threads(),
        devices=tuple(name.strip() for name in devices.split(",")) if devices else (),
        memory_bytes=None if memory is None else parse_size(memory),
        main_memory_bytes=main_memory_budget(limit_bytes=None, reserve_bytes=None).planned.usable_bytes,
    )
    with RpcServerProcess(request) as server:
        try:
            serving = server.wait_until_ready()
            if output.as_json:
                from ggbench.show.cluster import CLUSTER_SERVE

                output.document(CLUSTER_SERVE, serving, pid=server.pid)
            else:
                exposed = ", ".join(format_bytes(device.free_bytes) for device in serving.devices)
                output.notice(
                    f"exposing {exposed} at {serving.server}, RPC protocol {serving.protocol}; Ctrl-C stops it"
                )
            server.wait()
        except KeyboardInterrupt:
            output.notice("ended")


@command.command(
    short_help="Devices and free memory of RPC servers, and the link to them.",
    examples="""
    ggbench cluster probe 192.168.1.7:50052
    """,
)
@click.argument("servers", nargs=-1, required=True, metavar="HOST:PORT...")
@option(
    "--timeout timeout_s",
    "Timeout of the connection and of each answer.",
    click.FloatRange(min=0, min_open=True),
    default=5.0,
    metavar="SECONDS",
)
@output_options
def probe(servers: tuple[str, ...], timeout_s: float, output: Output) -> None:
    """Show the devices and free memory of RPC servers, and the round trip and bandwidth of the link to each.

    The exit code is 4 if a server cannot be used. A server that is serving another client does not answer.
    """
    from ggbench.engines.llama.rpc_client import probe_server

    named = tuple(dict.fromkeys(parse_server(server) for server in servers))
    probes = [probe_server(server, timeout_s) for server in named]
    if output.as_json:
        from ggbench.show.cluster import CLUSTER_PROBE

        output.document(CLUSTER_PROBE, servers=probes)
    else:
        from ggbench.show.cluster import probes_table

        output.show(probes_table(probes, width=output.console().width))
    if not all(each.is_usable for each in probes):
        raise click.exceptions.Exit(ExitCode.NETWORK)


@command.command(
    short_help="The fastest split of a model over several machines.",
    examples="""
    ggbench cluster plan qwen2.5-32b q4_k_m --rpc 192.168.1.7:50052
    """,
)
@model_arguments
@load_options_of_plans
@offline_option
@output_options
def plan(ref: ModelRef, setup: LlamaConfig, hub: HubOptions, output: Output) -> None:
    """Find the fastest split of each of QUANTS of MODEL over the servers of --rpc, this machine's GPUs and its CPU.

    Twins of some of the model's layers are timed on each device separately, over its real link; only headers are
    downloaded. The split fits every device's memory at --n-ctx and leaves out machines that only slow the model down;
    --memory-limit applies to each device, main memory included. The exit code is 3 if no split fits.
    """
    from ggbench.commands.downloads import reading_headers
    from ggbench.models.targets import resolve_headers
    from ggbench.sizing.cluster_plan import plan_cluster

    if not setup.rpc_servers:
        raise UsageError("no servers were given", "add --rpc HOST:PORT,...")
    if setup.tensor_split or setup.main_gpu is not None or setup.n_gpu_layers >= 0:
        raise UsageError("this command finds the split itself", "omit --tensor-split, --main-gpu and -ngl")
    setup, cluster = _cluster(setup, output)
    with reading_headers(output) as on_progress:
        variants = resolve_headers(ref, hub=hub.access(), on_progress=on_progress)
    plans = [_with_server_line(plan_cluster(each, setup, cluster), each, setup) for each in variants]
    if output.as_json:
        from ggbench.show.cluster import CLUSTER_PLAN

        output.document(CLUSTER_PLAN, model=ref.text, plans=plans)
    else:
        from ggbench.show.cluster import cluster_report

        output.show(*(cluster_report(plan, width=output.console().width) for plan in plans))
    if all(plan.best is None for plan in plans):
        if output.as_json:
            raise click.exceptions.Exit(ExitCode.DOES_NOT_FIT)
        raise DoesNotFit(
            "the model does not fit on these machines", "try a smaller quant, a shorter --n-ctx or another machine"
        )


def _cluster(setup: LlamaConfig, output: Output) -> tuple[LlamaConfig, Cluster]:
    """Probe the machines. Raises UsageError and NetworkError."""
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
    """Return the plan with the command line of llama-server, if the file is known."""
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
