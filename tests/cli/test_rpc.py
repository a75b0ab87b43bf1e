"""--rpc: plans and runs over llama.cpp's own servers, and those that cannot be used."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import parse_servers
from ggbench.errors import UsageError
from ggbench.gguf_file.twin import cached_twin
from ggbench.units import MIB
from tests.cli.conftest import Ran, Run
from tests.conftest import TINY
from tests.fakes.rpc_server import FOREIGN_VERSION, listening, refusing, serving, with_rpc


def measured(ran: Ran) -> dict[str, Any]:
    row: dict[str, Any] = ran.json.get("rows", [ran.json])[0]
    return row


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


@pytest.mark.parametrize(
    ("servers", "what"),
    [
        ("a,A:50052", "the RPC server a:50052 is named twice"),
        (",".join(f"a{n}" for n in range(17)), "17 RPC servers, but llama.cpp takes at most 16"),
    ],
)
def test_bad_input_is_one_line(ggbench: Run, servers: str, what: str) -> None:
    ran = ggbench("decode", "m", "--rpc", servers)
    assert ran.code == 2
    assert f"Error: {what}" in ran.err


def test_a_build_without_rpc_says_how_to_build(ggbench: Run, monkeypatch: pytest.MonkeyPatch, tiny_twin: Path) -> None:
    monkeypatch.setattr("ggbench.engines.llama.rpc.has_backend", lambda name: False)
    ran = ggbench("decode", tiny_twin, "--rpc", "a:1")
    assert ran.code == 2
    assert "this llama.cpp was built without RPC" in ran.err


@with_rpc
@pytest.mark.llama
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "refuses connections: nothing listens there"),
        (FOREIGN_VERSION, "speaks version 9.1.0 of the protocol"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "closed the connection, or is no RPC server"),
        (b"", "cannot be used: it did not answer within 1 s"),
    ],
    ids=["refuses", "foreign version", "no RPC server", "silent"],
)
def test_a_server_that_cannot_be_used_is_one_line(
    ggbench: Run, monkeypatch: pytest.MonkeyPatch, tiny_twin: Path, answer: bytes | None, why: str
) -> None:
    if answer == b"":
        monkeypatch.setattr("ggbench.engines.llama.rpc._ANSWER_TIMEOUT_S", 1.0)
    with refusing() if answer is None else listening(answer) as server:
        ran = ggbench("decode", tiny_twin, "--rpc", server)
    assert ran.code == 4
    assert f"Error: RPC server {server} {why}" in ran.err


@with_rpc
@pytest.mark.llama
def test_a_model_runs_over_two_servers_and_its_buffers_are_planned(ggbench: Run, tiny_twin: Path) -> None:
    with serving() as one, serving() as other:
        words = (tiny_twin, "--rpc", f"{one.address},{other.address}", "-c", "512", "--json")
        [planned] = ggbench("plan", *words, "--reserve", "0").json["rows"]
        ran = ggbench("decode", *words, "-n", "8")
    assert ran.code == 0
    held = {each["device"]: each for each in measured(ran)["run"]["memory"]["buffers"] if each["place"] == "remote"}
    assert len(held) == 2
    assert [each["memory_bytes"] for each in planned["devices"]][:2] == [256 * MIB] * 2
    assert planned["devices"][-1]["device"] == "CPU"
    for device in planned["devices"][:-1]:
        real = held[device["device"]]
        assert real["kv_bytes"] == device["kv_bytes"]
        assert abs(real["weight_bytes"] - device["weight_bytes"]) <= 6000
        assert abs(real["compute_bytes"] - device["compute_bytes"]) <= 6000


@with_rpc
@pytest.mark.llama
def test_what_fits_no_server_alone_runs_over_both_as_far_as_the_fuller_one_allows(ggbench: Run, tmp_path: Path) -> None:
    twin = cached_twin("deep", replace(TINY, n_layer=24), "q8_0", tmp_path)
    with serving() as one, serving() as other:
        both = f"{one.address},{other.address}"
        [planned] = ggbench("plan", twin, "--rpc", both, "-c", "256", "--reserve", "0", "--json").json["rows"]
    held = [sum(each[f"{part}_bytes"] for part in ("weight", "kv", "compute")) for each in planned["devices"][:-1]]
    limit_bytes = max(held) + 4 * MIB
    with serving(limit_bytes) as one, serving(limit_bytes) as other:
        servers, words = (one.address, other.address), ("-c", "256", "-n", "8", "--json")
        alone = ggbench("decode", twin, "--rpc", servers[0], *words)
        found = ggbench("maxctx", twin, "--rpc", ",".join(servers), "--json")
    assert (alone.code, found.code) == (3, 0)
    assert f"device 0 of {servers[0]} could not allocate" in measured(alone)["note"]
    certificate = measured(found)
    assert certificate["verified_by_decode"]
    probes = certificate["run"]["result"]["probes"]
    failed = [probe for probe in probes if probe["n_ctx"] == certificate["first_fail_n_ctx"]]
    assert failed[-1]["device"] in {f"device 0 of {server}" for server in servers}
