"""The search for the largest context: on a machine whose edges are known, and with the real llama.cpp."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import EngineConfig, ProveContext, Request
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Outcome, OutOfMemory, TimedOut
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine, launch
from ggbench.engines.process import WorkerProcess
from ggbench.errors import DoesNotFit
from ggbench.experiments.maxctx.measure import EXPERIMENT
from ggbench.experiments.maxctx.record import MaxctxSettings, Probe
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine.environment import environment
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.paths import twins_dir
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import PointMeasured, Working
from ggbench.runs.session import RunContext
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES
from ggbench.units import MIB
from tests.fakes.small_machine import COMPUTE, LIMIT, UNSEEN, SmallMachine, context_of, found, limited, search


def test_few_allocations_end_in_neighbours(target: Target, kv_bytes: int) -> None:
    """What the first context leaves leads to the edge: four contexts, where bisection from 0 would take nine."""
    edge = (LIMIT - COMPUTE - UNSEEN) // kv_bytes // 256 * 256
    machine = SmallMachine(kv_bytes, edge)
    context, run = found(machine.rig(), target)
    assert (context.max_n_ctx, context.first_fail_n_ctx) == (edge, edge + 256)
    assert context.verified_by_decode
    assert context.n_allocations <= 4
    assert machine.proven == [edge]
    assert [probe.n_ctx for probe in context.probes if probe.kind == "decode"] == [edge]
    assert run.memory.kv_bytes == edge * kv_bytes
    assert run.memory.compute_bytes == COMPUTE


def test_the_plan_is_what_fits_by_the_dry_allocator(target: Target, tiny_twin: Path, kv_bytes: int) -> None:
    file = read_model_file(tiny_twin)
    context, _ = found(SmallMachine(kv_bytes, 8192).rig(), target)
    assert file.weight_bytes is not None
    usable = LIMIT - BESIDE_BUFFERS_BYTES
    assert context.plan.planned_n_ctx == (usable - file.weight_bytes - COMPUTE) // kv_bytes // 256 * 256
    assert (context.plan.budget_bytes, context.plan.memory_bytes) == (usable, LIMIT)


def test_a_context_that_fails_says_where_the_edge_is(target: Target, kv_bytes: int) -> None:
    unseen = 80 * MIB
    edge = (LIMIT - COMPUTE - unseen) // kv_bytes // 256 * 256
    counted, blind = (
        SmallMachine(kv_bytes, edge, unseen_bytes=unseen, says_missing=says_missing) for says_missing in (True, False)
    )
    for machine in (counted, blind):
        context, _ = found(machine.rig(), target)
        assert (context.max_n_ctx, context.first_fail_n_ctx) == (edge, edge + 256)
    assert counted.allocated[1:3] == [edge, edge + 256]
    assert counted.allocated[0] > edge + 256 * 8
    assert len(blind.allocated) > 2 * len(counted.allocated)


@pytest.mark.parametrize(("is_unified", "n_ctx", "n_ctx_slot"), [(False, 15360, 3840), (True, 15872, 15872)])
def test_slots_share_what_is_found(
    target: Target, kv_bytes: int, is_unified: bool, n_ctx: int, n_ctx_slot: int
) -> None:
    """Slots with caches of their own grow together, by 256 tokens each; 16,000 tokens would fit."""
    setup = replace(limited(), n_seq_max=4, kv_unified=is_unified)
    context, _ = found(SmallMachine(kv_bytes, 16000).rig(), target, setup)
    assert (context.max_n_ctx, context.n_ctx_slot) == (n_ctx, n_ctx_slot)
    assert (context.first_fail_n_ctx or 0) - n_ctx == (256 if is_unified else 1024)
    assert context.verified_by_decode


@pytest.mark.parametrize("failing", [OutOfMemory, Crashed])
def test_an_edge_far_from_the_plan_is_found(target: Target, kv_bytes: int, failing: type[Ending]) -> None:
    machine = SmallMachine(kv_bytes, 8192, failing=failing)
    context, _ = found(machine.rig(), target)
    assert (context.max_n_ctx, context.first_fail_n_ctx) == (8192, 8448)
    n_failed = sum(n_ctx > 8192 for n_ctx in machine.allocated)
    assert len(machine.workers) == 2 + (n_failed if failing is Crashed else 0)
    assert all(worker.closed for worker in machine.workers)


def test_a_decode_that_dies_sends_the_search_below(target: Target, kv_bytes: int) -> None:
    machine = SmallMachine(kv_bytes, 16384, decode_edge=15000)
    context, _ = found(machine.rig(), target)
    assert (context.max_n_ctx, context.first_fail_n_ctx) == (14848, 15104)
    assert context.verified_by_decode
    assert machine.proven[0] == 16384
    n_died = sum(n_ctx > 15000 for n_ctx in machine.proven)
    assert len(machine.workers) == 2 + n_died


def test_a_decode_that_is_not_at_the_far_end_proves_nothing(target: Target, kv_bytes: int) -> None:
    context, run = found(SmallMachine(kv_bytes, 16384, fills=False).rig(), target)
    assert context.max_n_ctx == 16384
    assert not context.verified_by_decode
    assert "proves nothing" in run.reason


def test_a_model_that_does_not_load_dry_is_still_searched(target: Target, kv_bytes: int) -> None:
    context, _ = found(SmallMachine(kv_bytes, 16384, dry_loads=False).rig(), target)
    assert (context.max_n_ctx, context.plan.planned_n_ctx) == (16384, None)


def test_a_catalog_twin_above_the_limit_asks_for_a_smaller_one(kv_bytes: int) -> None:
    """The twin is not even written; q8_0 of 0.5B is 628 MiB by the article, and q4_k_m 383 MiB."""
    target = resolve_one(parse_model("twin:qwen1.5-0.5b", "q8_0"))
    finished = search(SmallMachine(kv_bytes, 0).rig(), target, limited(400 * MIB))
    assert isinstance(finished.error, DoesNotFit)
    assert "smaller quant" in finished.error.hint
    assert not twins_dir().exists()


@pytest.mark.parametrize(
    ("request_type", "outcome", "max_n_ctx"),
    [
        pytest.param(MakeContext, Outcome.TIMED_OUT, None, id="a context"),
        pytest.param(ProveContext, Outcome.COMPLETED, 16384, id="the decode at the far end"),
    ],
)
def test_a_worker_that_is_too_slow_shows_nothing_about_memory(
    target: Target, kv_bytes: int, request_type: type, outcome: Outcome, max_n_ctx: int | None
) -> None:
    machine = SmallMachine(kv_bytes, 16384)
    obey = machine.answer

    def stall(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, request_type) and not machine._dry:
            yield TimedOut(60)
        else:
            yield from obey(request)

    machine.answer = stall  # type: ignore[method-assign]
    finished = search(machine.rig(), target)
    assert finished.error is None
    assert finished.run.outcome is outcome
    assert "--timeout" in finished.run.reason
    context = context_of(finished.run)
    assert (context.max_n_ctx, context.verified_by_decode) == (max_n_ctx, False)


BROAD = Hyperparameters(
    architecture="qwen2", n_layer=8, n_embd=512, n_head=8, n_head_kv=8, n_ff=512, n_vocab=1024, n_ctx_train=4096
)
"""16 KiB of KV for each token: a step is 4 MiB, far above what malloc rounds by."""


@pytest.mark.llama
def test_it_agrees_with_blind_bisection(tmp_path: Path) -> None:
    """Real contexts under the same limit: bisection that knows nothing ends at the same edge, with more of them."""
    path = cached_twin("broad", BROAD, "q8_0", tmp_path)
    limit_bytes = 161 * MIB
    setup = LlamaConfig(memory_limit_bytes=limit_bytes, threads=1)

    def start(_setup: EngineConfig, cancel: threading.Event) -> LlamaEngine:
        return launch(cancel, timeout_s=60)

    rig = RunContext(launch=start, threads=1, describe_environment=environment)
    context, run = found(rig, resolve_one(parse_model(str(path))), setup)
    with closing(WorkerProcess(timeout_s=60)) as worker:
        assert ending_of(worker, LoadModel(str(path), setup)) == Completed()
        low, high, n_asked = 0, limit_bytes // BROAD_KV // 256 + 1, 0
        while high - low > 1:
            middle, n_asked = (low + high) // 2, n_asked + 1
            request = MakeContext(replace(setup, n_ctx=middle * 256))
            if ending_of(worker, request) == Completed():
                low = middle
            else:
                high = middle
    allocs = [probe for probe in context.probes if probe.kind == "alloc"]
    assert max(probe.n_ctx for probe in allocs if probe.passed) == low * 256
    assert min(probe.n_ctx for probe in allocs if not probe.passed) == high * 256
    assert len(allocs) < n_asked
    assert context.verified_by_decode
    assert context.max_n_ctx is not None
    assert context.first_fail_n_ctx == context.max_n_ctx + 256
    assert run.memory.kv_bytes == context.max_n_ctx * BROAD_KV
    assert run.memory.peak_bytes is not None
    assert run.memory.peak_bytes > context.max_n_ctx * BROAD_KV


BROAD_KV = 8 * 2 * 512 * 2


def ending_of(worker: WorkerProcess, request: Request) -> Ending:
    *_, last = worker.call(request)
    assert isinstance(last, Ending)
    assert not isinstance(last, Cancelled)
    return last


def test_weights_above_the_limit_load_nothing(target: Target) -> None:
    machine = SmallMachine(2048, 16384)
    finished = search(machine.rig(), target, limited(MIB))
    assert isinstance(finished.error, DoesNotFit) and "needs" in finished.error.message
    assert machine.allocated == []


def test_a_search_that_is_stopped_keeps_what_it_knows(target: Target, kv_bytes: int) -> None:
    machine = SmallMachine(kv_bytes, 1 << 16, cancel_at_alloc=2)
    finished = search(machine.rig(), target)
    assert finished.run.outcome is Outcome.CANCELLED
    context = context_of(finished.run)
    assert (context.max_n_ctx, context.verified_by_decode) == (machine.allocated[0], False)


def test_a_search_may_end_without_a_proof(target: Target, kv_bytes: int) -> None:
    machine = SmallMachine(kv_bytes, 16384, decode_edge=0)
    context, run = found(machine.rig(), target, prove=False, beyond_train=True)
    assert (context.max_n_ctx, context.verified_by_decode, machine.proven) == (16384, False, [])
    assert "--no-prove" in run.head.command


def test_a_state_that_does_not_grow_ends_at_a_stated_ceiling(target: Target) -> None:
    context, _ = found(SmallMachine(1024, 1 << 30, grows=False).rig(), target, beyond_train=True)
    assert (context.max_n_ctx, context.first_fail_n_ctx, context.n_allocations) == (1 << 20, None, 1)


def test_a_search_reports_every_trial_and_how_far_its_proof_is(target: Target, kv_bytes: int) -> None:
    job = Job(EXPERIMENT, target, limited(), MaxctxSettings(beyond_train=True))
    progress = list(run_job(SmallMachine(kv_bytes, 16384).rig(), job))
    points = [each for each in progress if isinstance(each, PointMeasured)]
    answers = [each for each in points if isinstance(each.observation, Probe)]
    assert answers[-1].text.startswith("n_ctx 16,384 decodes at its end (")
    trials = [each for each in progress if isinstance(each, Working) and each.text.startswith("n_ctx")]
    assert len(trials) == sum(bool(each.text) for each in answers)
    assert any(isinstance(each, Working) and (each.done, each.total) == (0.5, 1.0) for each in progress)
