"""RPC servers under the engine of llama.cpp: the one that was lost is named."""

import signal

from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Decode
from ggbench.engines.endings import Crashed, Ending, OutOfMemory, ServerLost, TimedOut
from tests.engines.test_llama_engine import HEALTHY, SETUP, llama_bench
from tests.fakes.rpc_server import listening, refusing

LOST = "/llama.cpp/ggml/src/ggml-rpc/ggml-rpc.cpp:549: Remote RPC server crashed or returned malformed response"


def decode_that_ends(ending: Ending) -> dict[type, tuple[protocol.Message | Ending, ...]]:
    return {**HEALTHY, Decode: (ending,)}


def aborted(*log_tail: str) -> Crashed:
    return Crashed("it died", -signal.SIGABRT, log_tail)


def lost(ending: Ending, *servers: str) -> Ending:
    """What the engine makes of a decode that ended so."""
    bench = llama_bench(decode_that_ends(ending))
    bench.open(replace(SETUP, rpc_servers=servers))
    bench.workers[0].closed = False
    *_, last = bench.engine.run(Decode(25, 1))
    assert isinstance(last, Ending)
    return last


def test_a_server_lost_in_mid_decode_is_named() -> None:
    with listening() as alive, refusing() as gone:
        ending = lost(aborted(LOST), alive, gone)
    assert isinstance(ending, ServerLost)
    assert ending.outcome == "failed"
    assert ending.reason == f"lost in decode: RPC server {gone} refuses connections: nothing listens there"


def test_a_connection_that_broke_names_the_servers_that_answer_again() -> None:
    with listening() as one, listening() as other:
        assert f"RPC server {one} closed the connection" in lost(aborted(LOST), one).reason
        assert f"RPC server {one} or {other} closed the connection" in lost(aborted(LOST), one, other).reason


def test_silence_names_the_server_that_is_gone() -> None:
    with listening() as server:
        assert lost(TimedOut(600), server) == TimedOut(600)
    with refusing() as gone:
        ending = lost(TimedOut(600), gone)
    assert ending.reason.startswith("lost in decode: no output from the worker for 600 s; ") and gone in ending.reason


def test_a_server_out_of_memory_is_named_with_its_device() -> None:
    line = "alloc_tensor_range: failed to allocate RPC1[10.0.0.7:50052] buffer of size 1073741824"
    ending = lost(OutOfMemory("context", line), "10.0.0.7:50052")
    assert ending.reason == "out of memory in context: device 1 of 10.0.0.7:50052 could not allocate 1.00 GiB"
    assert isinstance(ending, OutOfMemory)
    assert ending.device == "device 1 of 10.0.0.7:50052"


def test_another_version_of_the_protocol_is_named_and_a_crash_that_is_no_servers_stays_one() -> None:
    """llama.cpp logs the server's version before it aborts."""
    with listening() as server:
        ending = lost(
            aborted("RPC server version mismatch: 6.1.0", f"x.cpp:9: RPC handshake failed for {server}"), server
        )
        assert "6.1.0" in ending.reason and server in ending.reason
        crash = aborted("GGML_ASSERT(a) failed")
        assert lost(crash, server) == crash
    assert lost(aborted(LOST)) == aborted(LOST)
