"""RPC servers under the engine of llama.cpp: asked before a load, and named where one was lost."""

import signal

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Decode
from ggbench.engines.endings import Completed, Crashed, Ending, Failed, OutOfMemory, ServerLost, TimedOut
from ggbench.engines.llama import rpc_client
from ggbench.engines.llama.config import LoadModel, MakeContext
from tests.engines.test_llama_engine import HEALTHY, SETUP, llama_bench
from tests.fakes.rpc_server import answers, listening, refusing, speaks

LOST = "/llama.cpp/ggml/src/ggml-rpc/ggml-rpc.cpp:549: Remote RPC server crashed or returned malformed response"


def decode_that_ends(ending: Ending) -> dict[type, tuple[protocol.Message | Ending, ...]]:
    return {**HEALTHY, Decode: (ending,)}


def aborted(*log_tail: str) -> Crashed:
    return Crashed(-signal.SIGABRT, log_tail)


def test_a_server_that_is_not_there_fails_the_load_without_a_worker() -> None:
    """llama.cpp would abort; the worker lives on for the next load, which asks again."""
    bench = llama_bench(HEALTHY)
    with listening(speaks()) as server, refusing() as gone:
        setup = replace(SETUP, rpc_servers=(server, gone))
        assert (
            bench.open(setup)
            == [Failed("load", f"RPC server {gone} refuses connections: nothing listens there")]
            == bench.open(setup)
        )
        assert bench.open(replace(SETUP, rpc_servers=(server,)))[-1] == Completed()
    assert bench.asked == [[LoadModel, MakeContext]]


def test_a_worker_that_uses_the_servers_is_not_asked_about_them_again() -> None:
    bench = llama_bench(HEALTHY)
    with listening(speaks()) as server:
        setup = replace(SETUP, rpc_servers=(server,))
        bench.open(setup)
    assert bench.open(replace(setup, mmap=False))[-1] == Completed()
    assert len(bench.workers) == 1


def lost(ending: Ending, *servers: str) -> Ending:
    """What the engine makes of a decode that ended so."""
    bench = llama_bench(decode_that_ends(ending))
    bench.open(replace(SETUP, rpc_servers=servers))
    bench.workers[0].closed = False
    *_, last = bench.engine.run(Decode(25, 1))
    assert isinstance(last, Ending)
    return last


def test_a_server_lost_in_mid_decode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(speaks()) as alive, listening(answers(b"")) as gone:
        monkeypatch.setattr("ggbench.engines.llama.engine.find_unusable", lambda _: {})
        ending = lost(aborted(LOST), alive, gone)
    assert isinstance(ending, ServerLost)
    assert ending.outcome == "failed"
    assert ending.reason == (
        f"lost in decode: RPC server {gone} closed the connection: no RPC server, one of another version, or it ended"
    )


def test_a_connection_that_broke_names_the_servers_that_answer_again() -> None:
    with listening(speaks()) as one, listening(speaks()) as other:
        assert lost(aborted(LOST), one).reason == (
            f"lost in decode: the connection to RPC server {one} broke, and it answers again"
        )
        assert lost(aborted(LOST), one, other).reason == (
            f"lost in decode: the connection to RPC server {one} or {other} broke, and it answers again"
        )


def test_silence_names_the_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(speaks()) as server:
        assert lost(TimedOut(600), server) == TimedOut(600)
        monkeypatch.setattr(rpc_client, "find_unusable", lambda servers: dict.fromkeys(servers, "it is gone"))
        ending = lost(TimedOut(600), server)
    assert ending.reason == "lost in decode: no output from the worker for 600 s; it is gone"


def test_a_server_out_of_memory_is_named_with_its_device() -> None:
    line = "alloc_tensor_range: failed to allocate RPC1[10.0.0.7:50052] buffer of size 1073741824"
    with listening(speaks()) as server:
        ending = lost(OutOfMemory("context", line), server)
    assert ending.reason == "out of memory in context: device 1 of 10.0.0.7:50052 could not allocate 1.00 GiB"
    assert isinstance(ending, OutOfMemory)
    assert ending.device == "device 1 of 10.0.0.7:50052"


def test_another_version_of_the_protocol_is_named_and_a_crash_that_is_no_servers_stays_one() -> None:
    """llama.cpp logs the server's version before it aborts."""
    with listening(speaks()) as server:
        ending = lost(
            aborted("RPC server version mismatch: 6.1.0", f"x.cpp:9: RPC handshake failed for {server}"), server
        )
        assert "6.1.0" in ending.reason and server in ending.reason
        crash = aborted("GGML_ASSERT(a) failed")
        assert lost(crash, server) == crash
    assert lost(aborted(LOST)) == aborted(LOST)
