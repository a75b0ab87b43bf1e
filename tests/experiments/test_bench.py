"""Trials with a search after each: what becomes of the row, of the store, and of a search that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from ggbench.experiments.progress import TrialFinished, TrialStarted
from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import SearchFinished
from ggbench.experiments.settings import TrialSettings

from ggbench.catalog.selector import Target
from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Crashed, Ending, OutOfMemory
from ggbench.engine.process import WorkerProcess
from ggbench.errors import StoreError
from ggbench.experiments.bench import BenchProgress, RowExtended, run_bench
from ggbench.experiments.maxctx import MaxctxSettings, run_maxctx
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.environment import environment
from ggbench.records.outcome import Outcome
from ggbench.records.setup import LlamaSetup
from ggbench.store.database import Store
from ggbench.units import MIB
from tests.fakes.engine import Answer, fake_rig, obey

EDGE = 8192
SETTINGS = TrialSettings("bench", LlamaSetup(memory_limit_bytes=100 * MIB), n_gen=300)


def edged(edge: int = EDGE) -> Answer:
    """A worker in which contexts above the edge do not fit, unless they are dry."""
    is_dry = False

    def answer(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        nonlocal is_dry
        if isinstance(request, protocol.LoadModel):
            is_dry = request.dry
        match request:
            case protocol.MakeContext(n_ctx=n_ctx) if n_ctx > edge and not is_dry:
                yield OutOfMemory("context", "failed to allocate")
            case protocol.MakeContext(n_ctx=n_ctx):
                yield protocol.Log(2, f"llama_kv_cache: size = {n_ctx * 2048 / MIB:.2f} MiB ( {n_ctx} cells")
                yield from obey(request)
            case protocol.ProveContext():
                yield protocol.ContextProven(0.1, 512, 1, 1, "copied", full=True)
                yield Completed()
            case _:
                yield from obey(request)

    return answer


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite") as opened:
        yield opened


def run(rig: Rig, targets: list[Target], settings: TrialSettings = SETTINGS) -> list[BenchProgress]:
    return list(run_bench(rig, tuple(targets), settings))


def extended(records: list[BenchProgress]) -> list[Row]:
    return [record.row for record in records if isinstance(record, RowExtended)]


def test_each_row_gets_its_largest_context(target: Target, store: Store) -> None:
    """The row of each trial comes again with what was found, and the stored one has it too."""
    rig, engines = fake_rig(store, dict.fromkeys(range(6), edged()))
    records = run(rig, [target, target])
    started = [(record.index, record.n_trials) for record in records if isinstance(record, TrialStarted)]
    assert started == [(0, 2), (1, 2)]
    measured = [record.row for record in records if isinstance(record, TrialFinished)]
    rows = extended(records)
    for before, row in zip(measured, rows, strict=True):
        assert (before.max_n_ctx, before.max_n_ctx_verified) == (None, None)
        assert row == replace(before, max_n_ctx=EDGE, max_n_ctx_verified=True)
        assert row.run_id is not None
        assert store.load_run(row.run_id).row == row
    assert all(engine.closed for engine in engines)


def test_the_search_is_of_the_same_configuration(target: Target) -> None:
    """Types, batches, threads and the memory limit are the trial's; its n_ctx is no ceiling."""
    rig, engines = fake_rig(answers=dict.fromkeys(range(3), edged()))
    config = LlamaSetup(
        n_ctx=512, type_k="q8_0", type_v="q4_0", n_ubatch=128, flash_attn="on", memory_limit_bytes=99 * MIB
    )
    (row,) = extended(run(rig, [target], TrialSettings("bench", config, n_gen=20)))
    assert (row.n_ctx, row.max_n_ctx) == (512, EDGE)
    trial, dry, search = (engine.requests for engine in engines)
    assert search[0] == trial[0]
    assert dry[0] != trial[0]
    assert isinstance(trial[1], protocol.MakeContext)
    assert isinstance(search[1], protocol.MakeContext)
    assert msgspec.structs.replace(search[1], n_ctx=512) == trial[1]


def test_a_trial_out_of_memory_is_searched(target: Target) -> None:
    """Its context did not fit, so what would have is the question; the row keeps its outcome and reason."""
    rig, _ = fake_rig(answers=dict.fromkeys(range(3), edged()))
    (row,) = extended(run(rig, [target], TrialSettings("bench", replace(SETTINGS.config, n_ctx=16384), n_gen=300)))
    assert row.outcome is Outcome.OUT_OF_MEMORY
    assert "failed to allocate" in row.reason
    assert row.max_n_ctx == EDGE


