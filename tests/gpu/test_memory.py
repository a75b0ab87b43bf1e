"""A real GPU's memory: the largest context with its certificate, and running out of it at every stage."""

from contextlib import closing

import pytest

from ggbench.engines.contract import Prefill, Request
from ggbench.engines.endings import Completed, Ending, Outcome
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.process import WorkerProcess
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.units import GIB, MIB
from tests.fakes.small_machine import context_of, search
from tests.gpu.conftest import TIMEOUT_S, Measure, Note, Twin

pytestmark = pytest.mark.gpu

SMALL = "qwen1.5-0.5b"
LARGE = "qwen1.5-7b"
ARTICLE_N_CTX = 33_780
"""The longest context of a 7B Q4_K_M on a 24 GiB RTX 4090 (article, table 6.3.9)."""


@pytest.mark.parametrize("limit_bytes", [24 * GIB, None], ids=["24 GiB", "all there is"])
def test_the_largest_context_has_a_certificate(
    limit_bytes: int | None, twin: Twin, rig: RunContext, note: Note
) -> None:
    finished = search(rig, twin(LARGE, "q4_k_m"), LlamaConfig(memory_limit_bytes=limit_bytes))
    run, found = finished.run, context_of(finished.run)
    note(
        f"maxctx {LARGE} q4_k_m under {'24 GiB' if limit_bytes else 'no limit'}",
        outcome=run.outcome.value,
        reason=run.reason,
        max_n_ctx=found.max_n_ctx,
        first_fail_n_ctx=found.first_fail_n_ctx,
        ceiling_n_ctx=found.plan.ceiling_n_ctx,
        verified_by_decode=found.verified_by_decode,
        planned_n_ctx=found.plan.planned_n_ctx,
        theory_n_ctx=found.plan.theory_n_ctx,
        article_n_ctx=ARTICLE_N_CTX if limit_bytes else None,
        allocations=found.n_allocations,
        seconds=found.seconds,
        buffers=list(run.memory.buffers),
        peak_bytes=run.memory.peak_bytes,
        other_bytes=run.memory.other_bytes,
        held_by_others=list(found.plan.gpu_processes),
        probes=[f"{probe.kind} {probe.n_ctx}: {probe.outcome.value}" for probe in found.probes],
    )

    assert finished.error is None
    assert run.outcome is Outcome.COMPLETED, run.reason
    assert found.verified_by_decode
    assert found.first_fail_n_ctx is not None or found.max_n_ctx == found.plan.ceiling_n_ctx


def assert_alive(measure: Measure, twin: Twin) -> Run:
    alive: Run = measure(twin(SMALL, "q4_k_m"), 16)
    assert alive.outcome is Outcome.COMPLETED, alive.reason
    return alive


@pytest.mark.parametrize(
    ("stage", "setup"),
    [("load", {"memory_limit_bytes": 1 * GIB}), ("context", {"memory_limit_bytes": 8 * GIB, "n_ctx": 131_072})],
)
def test_too_little_memory_is_an_outcome(
    stage: str, setup: dict[str, int], twin: Twin, measure: Measure, note: Note
) -> None:
    ended = measure(twin(LARGE, "q4_k_m"), 16, **setup)
    alive = assert_alive(measure, twin)
    note(
        f"out of memory at {stage}", outcome=ended.outcome.value, reason=ended.reason,
        next_probe=alive.outcome.value,
    )  # fmt: skip

    assert ended.outcome is Outcome.OUT_OF_MEMORY, ended.reason


def answer(worker: WorkerProcess, request: Request) -> Ending:
    return next(item for item in worker.call(request) if isinstance(item, Ending))


def test_memory_that_goes_during_a_decode_is_an_outcome(twin: Twin, measure: Measure, note: Note) -> None:
    path = str(twin(SMALL, "q4_k_m").path)
    setup = LlamaConfig(n_ctx=8192, n_ubatch=2048, flash_attn="off", threads=1)
    with closing(WorkerProcess(None, TIMEOUT_S)) as worker, closing(WorkerProcess(None, TIMEOUT_S)) as glutton:
        assert answer(worker, LoadModel(path, setup)) == Completed()
        assert answer(worker, MakeContext(setup)) == Completed()
        glutted = answer(glutton, LoadModel(path, LlamaConfig(memory_limit_bytes=MIB)))
        ended = answer(worker, Prefill(4096))
    alive = assert_alive(measure, twin)
    note(
        "out of memory in decode", other_process=glutted.outcome.value, outcome=ended.outcome.value,
        reason=ended.reason, next_probe=alive.outcome.value,
    )  # fmt: skip

    assert glutted.outcome is not Outcome.COMPLETED
    assert ended.outcome in (Outcome.OUT_OF_MEMORY, Outcome.CRASHED, Outcome.FAILED), ended.reason
