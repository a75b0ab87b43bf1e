"""`ggbench cluster`, and --rpc where it cannot work; with the real llama.cpp where it was built with RPC."""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.ggml_devices import is_built_with_rpc
from ggbench.engines.llama.rpc_client import RpcConnection
from ggbench.engines.llama.rpc_server import RpcServerProcess, ServeRequest
from ggbench.gguf_file.twin import cached_twin
from ggbench.units import MIB
from tests.cli.conftest import Ran, Run
from tests.conftest import TINY
from tests.fakes.rpc_server import free_port, is_silent, listening, refusing, speaks

with_rpc = pytest.mark.skipif(
    not is_built_with_rpc(), reason='llama.cpp was built without RPC: CMAKE_ARGS="-DGGML_RPC=on" ./scripts/setup'
)


@pytest.fixture(autouse=True)
def timed_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here looks at how fast a link or a device is."""
    monkeypatch.setattr("ggbench.engines.llama.rpc_client._LARGEST_BYTES", 64 << 10)
    monkeypatch.setattr("ggbench.sizing.cluster_plan._ROUNDS", 1)
    monkeypatch.setattr("ggbench.sizing.cluster_plan.N_DEPTH", 64)


@contextlib.contextmanager
def serving(port: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-m", "ggbench", "cluster", "serve", "--port", str(port), "-t", "1", "--json"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield server
        finally:
            server.kill()


def ready(server: subprocess.Popen[str]) -> dict[str, object]:
    assert server.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "}\n":
        lines.append(server.stdout.readline())
        assert lines[-1], server.communicate()[1]
    document: dict[str, object] = json.loads("".join(lines))
    return document


def measured(ran: Ran) -> dict[str, Any]:
    row: dict[str, Any] = ran.json.get("rows", [ran.json])[0]
    return row


def ends(pid_fd: int) -> bool:
    """Wait for a process and return whether it has ended."""
    return bool(select.select([pid_fd], [], [], 30)[0])


def test_probes_are_a_table_or_a_document(ggbench: Run) -> None:
    with listening(speaks()) as server, refusing() as gone:
        shown, found = ggbench("cluster", "probe", server, gone), ggbench("cluster", "probe", server, "--json")
    assert (shown.code, found.code) == (4, 0)
    assert f"{gone}: refuses connections: nothing listens there\n" in shown.out
    assert "3.00 GiB" in shown.out
    assert [probe["devices"][0]["free_bytes"] for probe in found.json["servers"]] == [3 << 30]


def test_a_silent_server_ends_within_the_timeout(ggbench: Run) -> None:
    with listening(is_silent) as server:
        ran = ggbench("cluster", "probe", server, "--timeout", "0.2")
    assert ran.code == 4
    assert "did not answer within 0.2 s" in ran.out


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("cluster", "probe", "a:b"), "'a:b' is not the address of an RPC server"),
        (("decode", "m", "--rpc", "a,A:50052"), "the RPC server a:50052 is named twice"),
        (
            ("decode", "m", "--rpc", ",".join(f"a{n}" for n in range(17))),
            "17 RPC servers, but llama.cpp takes at most 16",
        ),
        (("cluster", "plan", "m"), "no servers were given"),
        (("cluster", "plan", "m", "--rpc", "a", "-ts", "1,2"), "this command finds the split itself"),
    ],
)
def test_bad_input_is_one_line(ggbench: Run, args: tuple[str, ...], what: str) -> None:
    ran = ggbench(*args)
    assert ran.code == 2
    assert f"Error: {what}" in ran.err


def test_a_build_without_rpc_says_how_to_build(ggbench: Run, monkeypatch: pytest.MonkeyPatch, tiny_twin: Path) -> None:
    monkeypatch.setattr("ggbench.engines.llama.ggml_devices.is_built_with_rpc", lambda: False)
    for args in (("cluster", "serve"), ("decode", tiny_twin, "--rpc", "a:1")):
        ran = ggbench(*args)
        assert ran.code == 2
        assert "this llama.cpp was built without RPC" in ran.err
        assert 'CMAKE_ARGS="-DGGML_RPC=on" ./scripts/setup' in ran.err


@with_rpc
def test_other_machines_are_let_in_only_with_trust(ggbench: Run) -> None:
    ran = ggbench("cluster", "serve", "--host", "0.0.0.0")
    assert ran.code == 2
    assert "llama.cpp's RPC has no authentication and no encryption" in ran.err
    assert "--trust-network" in ran.err


@with_rpc
def test_an_unknown_device_names_those_that_there_are(ggbench: Run) -> None:
    ran = ggbench("cluster", "serve", "--port", free_port(), "--device", "TPU9")
    assert ran.code == 2
    assert "this machine has no device 'TPU9'; known: CPU" in ran.err


@with_rpc
@pytest.mark.llama
def test_a_server_exposes_no_more_than_it_says_and_takes_back_what_a_client_leaves() -> None:
    port = free_port()
    with serving(port, "--memory", "64MiB") as server:
        ready(server)
        for _ in range(2):
            with RpcConnection(f"127.0.0.1:{port}") as connection:
                assert [each.free_bytes for each in connection.devices()] == [64 << 20]
                with connection.buffer(48 << 20) as buffer, connection.buffer(17 << 20) as refused:
                    assert buffer is not None
                    assert refused is None
                    assert [each.free_bytes for each in connection.devices()] == [16 << 20]


@with_rpc
@pytest.mark.llama
def test_a_server_survives_more_bad_clients_than_a_pipe_holds_messages() -> None:
    """llama.cpp writes an error for each, and would block once the pipe is full."""
    request = ServeRequest(host="127.0.0.1", port=free_port(), threads=1, memory_bytes=64 << 20)
    with RpcServerProcess(request) as server:
        serving = server.wait_until_ready()
        for _ in range(2000):
            with socket.create_connection((request.host, request.port), timeout=10) as client:
                client.sendall(struct.pack("<BQ", 5, 0))
                with contextlib.suppress(ConnectionResetError):
                    client.recv(1)
        assert server.wait_until_ready() == serving


@with_rpc
@pytest.mark.llama
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_leaves_no_orphan(number: signal.Signals) -> None:
    with serving(free_port()) as server:
        pid = ready(server)["pid"]
        assert isinstance(pid, int)
        pid_fd = os.pidfd_open(pid)
        server.send_signal(number)
        assert ends(pid_fd)
        os.close(pid_fd)


@with_rpc
@pytest.mark.llama
def test_a_model_runs_over_two_servers_and_its_buffers_are_planned(ggbench: Run, tiny_twin: Path) -> None:
    ports = free_port(), free_port()
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    with serving(ports[0], "--memory", "256MiB") as one, serving(ports[1], "--memory", "256MiB") as other:
        ready(one)
        ready(other)
        planned = ggbench("plan", tiny_twin, "--rpc", servers, "-c", "512", "--json").json["rows"][0]
        ran = ggbench("decode", tiny_twin, "--rpc", servers, "-c", "512", "-n", "8", "--json")
    assert ran.code == 0
    held = {each["device"]: each for each in measured(ran)["buffers"] if each["place"] == "remote"}
    assert len(held) == 2
    for device in planned["devices"]:
        real = held[device["device"]]
        assert real["kv_bytes"] == device["kv_bytes"]
        assert abs(real["weight_bytes"] - device["weight_bytes"]) <= 6000
        assert abs(real["compute_bytes"] - device["compute_bytes"]) <= 6000


@with_rpc
@pytest.mark.llama
def test_what_fits_no_server_alone_runs_over_both_as_far_as_the_fuller_one_allows(ggbench: Run, tmp_path: Path) -> None:
    twin = cached_twin("deep", replace(TINY, n_layer=24), "q8_0", tmp_path)
    ports = free_port(), free_port()
    both = ",".join(f"127.0.0.1:{port}" for port in ports)
    with serving(ports[0], "--memory", "256MiB") as one, serving(ports[1], "--memory", "256MiB") as other:
        ready(one)
        ready(other)
        (planned,) = ggbench("plan", twin, "--rpc", both, "-c", "256", "--json").json["rows"]
    held = [sum(each[f"{part}_bytes"] for part in ("weight", "kv", "compute")) for each in planned["devices"]]
    limit = f"{max(held) / MIB + 4:.3f}MiB"
    with serving(ports[0], "--memory", limit) as one, serving(ports[1], "--memory", limit) as other:
        ready(one)
        ready(other)
        alone = [
            ggbench("decode", twin, "--rpc", server, "-c", "256", "-n", "8", "--json").code
            for server in both.split(",")
        ]
        together = ggbench("decode", twin, "--rpc", both, "-c", "256", "-n", "8", "--json").code
        found = ggbench("maxctx", twin, "--rpc", both, "--json")
    assert (alone, together, found.code) == ([3, 3], 0, 0)
    certificate = measured(found)
    assert certificate["verified_by_decode"]
    failed = [probe for probe in certificate["probes"] if probe["n_ctx"] == certificate["first_fail_n_ctx"]]
    assert failed[-1]["device"] in {f"device 0 of {server}" for server in both.split(",")}


@with_rpc
@pytest.mark.llama
def test_a_device_that_runs_out_is_named(ggbench: Run, tiny_twin: Path) -> None:
    port = free_port()
    with serving(port, "--memory", "1MiB") as server:
        ready(server)
        ran = ggbench("decode", tiny_twin, "--rpc", f"127.0.0.1:{port}", "-n", "8", "--json")
    assert ran.code == 3
    assert f"device 0 of 127.0.0.1:{port} could not allocate" in measured(ran)["reason"]


@with_rpc
@pytest.mark.llama
def test_a_plan_keeps_within_the_limit_of_each_machine(ggbench: Run, tmp_path: Path) -> None:
    twin = cached_twin("deep", replace(TINY, n_layer=96), "q8_0", tmp_path)
    port = free_port()
    words = ("cluster", "plan", twin, "--rpc", f"127.0.0.1:{port}", "-c", "256", "-t", "1")
    with serving(port, "--memory", "1GiB") as server:
        ready(server)
        (split,) = ggbench(*words, "--memory-limit", "88MiB", "--json").json["plans"]
        none = ggbench(*words, "--memory-limit", "20MiB")
        ran = ggbench(*split["command"].split()[1:], "-n", "8", "--json")
    assert all(split["best"]["n_layers"])
    assert [without for _, without in split["without"]] == [None, None]
    assert ran.code == 0
    assert none.code == 3
    assert "it does not fit" in none.out
    assert "Error: the model does not fit on these machines" in none.err
    assert "layers" not in none.err
