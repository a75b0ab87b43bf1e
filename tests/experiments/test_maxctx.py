"""The search for the largest context: on a machine whose edges are known, and with the real llama.cpp."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import pytest

from ggbench.catalog.selector import Target, resolve_one
from ggbench.engine import protocol
from ggbench.engine.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory
from ggbench.engine.process import WorkerProcess
from ggbench.errors import DoesNotFit, EngineFailed, StoreError
from ggbench.experiments.maxctx import MaxctxSettings, run_maxctx
from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import ProbeFinished, ProbeStarted, SearchFinished
from ggbench.experiments.stored import stored_certificate
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine.environment import environment
from ggbench.machine_records import Gpu, GpuProcess
from ggbench.paths import twins_dir
from ggbench.records import Certificate, LoadConfig, Outcome
from ggbench.store.database import Store
from ggbench.units import MIB
from tests.fakes.engine import FakeEngine

LIMIT = 100 * MIB
COMPUTE = 8 * MIB
UNSEEN = 20 * MIB
"""What a context takes here that no log tells."""
CARD_ID = "0000:01:00.0"
CARD = Gpu(0, "Card", "GPU-1", "00000000:01:00.0", 24 << 30, 23 << 30, None, None, None)


@dataclass
class SmallMachine:
    """Answers as a worker with a memory limit would; contexts up to `edge` work, decodes up to `decode_edge`."""

    kv_bytes: int
    edge: int
    decode_edge: int = 1 << 31
    failing: type[Ending] = OutOfMemory
    grows: bool = True
    fills: bool = True
    dry_loads: bool = True
    device: str = "CPU"
    cancel: threading.Event = field(default_factory=threading.Event)
    cancel_at_alloc: int = 0
    engines: list[FakeEngine] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    proven: list[int] = field(default_factory=list)
    loads: list[protocol.LoadModel] = field(default_factory=list)
    _dry: bool = False

    def rig(self) -> Rig:
        """Every worker of it is this machine."""

        def launch(event: threading.Event) -> FakeEngine:
            self.engines.append(FakeEngine(event, self.answer))
            return self.engines[-1]

        return Rig(launch=launch, threads=2, describe_environment=environment, cancel=self.cancel)

    def answer(self, request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        """One request."""
        match request:
            case protocol.LoadModel(dry=dry):
                assert isinstance(request, protocol.LoadModel)
                self._dry = dry
                if dry and not self.dry_loads:
                    yield Failed("load", "unknown architecture")
                    return
                if not self.device.startswith("CPU"):
                    using = f"llama_prepare_model_devices: using device {self.device} (Card) ({CARD_ID})"
                    yield protocol.Log(2, f"{using} - 23552 MiB free")
                self.loads.append(request)
                yield protocol.ModelLoaded(0.1, 1000, 2000, 4096, 1024, None if dry else LIMIT)
            case protocol.MakeContext(n_ctx=n_ctx):
                if not self._dry:
                    self.allocated.append(n_ctx)
                    if len(self.allocated) == self.cancel_at_alloc:
                        self.cancel.set()
                    if n_ctx > self.edge:
                        yield self._failure("context")
                        return
                kv = self.kv_bytes * (n_ctx if self.grows else 1024) / MIB
                if not self._dry:
                    yield protocol.Log(2, f"llama_kv_cache:        {self.device} KV buffer size = {kv:.2f} MiB")
                yield protocol.Log(2, f"llama_kv_cache: size = {kv:.2f} MiB ( {n_ctx} cells, 2 layers, 1/1 seqs)")
                yield protocol.Log(
                    2, f"sched_reserve:        {self.device} compute buffer size = {COMPUTE / MIB:.2f} MiB"
                )
                left = LIMIT - COMPUTE - UNSEEN - round(kv * MIB)
                yield protocol.ContextMade(0.1, n_ctx, 512, 512, None if self._dry else left)
            case protocol.ProveContext():
                n_ctx = self.allocated[-1]
                self.proven.append(n_ctx)
                yield protocol.Filling(0.5)
                if n_ctx > self.decode_edge:
                    yield self._failure("decode")
                    return
                yield protocol.ContextProven(0.1, 512, 1, 1, "copied", full=self.fills, left_bytes=0)
        yield Completed()

    def _failure(self, stage: protocol.Stage) -> Ending:
        if self.failing is Crashed:
            return Crashed(-9, ("last words",))
        return OutOfMemory(stage, "failed to allocate")


@pytest.fixture
def target(tiny_twin: Path) -> Target:
    return resolve_one(str(tiny_twin))


@pytest.fixture
def kv_bytes(tiny_twin: Path) -> int:
    return read_model_file(tiny_twin).kv_bytes_per_token()


def settings(limit_bytes: int = LIMIT, **fields: bool) -> MaxctxSettings:
    return MaxctxSettings(LoadConfig(memory_limit_bytes=limit_bytes), **fields)


def search(rig: Rig, target: Target, asked: MaxctxSettings) -> SearchFinished:
    *_, finished = run_maxctx(rig, (target,), asked)
    assert isinstance(finished, SearchFinished)
    return finished


def certified(rig: Rig, target: Target, asked: MaxctxSettings) -> Certificate:
    finished = search(rig, target, asked)
    assert finished.error is None, finished.error
    return finished.certificate


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


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes NVML list a card beside one that is not in use: as it was before the search, and 10 MiB free after it."""

    def install(after: tuple[Gpu, ...] = (replace(CARD, free_bytes=10 * MIB),)) -> None:
        hidden = replace(CARD, index=1, uuid="GPU-2", pci_bus_id="00000000:41:00.0", free_bytes=0)
        monkeypatch.setattr("ggbench.experiments.forecast.list_gpus", lambda: (CARD, hidden))
        monkeypatch.setattr("ggbench.experiments.maxctx.list_gpus", lambda: (hidden, *after))
        monkeypatch.setattr("ggbench.experiments.maxctx.list_gpu_processes", lambda _: ())

    return install


