"""`ggbench cluster`: one model over several machines, by llama.cpp's RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.cluster_plan import command as plan
from ggbench.commands.documented import DocumentedGroup
from ggbench.commands.options import THREADS, option, output_options
from ggbench.commands.output import Output
from ggbench.engines.llama.config import DEFAULT_PORT, parse_server
from ggbench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ggbench.engines.llama.rpc_server import RpcServerProcess


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
    """Run one model over several machines, by llama.cpp's RPC: expose devices, probe servers, find the best split.

    Start `ggbench cluster serve` on each other machine, then give their addresses to --rpc of plan, maxctx, decode,
    prefill, bench, speed, forecast and tune. All of them need the same llama.cpp, built with RPC.
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
@option("--trust-network", "Listen at an address that other machines reach.", is_flag=True)
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
    """Expose the devices of this machine to one client after another, until Ctrl-C.

    llama.cpp's RPC has no authentication and no encryption: whoever reaches the port can use the server, read what is
    sent to it and crash it. So it listens on this machine alone, unless --trust-network says that everybody who can
    reach ADDRESS is trusted.
    """
    from ggbench.engines.llama.ggml_devices import BUILD_HINT, is_built_with_rpc
    from ggbench.engines.llama.rpc_server import RpcServerProcess, ServeRequest, ipv4_address
    from ggbench.machine.host import default_threads
    from ggbench.sizing.budget import main_memory_budget
    from ggbench.units import parse_size

    if not is_built_with_rpc():
        raise UsageError("this llama.cpp was built without RPC", BUILD_HINT)
    address = ipv4_address(host)
    if not address.startswith("127."):
        if not trust_network:
            raise UsageError(f"{_TRUST}, and other machines reach {host}", "add --trust-network if all of them may")
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
            _serve(server, output)
        except KeyboardInterrupt:
            output.notice("ended")


def _serve(server: RpcServerProcess, output: Output) -> None:
    from ggbench.units import format_bytes

    serving = server.wait_until_ready()
    if output.as_json:
        from ggbench.show.plan import CLUSTER_SERVE

        output.document(CLUSTER_SERVE, serving, pid=server.pid)
    else:
        exposed = ", ".join(format_bytes(device.free_bytes) for device in serving.devices)
        output.notice(f"exposing {exposed} at {serving.server}, RPC protocol {serving.protocol}; Ctrl-C ends it")
    for is_connected in server.clients():
        output.notice("a client is connected" if is_connected else "the client has left")


@command.command(
    short_help="Devices and free memory of RPC servers, and the link to them.",
    examples="""
    ggbench cluster probe 192.168.1.7:50052
    """,
)
@click.argument("servers", nargs=-1, required=True, metavar="HOST:PORT...")
@option(
    "--timeout timeout_s",
    "Wait at most this long for a connection and for each answer.",
    click.FloatRange(min=0, min_open=True),
    default=5.0,
    metavar="SECONDS",
)
@output_options
def probe(servers: tuple[str, ...], timeout_s: float, output: Output) -> None:
    """Ask RPC servers for their devices and free memory, and measure the way to each: round trip and bandwidth.

    The exit code is 4 where one of them cannot be used. A server that is busy with a client answers nobody else.
    """
    from ggbench.engines.llama.rpc_client import probe_server

    named = tuple(dict.fromkeys(parse_server(server) for server in servers))
    probes = [probe_server(server, timeout_s) for server in named]
    if output.as_json:
        from ggbench.show.plan import CLUSTER_PROBE

        output.document(CLUSTER_PROBE, servers=probes)
    else:
        from ggbench.show.plan import probes_table

        output.show(probes_table(probes, width=output.console().width))
    if not all(each.is_usable for each in probes):
        raise click.exceptions.Exit(ExitCode.NETWORK)


command.add_command(plan, "plan")
