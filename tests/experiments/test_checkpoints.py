"""Decode, speed and the search for the largest context of a checkpoint, over a worker that replays messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import ProveContext, Request
from ggbench.engines.endings import Ending, Outcome, OutOfMemory
from ggbench.errors import DoesNotFit
from ggbench.experiments.decode.measure import EXPERIMENT as DECODE
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.maxctx.measure import EXPERIMENT as MAXCTX
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings
from ggbench.extras.transformers.config import LoadCheckpoint, MakeCache, TransformersConfig
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.units import MIB
from tests.fakes.checkpoints import QWEN2_TINY, write_checkpoint
from tests.fakes.engine import FakeWorker, fake_rig, obey

LIMIT = TransformersConfig(memory_limit_bytes=64 * MIB, device="cpu")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    folder = write_checkpoint(tmp_path / "tiny", QWEN2_TINY)
    return resolve_one(parse_model(f"transformers:{folder}", "bf16"))


def _finished(rig: RunContext, job: Job) -> Finished:
    (finished,) = [record for record in run_job(rig, job) if isinstance(record, Finished)]
    return finished


def _run(rig: RunContext, job: Job) -> Run:
    return _finished(rig, job).run


def test_a_decode_is_stored_and_read_back_with_its_setup(target: Target, store: Store) -> None:
    rig, workers = fake_rig(store)
    setup = target.setup(TransformersConfig(attention="eager"))
    run = _run(rig, Job(DECODE, target, setup, DecodeSettings(2400)))
    assert run.outcome is Outcome.COMPLETED
    assert isinstance(run.result, DecodeResult) and run.result.fit is not None and run.result.limit is not None
    assert run.result.fit.b_ms == pytest.approx(10, rel=0.05)
    assert run.subject.kv_bytes_per_token == 2 * 2 * 2 * 64 * 2  # layers, K and V, heads, head size, bytes
    assert run.memory.n_ctx == 2425 and run.memory.kv_bytes == 2425 * 1024
    assert run.head.command.endswith(" bf16 -n 2400 --attention eager --threads 2")
    assert isinstance(workers[0].requests[0], LoadCheckpoint)
    assert run.run_id is not None
    assert read_run(store, store.load_run(run.run_id)).head.setup == setup.with_threads(2)


def _holding(n_made: int, n_proven: int) -> tuple[RunContext, list[FakeWorker]]:
    """A worker that makes caches up to one length, and decodes at the end of those up to another."""
    made = 0

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        nonlocal made
        if isinstance(request, MakeCache):
            made = request.setup.n_ctx or 0
            if made > n_made:
                yield OutOfMemory("context", "no room for the cache")
                return
        if isinstance(request, ProveContext) and made > n_proven:
            yield OutOfMemory("decode", "no room beside the cache")
            return
        yield from obey(request)

    return fake_rig(None, dict.fromkeys(range(20), answer))


def test_the_largest_cache_is_closed_in_on_and_proven(target: Target) -> None:
    rig, _ = _holding(n_made=30_000, n_proven=20_000)
    run = _run(rig, Job(MAXCTX, target, target.setup(LIMIT), MaxctxSettings(beyond_train=True)))
    assert run.outcome is Outcome.COMPLETED
    assert isinstance(run.result, MaxctxResult)
    assert (run.result.max_n_ctx, run.result.first_fail_n_ctx) == (19_968, 20_224)
    assert run.result.verified_by_decode
    assert run.result.plan.theory_n_ctx is not None
    alloc = [probe for probe in run.result.probes if probe.kind == "alloc"]
    assert max(probe.n_ctx for probe in alloc if probe.passed) == 29_952
    assert len(run.result.probes) < 30
    assert run.memory.n_ctx == 19_968


def test_a_search_ends_at_the_n_ctx_that_is_given(target: Target) -> None:
    rig, _ = _holding(n_made=30_000, n_proven=30_000)
    setup = target.setup(TransformersConfig(n_ctx=4096, memory_limit_bytes=64 * MIB, device="cpu"))
    run = _run(rig, Job(MAXCTX, target, setup, MaxctxSettings(beyond_train=True)))
    assert isinstance(run.result, MaxctxResult)
    assert (run.result.max_n_ctx, run.result.first_fail_n_ctx) == (4096, None)


def test_weights_that_exceed_the_limit_are_an_error_before_anything_is_loaded(target: Target) -> None:
    rig, workers = fake_rig()
    setup = target.setup(TransformersConfig(memory_limit_bytes=MIB, device="cpu"))
    finished = _finished(rig, Job(MAXCTX, target, setup, MaxctxSettings(beyond_train=True)))
    assert isinstance(finished.error, DoesNotFit)
    assert "does not fit into 1.00 MiB of main memory: it needs" in finished.error.message
    assert not workers
