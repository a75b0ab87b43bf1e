"""The far end of a context, and the room that a memory limit leaves, with the real llama.cpp on a tiny twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Ending, Failed, OutOfMemory
from ggbench.engine.process import WorkerProcess
from ggbench.units import MIB

pytestmark = pytest.mark.llama


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess(timeout_s=60) as process:
        yield process


def context(n_ctx: int, **fields: str) -> protocol.MakeContext:
    asked = {"type_k": "f16", "type_v": "f16", "flash_attn": "on"} | fields
    return protocol.MakeContext(n_ctx=n_ctx, n_batch=256, n_ubatch=128, threads=1, **asked)  # type: ignore[arg-type]


def ask(worker: WorkerProcess, request: protocol.Request) -> tuple[list[protocol.Event], Ending]:
    *events, last = worker.call(request)
    assert isinstance(last, Ending)
    return [event for event in events if not isinstance(event, Ending)], last


@pytest.mark.parametrize(
    "asked",
    [
        context(256),
        context(2048),
        context(8192),
        context(2048, flash_attn="off"),
        context(2048, type_k="q8_0", type_v="q8_0"),
    ],
    ids=["256", "2048", "8192", "no-fa", "q8_0"],
)
def test_a_proof_uses_every_cell(worker: WorkerProcess, tiny_twin: Path, asked: protocol.MakeContext) -> None:
    """After the batch and the token at the far end llama.cpp itself finds no cell for one token more."""
    assert ask(worker, protocol.LoadModel(str(tiny_twin)))[1] == Completed()
    assert ask(worker, asked)[1] == Completed()
    events, ending = ask(worker, protocol.ProveContext())
    assert ending == Completed()
    proof = next(event for event in events if isinstance(event, protocol.ContextProven))
    assert proof.full
    assert proof.fill == "copied"
    assert proof.n_batch_tokens == 128
    assert proof.batch_ns > 0 < proof.token_ns
    assert ask(worker, protocol.Decode(25, 5))[1] == Completed(), "a prompt clears the context again"


def test_there_is_nothing_to_prove_without_a_context(worker: WorkerProcess, tiny_twin: Path) -> None:
    """It is refused, and the worker lives."""
    assert isinstance(ask(worker, protocol.ProveContext())[1], Failed)
    assert ask(worker, protocol.LoadModel(str(tiny_twin)))[1] == Completed()


def test_what_is_left_is_told_and_a_failure_takes_nothing_of_it(worker: WorkerProcess, tiny_twin: Path) -> None:
    """The same context leaves the same room, within malloc's rounding, before and after others failed or passed."""
    assert ask(worker, protocol.LoadModel(str(tiny_twin), memory_limit_bytes=200 * MIB))[1] == Completed()
    left = []
    for n_ctx in (4096, 32768, 4096):
        events, ending = ask(worker, context(n_ctx))
        assert ending == Completed()
        left.append(next(event.left_bytes for event in events if isinstance(event, protocol.ContextMade)))
        assert isinstance(ask(worker, context(1 << 20))[1], OutOfMemory)
    assert left[0] is not None
    assert left[1] is not None
    assert left[2] is not None
    assert left[0] > left[1] + 28672 * 2048
    assert abs(left[0] - left[2]) <= 2 * MIB


def test_nothing_is_limited_without_a_limit(worker: WorkerProcess, tiny_twin: Path) -> None:
    """Then nothing is known of what is left."""
    events, _ = ask(worker, protocol.LoadModel(str(tiny_twin)))
    assert next(event for event in events if isinstance(event, protocol.ModelLoaded)).left_bytes is None
