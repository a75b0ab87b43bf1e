"""ggbench's own client of the RPC protocol: what it finds out about a server, and how one that is none ends."""

import itertools

import pytest

from ggbench.engines.llama.config import parse_servers
from ggbench.engines.llama.rpc_client import RemoteDevice, RpcConnection, ServerUnusable, find_unusable, probe_server
from ggbench.errors import UsageError
from tests.fakes.rpc_server import answers, is_silent, listening, refusing, speaks

TIMEOUT_S = 0.2


def test_a_server_is_probed_for_its_devices_and_its_link() -> None:
    with listening(speaks()) as server:
        probe = probe_server(server)
    assert probe.is_usable
    assert probe.protocol == (7, 0, 0)
    assert probe.devices == (RemoteDevice(0, 3 << 30, 4 << 30), RemoteDevice(1, 1 << 30, 2 << 30))
    assert probe.link is not None
    up, down = probe.link.up_bytes_per_s, probe.link.down_bytes_per_s
    assert up is not None
    assert down is not None
    assert 0 < probe.link.round_trip_ns.p50 <= probe.link.round_trip_ns.p95
    assert up.p50 >= up.p95 > 0
    assert down.p50 >= down.p95 > 0


def test_a_server_without_free_memory_has_a_round_trip_alone() -> None:
    """Its bandwidth stays unknown, since there is nothing to write into."""
    with listening(speaks(most_bytes=0)) as server:
        probe = probe_server(server)
    assert probe.is_usable
    assert probe.link is not None
    assert probe.link.up_bytes_per_s is None


def test_a_server_of_another_version_says_which() -> None:
    """Its devices are not asked for, since the commands may have changed."""
    with listening(speaks((9, 1, 0))) as server:
        probe = probe_server(server)
    assert probe.protocol == (9, 1, 0)
    assert not probe.devices
    assert probe.reason == (
        "speaks version 9.1.0 of the protocol, this ggbench version 7; run the same llama.cpp on both machines"
    )


def test_nobody_at_the_port_is_one_line() -> None:
    with (
        refusing() as server,
        pytest.raises(ServerUnusable, match=f"^RPC server {server} refuses connections: nothing"),
    ):
        RpcConnection(server)


def test_a_server_that_drips_its_answer_ends_within_four_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(speaks()) as server, RpcConnection(server, TIMEOUT_S) as connection:
        monkeypatch.setattr(
            "ggbench.engines.llama.rpc_client.time.monotonic", itertools.count(0, 5 * TIMEOUT_S).__next__
        )
        with pytest.raises(ServerUnusable, match="did not answer"):
            connection.devices()


@pytest.mark.parametrize("behave", [is_silent, None])
def test_a_server_that_accepts_and_is_silent_ends_within_the_timeout(behave: object) -> None:
    with listening(behave) as server, pytest.raises(ServerUnusable) as caught:  # type: ignore[arg-type]
        RpcConnection(server, TIMEOUT_S)
    assert str(caught.value) == (
        f"RPC server {server} accepts connections but did not answer within 0.2 s: "
        "busy with another client, or no RPC server"
    )


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "answers, but not in llama.cpp's RPC protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers, but not in llama.cpp's RPC protocol"),
        (bytes(8), "answers, but not in llama.cpp's RPC protocol"),
        (b"\x1c", "closed the connection: no RPC server, one of another version, or it ended"),
        (b"", "closed the connection: no RPC server, one of another version, or it ended"),
    ],
)
def test_a_port_that_speaks_something_else_is_one_line(data: bytes, what: str) -> None:
    with listening(answers(data)) as server, pytest.raises(ServerUnusable) as caught:
        RpcConnection(server, TIMEOUT_S)
    assert str(caught.value) == f"RPC server {server} {what}"


def test_all_servers_are_asked_at_once_and_only_those_at_fault_are_named() -> None:
    with listening(speaks()) as good, listening(is_silent) as silent, listening(answers(b"")) as closing:
        reasons = find_unusable((good, silent, closing), TIMEOUT_S)
    assert list(reasons) == [silent, closing]
    assert find_unusable(()) == {}


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("192.168.1.7:50052", ("192.168.1.7:50052",)),
        ("Box-2.lan", ("box-2.lan:50052",)),
        (" a:1, b:65535 ", ("a:1", "b:65535")),
    ],
)
def test_addresses_keep_their_order_and_get_llama_cpps_port(text: str, servers: tuple[str, ...]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize(
    "text", ["", "a:0", "a:65536", "a:b", "[::1]:50052", "::1", "http://a:1", "a b:1", "a:1,", "-a:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an RPC server"):
        parse_servers(text)