def test_a_failed_search_leaves_the_row(target: Target) -> None:
    """The trial is complete with all its figures; the reason stands beside them, and the next quant goes on."""
    rig, _ = fake_rig(answers=dict.fromkeys((1, 2), edged(0)) | dict.fromkeys((4, 5), edged()))
    failed, found = extended(run(rig, [target, target]))
    assert failed.outcome is Outcome.COMPLETED
    assert failed.fit is not None
    assert (failed.max_n_ctx, failed.max_n_ctx_verified) == (None, None)
    assert "does not fit" in failed.max_n_ctx_reason
    assert (found.max_n_ctx, found.max_n_ctx_reason) == (EDGE, "")


def test_a_crash_is_not_searched(target: Target) -> None:
    """The search would meet the same end; no second row comes, and the next trial starts."""

    def crash(_request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        yield Crashed(-6, ())

    rig, engines = fake_rig(answers={0: crash} | dict.fromkeys(range(1, 4), edged()))
    records = run(rig, [target, target])
    assert len(extended(records)) == 1
    assert sum(isinstance(record, TrialFinished) for record in records) == 2
    assert len(engines) == 4


def test_a_search_that_is_stopped_finds_nothing(target: Target) -> None:
    """A context that worked on the way is not called the largest, and no other trial starts."""
    cancel = threading.Event()

    def stop(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        yield from edged()(request)
        if isinstance(request, protocol.MakeContext):
            cancel.set()

    rig, engines = fake_rig(answers={0: edged(), 1: edged(), 2: stop}, cancel=cancel)
    (row,) = extended(run(rig, [target, target]))
    assert (row.outcome, row.max_n_ctx) == (Outcome.COMPLETED, None)
    assert row.max_n_ctx_reason
    assert len(engines) == 3


def test_a_run_deleted_during_its_search_stays_deleted(target: Target, store: Store) -> None:
    """The row is told all the same, without an error; the search is a run of its own."""
    rig, _ = fake_rig(store, dict.fromkeys(range(3), edged()))
    records = []
    for record in run_bench(rig, (target,), SETTINGS):
        records.append(record)
        if isinstance(record, TrialFinished):
            assert record.row.run_id is not None
            store.delete_run(record.row.run_id)
    assert records[-1] == RowExtended(extended(records)[0], None)
    assert [run.kind for run in store.list_runs()] == ["maxctx"]


def test_a_store_that_fails_is_told(target: Target, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row has what was found, and why the store does not."""
    error = StoreError("the disk is full", "make room")
    rig, _ = fake_rig(store, dict.fromkeys(range(3), edged()))
    records = []
    for record in run_bench(rig, (target,), SETTINGS):
        records.append(record)
        if isinstance(record, TrialFinished):

            def fail(*_: object) -> None:
                raise error

            monkeypatch.setattr(store, "finish", fail)
    assert records[-1] == RowExtended(extended(records)[0], error)


@pytest.mark.llama
def test_the_real_thing(target: Target, tiny_twin: Path) -> None:
    """Under a limit the search of a bench ends where that of maxctx does, and llama.cpp decoded at the far end."""
    config = LlamaSetup(memory_limit_bytes=32 * MIB, threads=1)
    rig = Rig(launch=lambda cancel: WorkerProcess(cancel, 60), threads=1, describe_environment=environment)
    (row,) = extended(run(rig, [target], TrialSettings("bench", config, n_gen=50)))
    assert row.outcome is Outcome.COMPLETED
    assert row.latency is not None
    assert row.max_n_ctx_verified, row.max_n_ctx_reason
    assert row.max_n_ctx is not None
    file = read_model_file(tiny_twin)
    assert file.weight_bytes is not None
    assert 0 < row.max_n_ctx * file.kv_bytes_per_token() < 32 * MIB - file.weight_bytes
    *_, alone = run_maxctx(rig, (target,), MaxctxSettings(config))
    assert isinstance(alone, SearchFinished)
    # A step is 512 KiB here; what malloc keeps of a process differs by less than a few.
    assert alone.certificate.max_n_ctx == pytest.approx(row.max_n_ctx, abs=4 * 256)
