"""The search for the largest context: on a machine whose edges are known, and with the real llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.catalog.selector import Target, resolve_one
from ggbench.engine import protocol
from ggbench.engine.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory
from ggbench.engine.process import WorkerProcess
from ggbench.errors import DoesNotFit, EngineFailed
from ggbench.experiments.maxctx import run_maxctx
from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import ProbeFinished
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine.environment import environment
from ggbench.paths import twins_dir
from ggbench.records import Outcome
from ggbench.units import MIB
from tests.fakes.engine import FakeEngine
from tests.fakes.small_machine import COMPUTE, LIMIT, UNSEEN, SmallMachine, certified, search, settings


def test_few_allocations_end_in_neighbours(target: Target, kv_bytes: int) -> None:
    """What the first context leaves leads to the edge: four contexts, where bisection from 0 would take nine."""
    edge = (LIMIT - COMPUTE - UNSEEN) // kv_bytes // 256 * 256
    machine = SmallMachine(kv_bytes, edge)
    found = certified(machine.rig(), target, settings())
    assert (found.max_n_ctx, found.first_fail_n_ctx) == (edge, edge + 256)
    assert found.verified_by_decode
    assert found.n_allocations <= 4
    assert machine.proven == [edge]
    assert [probe.n_ctx for probe in found.probes if probe.kind == "decode"] == [edge]
    assert found.kv_bytes == edge * kv_bytes
    assert found.compute_bytes == COMPUTE


def test_theory_bounds_the_plan_and_the_plan_the_edge(target: Target, tiny_twin: Path, kv_bytes: int) -> None:
    """The plan is what weights, KV and compute leave, to a step; theory leaves the compute buffers out."""
    file = read_model_file(tiny_twin)
    found = certified(SmallMachine(kv_bytes, 8192).rig(), target, settings())
    assert file.weight_bytes is not None
    assert found.theory_n_ctx == (LIMIT - file.weight_bytes) // kv_bytes
    assert found.planned_n_ctx == (LIMIT - file.weight_bytes - COMPUTE) // kv_bytes // 256 * 256
    assert found.budget_bytes == LIMIT
    dry = [probe for probe in found.probes if probe.kind == "dry"]
    assert {probe.outcome for probe in dry} == {Outcome.COMPLETED, Outcome.OUT_OF_MEMORY}


@pytest.mark.parametrize("failing", [OutOfMemory, Crashed])
def test_an_edge_far_from_the_plan_is_found(target: Target, kv_bytes: int, failing: type[Ending]) -> None:
    """Steps double down from a wrong expectation; a worker that dies of a probe is replaced, and the search goes on."""
    machine = SmallMachine(kv_bytes, 8192, failing=failing)
    found = certified(machine.rig(), target, settings())
    assert (found.max_n_ctx, found.first_fail_n_ctx) == (8192, 8448)
    n_failed = sum(n_ctx > 8192 for n_ctx in machine.allocated)
    assert len(machine.engines) == 2 + (n_failed if failing is Crashed else 0)
    assert all(engine.closed for engine in machine.engines)


def test_a_decode_that_dies_sends_the_search_below(target: Target, kv_bytes: int) -> None:
    """Contexts that load and do not decode are no fit: the winner is the largest that decodes, each in a new worker."""
    machine = SmallMachine(kv_bytes, 16384, decode_edge=15000)
    found = certified(machine.rig(), target, settings())
    assert (found.max_n_ctx, found.first_fail_n_ctx) == (14848, 15104)
    assert found.verified_by_decode
    assert machine.proven[0] == 16384
    n_died = sum(n_ctx > 15000 for n_ctx in machine.proven)
    assert len(machine.engines) == 2 + n_died


def test_a_decode_that_is_not_at_the_far_end_proves_nothing(target: Target, kv_bytes: int) -> None:
    """Where llama.cpp has cells left after it, the context stands unverified, with the reason."""
    found = certified(SmallMachine(kv_bytes, 16384, fills=False).rig(), target, settings())
    assert found.max_n_ctx == 16384
    assert not found.verified_by_decode
    assert "proves nothing" in found.reason


def test_without_a_proof(target: Target, kv_bytes: int) -> None:
    """--no-prove ends with the neighbours, and the certificate says that nothing was decoded."""
    machine = SmallMachine(kv_bytes, 16384, decode_edge=0)
    found = certified(machine.rig(), target, settings(prove=False))
    assert found.max_n_ctx == 16384
    assert not found.verified_by_decode
    assert machine.proven == []
    assert found.command.endswith("--no-prove")


def test_beyond_the_training_context(target: Target, kv_bytes: int) -> None:
    """It is a warning; with --cap-train it is the ceiling, and then nothing failed."""
    machine = SmallMachine(kv_bytes, 16384)
    assert any("trained" in warning for warning in certified(machine.rig(), target, settings()).warnings)
    capped = certified(SmallMachine(kv_bytes, 16384).rig(), target, settings(cap_train=True))
    assert (capped.max_n_ctx, capped.first_fail_n_ctx, capped.ceiling_n_ctx) == (4096, None, 4096)
    assert capped.warnings == ()


def test_a_state_that_does_not_grow_ends_at_a_stated_ceiling(target: Target) -> None:
    """It is said, and one context at the ceiling is enough."""
    machine = SmallMachine(1024, 1 << 30, grows=False)
    found = certified(machine.rig(), target, settings())
    assert (found.max_n_ctx, found.first_fail_n_ctx) == (1 << 20, None)
    assert any("any length" in warning for warning in found.warnings)
    assert found.n_allocations == 1


def test_a_model_that_does_not_load_dry_is_still_searched(target: Target, kv_bytes: int) -> None:
    """Without a plan the real contexts decide alone."""
    found = certified(SmallMachine(kv_bytes, 16384, dry_loads=False).rig(), target, settings())
    assert (found.max_n_ctx, found.planned_n_ctx) == (16384, None)


def test_not_even_the_smallest_context(target: Target, kv_bytes: int) -> None:
    """Everything fails: does not fit, with the reason in the certificate."""
    finished = search(SmallMachine(kv_bytes, 0).rig(), target, settings())
    assert isinstance(finished.error, DoesNotFit)
    assert finished.certificate.outcome is Outcome.OUT_OF_MEMORY
    assert finished.certificate.max_n_ctx is None


def test_weights_above_the_limit(tiny_twin: Path, tmp_path: Path) -> None:
    """Nothing is loaded; what is missing is said, and which file beside it would fit."""
    (tmp_path / "model-q8_0.gguf").write_bytes(tiny_twin.read_bytes())
    (tmp_path / "model-q2_k.gguf").write_bytes(b"0" * 100_000)
    target = resolve_one(str(tmp_path), "q8_0")
    machine = SmallMachine(2048, 16384)
    finished = search(machine.rig(), target, settings(limit_bytes=MIB))
    assert isinstance(finished.error, DoesNotFit)
    assert "missing" in finished.error.message
    assert machine.allocated == []


def test_a_catalog_twin_above_the_limit_names_a_quant_that_fits(kv_bytes: int) -> None:
    """The twin is not even written; q8_0 of 0.5B is 628 MiB by the article, and q4_k_m 383 MiB."""
    target = resolve_one("synth:qwen1.5-0.5b", "q8_0")
    finished = search(SmallMachine(kv_bytes, 0).rig(), target, settings(limit_bytes=400 * MIB))
    assert isinstance(finished.error, DoesNotFit)
    assert "would fit" in finished.error.hint
    assert not twins_dir().exists()


def test_stopped_halfway(target: Target, kv_bytes: int) -> None:
    """What is known stays in the certificate."""
    machine = SmallMachine(kv_bytes, 16384, cancel_at_alloc=2)
    finished = search(machine.rig(), target, settings())
    assert finished.certificate.outcome is Outcome.CANCELLED
    assert finished.certificate.max_n_ctx == machine.allocated[0]
    assert not finished.certificate.verified_by_decode


def test_a_model_that_llama_cpp_refuses(target: Target) -> None:
    """Its own reason is the error."""

    def refuse(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        yield Failed("load", "unknown model architecture: 'nonesuch'")

    rig = Rig(launch=lambda event: FakeEngine(event, refuse), threads=2, describe_environment=environment)
    finished = search(rig, target, settings())
    assert isinstance(finished.error, EngineFailed)
    assert "nonesuch" in finished.error.message


def test_the_bracket_is_told_as_it_closes(target: Target, kv_bytes: int) -> None:
    """Every answer comes with what is known by then, so that a view needs no memory of its own."""
    progress = list(run_maxctx(SmallMachine(kv_bytes, 16384).rig(), (target,), settings()))
    told = [record for record in progress if isinstance(record, ProbeFinished)]
    assert (told[-1].passed, told[-1].failed) == (16384, 16640)
    assert len(told) == len(progress[-1].certificate.probes)  # type: ignore[union-attr]


BROAD = Hyperparameters(
    architecture="qwen2", n_layer=8, n_embd=512, n_head=8, n_head_kv=8, n_ff=512, n_vocab=1024, n_ctx_train=4096
)
"""16 KiB of KV for each token: a step is 4 MiB, far above what malloc rounds by."""


@pytest.mark.llama
def test_it_agrees_with_blind_bisection(tmp_path: Path) -> None:
    """Real contexts under the same limit: bisection that knows nothing ends at the same edge, with more of them."""
    path = cached_twin("broad", BROAD, "q8_0", tmp_path)
    limit_bytes = 161 * MIB
    rig = Rig(launch=lambda cancel: WorkerProcess(cancel, 60), threads=1, describe_environment=environment)
    found = certified(rig, resolve_one(str(path)), settings(limit_bytes))
    with WorkerProcess(timeout_s=60) as worker:
        assert ending_of(worker, protocol.LoadModel(str(path), memory_limit_bytes=limit_bytes)) == Completed()
        low, high, n_asked = 0, limit_bytes // BROAD_KV // 256 + 1, 0
        while high - low > 1:
            middle, n_asked = (low + high) // 2, n_asked + 1
            request = protocol.MakeContext(middle * 256, 2048, 512, "f16", "f16", "auto", 1)
            if ending_of(worker, request) == Completed():
                low = middle
            else:
                high = middle
    allocs = [probe for probe in found.probes if probe.kind == "alloc"]
    assert max(probe.n_ctx for probe in allocs if probe.passed) == low * 256
    assert min(probe.n_ctx for probe in allocs if not probe.passed) == high * 256
    assert len(allocs) < n_asked
    assert found.verified_by_decode
    assert found.max_n_ctx is not None
    assert found.first_fail_n_ctx == found.max_n_ctx + 256
    assert found.kv_bytes == found.max_n_ctx * BROAD_KV
    assert found.peak_bytes is not None
    assert found.peak_bytes > found.kv_bytes


BROAD_KV = 8 * 2 * 512 * 2


def ending_of(worker: WorkerProcess, request: protocol.Request) -> Ending:
    *_, last = worker.call(request)
    assert isinstance(last, Ending)
    assert not isinstance(last, Cancelled)
    return last