def test_what_a_gpu_gave_is_told_without_the_ballast_of_a_limit(
    target: Target, kv_bytes: int, gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a limit the peak is what of the limit is gone, not of the card; who held memory before is told."""
    gpus()
    desktop = GpuProcess(911, "/usr/bin/desktop", 300 * MIB)
    monkeypatch.setattr("ggbench.experiments.maxctx.list_gpu_processes", lambda _: (desktop,))
    edge = (LIMIT - COMPUTE - UNSEEN) // kv_bytes // 256 * 256

    found = certified(SmallMachine(kv_bytes, edge, device="CUDA0").rig(), target, settings())

    assert (found.max_n_ctx, found.peak_bytes, found.free_bytes) == (edge, LIMIT - 10 * MIB, 23 << 30)
    assert found.other_bytes == LIMIT - 10 * MIB - COMPUTE - edge * kv_bytes
    assert found.gpu_processes == (desktop,)


def test_a_gpu_that_nvml_no_longer_tells_of_leaves_the_peak_unknown(
    target: Target, kv_bytes: int, gpus: Callable[..., None]
) -> None:
    """The answer stands without it."""
    gpus(after=())
    found = certified(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, settings())
    assert (found.max_n_ctx, found.peak_bytes, found.other_bytes) == (4096, None, None)


def test_layers_left_in_main_memory_do_not_count_against_the_gpu(
    target: Target, kv_bytes: int, gpus: Callable[..., None], tiny_twin: Path
) -> None:
    """Weights larger than the GPU's memory are no reason to give up where a part of them is offloaded."""
    gpus()
    file = read_model_file(tiny_twin)
    assert file.weight_bytes is not None
    limit_bytes = COMPUTE + file.weight_bytes // 2
    machine = SmallMachine(kv_bytes, 4096, device="CUDA0")
    asked = MaxctxSettings(LoadConfig(memory_limit_bytes=limit_bytes, n_gpu_layers=1))

    found = certified(machine.rig(), target, asked)

    assert file.weight_bytes > limit_bytes - COMPUTE
    assert found.max_n_ctx == 4096
    assert {load.n_gpu_layers for load in machine.loads} == {1}


def test_weights_above_a_gpus_memory(target: Target, kv_bytes: int, gpus: Callable[..., None]) -> None:
    """The hint tells the way that only a GPU leaves open."""
    gpus()
    finished = search(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, settings(limit_bytes=MIB))
    assert isinstance(finished.error, DoesNotFit)
    assert "GPU memory" in finished.error.message
    assert "-ngl" in finished.error.hint


def test_without_a_layer_on_the_gpu_main_memory_is_searched(
    target: Target, kv_bytes: int, gpus: Callable[..., None]
) -> None:
    """llama.cpp computes large batches on the GPU all the same, but that is not where the context lies."""
    gpus()
    asked = MaxctxSettings(LoadConfig(memory_limit_bytes=LIMIT, n_gpu_layers=0))
    found = certified(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, asked)
    assert found.free_bytes != CARD.free_bytes
    assert found.budget_bytes == LIMIT


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
    limit_bytes = 401 * MIB
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


def test_a_search_is_kept_with_its_certificate(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """The store has every answer, the certificate, and a line for its lists."""
    with Store.open(tmp_path / "results.sqlite") as store:
        found = certified(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())

        assert found.run_id is not None
        run = store.load_run(found.run_id)
        assert (run.kind, run.state, run.command) == ("maxctx", "completed", found.command)
        assert store.load_certificate(found.run_id)[0] == found == stored_certificate(store, run)
        assert store.load_probes(found.run_id) == found.probes
        assert run.row is not None
        assert (run.row.max_n_ctx, run.row.max_n_ctx_verified, run.row.kv_bytes) == (4096, True, found.kv_bytes)
        assert run.row.buffers == found.buffers


def test_a_search_that_was_killed_keeps_what_it_had_asked(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """What works and what does not, as far as it came, and no claim of a proof."""
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        progress = run_maxctx(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), (target,), settings())
        with contextlib.closing(progress):
            seen = [each.probe for each in takewhile(not_proving, progress) if isinstance(each, ProbeFinished)]
    with Store.open(path) as store:
        (run,) = store.list_runs()
        left = stored_certificate(store, store.load_run(run.run_id))
    assert run.state == "interrupted"
    assert left.probes == tuple(seen)
    assert (left.max_n_ctx, left.first_fail_n_ctx, left.verified_by_decode) == (4096, 4352, False)
    assert (left.outcome, left.reason) == (Outcome.INTERRUPTED, "ggbench ended before the run did")


def not_proving(record: object) -> bool:
    """Whether the search has not come to its decode."""
    return not (isinstance(record, ProbeStarted) and record.kind == "decode")


def test_a_search_that_was_killed_at_once_has_found_nothing(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """No context is known to work."""
    with Store.open(tmp_path / "results.sqlite") as store:
        progress = run_maxctx(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), (target,), settings())
        with contextlib.closing(progress):
            next(each for each in progress if isinstance(each, ProbeStarted))
        (run,) = store.list_runs()
        left = stored_certificate(store, store.load_run(run.run_id))
    assert (left.max_n_ctx, left.first_fail_n_ctx) == (None, None)
    assert {probe.kind for probe in left.probes} == {"dry"}
    assert left.environment is not None


def test_a_store_that_fails_costs_no_answer(
    target: Target, kv_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is told with why it is not kept."""

    def fail(self: Store, *_: object) -> None:
        raise StoreError("the disk is full", "make room")

    for method in ("append_probe", "begin"):
        monkeypatch.setattr(Store, method, fail)
        with Store.open(tmp_path / f"{method}.sqlite") as store:
            finished = search(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())
        assert finished.certificate.max_n_ctx == 4096
        assert finished.store_error is not None


def test_a_search_whose_run_is_deleted_goes_on(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """As from another container, which takes the search for dead: nothing more is kept, and nothing is wrong."""
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
        records = []
        for record in run_maxctx(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), (target,), settings()):
            records.append(record)
            raw.execute("DELETE FROM runs")
    finished = records[-1]
    assert isinstance(finished, SearchFinished)
    assert (finished.certificate.max_n_ctx, finished.certificate.run_id) == (4096, None)
    assert finished.store_error is None


def test_a_probe_that_gave_no_answer_is_no_failure(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """What works stays known where the decode after it was cancelled or too slow, and the search then killed."""
    with Store.open(tmp_path / "results.sqlite") as store:
        found = certified(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())
        assert found.run_id is not None
        run_id = store.begin(store.load_run(found.run_id).start)
        slow = [
            replace(probe, outcome=Outcome.TIMED_OUT) if probe.kind == "decode" else probe for probe in found.probes
        ]
        for number, probe in enumerate(slow):
            store.append_probe(run_id, number, probe)
        left = stored_certificate(store, store.load_run(run_id))
    assert (left.max_n_ctx, left.first_fail_n_ctx, left.verified_by_decode) == (4096, 4352, False)
    assert (left.kv_bytes, left.compute_bytes) == (found.kv_bytes, found.compute_bytes)


def test_a_certificate_of_another_version_is_explained(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """What its probes tell, and why the rest cannot be read."""
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        found = certified(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute("UPDATE runs SET certificate = '{}'")
        assert found.run_id is not None
        left = stored_certificate(store, store.load_run(found.run_id))
    assert (left.max_n_ctx, left.verified_by_decode) == (4096, True)
    assert "another version of ggbench" in left.reason


def test_ctrl_c_before_the_file_is_there_leaves_no_run(
    kv_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a trial whose file is not there yet."""

    def prepare(*_: object) -> Generator[None]:
        yield from ()
        raise CancelledError

    monkeypatch.setattr("ggbench.experiments.maxctx.prepare", prepare)
    with Store.open(tmp_path / "results.sqlite") as store:
        rig = replace(SmallMachine(kv_bytes, 4096).rig(), store=store)
        finished = search(rig, resolve_one("synth:qwen1.5-0.5b", "q8_0"), settings(limit_bytes=4096 * MIB))
        assert finished.certificate.outcome is Outcome.CANCELLED
        assert store.list_runs() == ()
