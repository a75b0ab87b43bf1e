"""The far end of a context, and the room that a memory limit leaves, with the real llama.cpp on a tiny twin."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import Decode, DecodeAtDepth, ProveContext, Request
from ggbench.engines.endings import Completed, Ending, OutOfMemory
from ggbench.engines.events import ContextProven, Opened, Proving, Steps
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.process import WorkerProcess
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.twin import cached_twin
from ggbench.units import MIB

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_batch=256, n_ubatch=128, flash_attn="on", threads=1)


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with closing(WorkerProcess(timeout_s=60)) as process:
        yield process


def ask(worker: WorkerProcess, request: Request) -> tuple[list[object], Ending]:
    *messages, last = worker.call(request)
    assert isinstance(last, Ending)
    return list(messages), last


def load(worker: WorkerProcess, path: Path, setup: LlamaConfig = SETUP) -> list[object]:
    messages, ending = ask(worker, LoadModel(str(path), setup))
    assert ending == Completed()
    return messages


def context(worker: WorkerProcess, n_ctx: int, setup: LlamaConfig = SETUP) -> tuple[list[object], Ending]:
    return ask(worker, MakeContext(replace(setup, n_ctx=n_ctx)))


@pytest.mark.parametrize(
    ("n_ctx", "setup"),
    [
        (256, SETUP), (2048, SETUP), (8192, SETUP), (2048, replace(SETUP, flash_attn="off")),
        (2048, replace(SETUP, type_k="q8_0", type_v="q8_0")),
    ],
    ids=["256", "2048", "8192", "no-fa", "q8_0"],
)  # fmt: skip
def test_a_proof_uses_every_cell(worker: WorkerProcess, tiny_twin: Path, n_ctx: int, setup: LlamaConfig) -> None:
    load(worker, tiny_twin)
    assert context(worker, n_ctx, setup)[1] == Completed()
    events, ending = ask(worker, ProveContext())
    assert ending == Completed()
    proof = next(event for event in events if isinstance(event, ContextProven))
    assert proof.full
    assert ask(worker, Decode(25, 5))[1] == Completed(), "a prompt clears the context again"


@pytest.mark.parametrize("is_unified", [False, True])
@pytest.mark.parametrize("n_slots", [3, 4])
def test_a_proof_uses_every_cell_of_every_slot(
    worker: WorkerProcess, tiny_twin: Path, n_slots: int, is_unified: bool
) -> None:
    load(worker, tiny_twin)
    assert context(worker, 256 * n_slots, replace(SETUP, n_seq_max=n_slots, kv_unified=is_unified))[1] == Completed()
    events, ending = ask(worker, ProveContext())
    assert ending == Completed()
    assert next(event for event in events if isinstance(event, ContextProven)).full


def test_what_is_left_is_reported_and_a_failure_takes_nothing_of_it(worker: WorkerProcess, tiny_twin: Path) -> None:
    load(worker, tiny_twin, replace(SETUP, memory_limit_bytes=200 * MIB))
    left = []
    for n_ctx in (4096, 32768, 4096):
        events, ending = context(worker, n_ctx)
        assert ending == Completed()
        left.append(next(event.left_bytes for event in events if isinstance(event, Opened)))
        assert isinstance(context(worker, 1 << 20)[1], OutOfMemory)
    assert left[0] is not None
    assert left[1] is not None
    assert left[2] is not None
    assert left[0] > left[1] + 28672 * 2048
    assert abs(left[0] - left[2]) <= 4 * MIB  # what malloc may keep of freed blocks, see memory_limits


@pytest.mark.parametrize("n_threads", [1, 8])
def test_threads_take_nothing_of_a_limit(worker: WorkerProcess, tiny_twin: Path, n_threads: int) -> None:
    setup = replace(SETUP, memory_limit_bytes=60 * MIB, threads=n_threads)
    events, ending = ask(worker, LoadModel(str(tiny_twin), setup, n_threads=n_threads))
    assert ending == Completed()
    events, ending = context(worker, 2048, setup)
    opened = next(event for event in events if isinstance(event, Opened))
    events, ending = ask(worker, ProveContext())
    assert ending == Completed()
    proven = next(event for event in events if isinstance(event, ContextProven))
    assert opened.left_bytes is not None
    assert proven.left_bytes is not None
    assert opened.left_bytes - proven.left_bytes < 8 * MIB


def test_what_was_missing_is_reported(worker: WorkerProcess, tiny_twin: Path) -> None:
    """The size of the first failed allocation, less what was left then, grows with n_ctx."""
    load(worker, tiny_twin, replace(SETUP, memory_limit_bytes=100 * MIB))
    missing = []
    for n_ctx in (1 << 17, 1 << 18):
        _, ending = context(worker, n_ctx)
        assert isinstance(ending, OutOfMemory)
        missing.append(ending.missing_bytes or 0)
    assert missing[0] > 100 * MIB
    assert missing[1] - missing[0] == pytest.approx((1 << 17) * 2048, rel=0.05)  # the rest are tables of cells


def test_a_proof_reports_how_far_it_has_come(worker: WorkerProcess, tiny_twin: Path) -> None:
    load(worker, tiny_twin)
    assert context(worker, 8192)[1] == Completed()
    events, _ = ask(worker, ProveContext())
    proving = [event for event in events if isinstance(event, Proving)]
    assert proving[-1].share == 1


SIZE: dict[str, Any] = {
    "n_layer": 4, "n_embd": 256, "n_head": 4, "n_head_kv": 1, "n_ff": 256, "n_vocab": 512, "n_ctx_train": 4096,
    "n_expert": 4, "n_expert_used": 1, "n_ff_expert": 256, "n_ff_shared_expert": 256, "indexer_n_head": 4,
    "indexer_head_dim": 64, "indexer_top_k": 64, "head_dim": 64,
}  # fmt: skip
SPARSE: dict[str, dict[str, Any]] = {
    "deepseek4": {
        "n_rot": 32, "q_lora_rank": 64, "sliding_window": 128, "n_group_out": 2, "o_lora_rank": 64, "n_layer_hash": 1,
        "layer_pattern": "WCH",
    },
    "glm5-next": {
        "kv_lora_rank": 64, "v_head_dim": 64, "q_lora_rank": 64, "ssm_conv": 4, "ssm_state": 64, "layer_pattern": "M*",
    },
    "minimax-m3": {"n_head_kv": 4, "n_rot": 32, "n_layer_dense": 1, "indexer_top_k": 2},
    "qwen4exp": {
        "n_head_kv": 2, "n_rot": 64, "ssm_conv": 4, "ssm_state": 64, "ssm_inner": 256, "ssm_n_head": 4,
        "ssm_n_group": 2, "n_embd_per_layer": 16, "n_row_ngram": 1024, "layer_pattern": "NM*M",
    },
}  # fmt: skip


@pytest.mark.parametrize("architecture", SPARSE)
def test_sparse_attention_decodes_far_into_a_context(worker: WorkerProcess, architecture: str, tmp_path: Path) -> None:
    hyper = Hyperparameters(architecture, **(SIZE | SPARSE[architecture]))
    load(worker, cached_twin("tiny", hyper, "q8_0", tmp_path))
    assert context(worker, 512)[1] == Completed()
    events, ending = ask(worker, DecodeAtDepth(300, 2))
    assert ending == Completed() and any(isinstance(event, Steps) for event in events)
    assert ask(worker, ProveContext())[1] == Completed()
