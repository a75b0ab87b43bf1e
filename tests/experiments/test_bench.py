"""Decodes with a search after each: the summary, what the store has, and a search that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ggbench.decisions.bench import run_bench
from ggbench.engines import protocol
from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Completed, Crashed, Ending, OutOfMemory
from ggbench.engines.events import ContextProven
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine, launch
from ggbench.engines.workloads.prove_context import ProveContext
from ggbench.errors import StoreError
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.environment import environment
from ggbench.models.selector import Target
from ggbench.runs.outcome import Outcome
from ggbench.runs.progress import Finished, Progress, Started
from ggbench.runs.rig import Rig
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.runs.summary import QuantSummary
from ggbench.units import MIB
from tests.fakes.engine import Answer, fake_rig, obey
from tests.fakes.jobs import decodes
from tests.fakes.small_machine import context_of, found

EDGE = 8192
SETUP = LlamaConfig(memory_limit_bytes=100 * MIB)


def edged(edge: int = EDGE) -> Answer:
    """A worker in which contexts above the edge do not fit, unless they are dry."""
    is_dry = False

    def answer(request: protocol.Request) -> Iterator[protocol.Message | Ending]:
        nonlocal is_dry
        if isinstance(request, protocol.LoadModel):
            is_dry = request.dry
        match request:
            case protocol.MakeContext(setup) if (setup.n_ctx or 0) > edge and not is_dry:
                yield OutOfMemory("context", "failed to allocate")
            case protocol.MakeContext(setup):
                n_ctx = setup.n_ctx or 0
                yield protocol.Log(2, f"llama_kv_cache: size = {n_ctx * 2048 / MIB:.2f} MiB ( {n_ctx} cells")
                yield from obey(request)
            case ProveContext():
                yield ContextProven(0.1, 512, 1, 1, "copied", full=True)
                yield Completed()
            case _:
                yield from obey(request)

    return answer


def bench(rig: Rig, targets: list[Target], setup: LlamaConfig = SETUP, n_gen: int = 300) -> list[Progress]:
    return list(run_bench(rig, decodes(targets, n_gen, setup), maxctx=True))


def runs(records: list[Progress]) -> list[Run]:
    return [record.run for record in records if isinstance(record, Finished)]


def summaries(records: list[Progress]) -> list[QuantSummary]:
    """One for each decode, with the search after it."""
    found = runs(records)
    starts = [number for number, run in enumerate(found) if run.head.kind == "decode"]
    return [QuantSummary.of(found[start:end]) for start, end in zip(starts, [*starts[1:], len(found)], strict=True)]


def test_each_quant_gets_its_largest_context(target: Target, store: Store) -> None:
    rig, workers = fake_rig(store, dict.fromkeys(range(6), edged()))
    records = bench(rig, [target, target])
    started = [(record.kind, record.index, record.n_jobs) for record in records if isinstance(record, Started)]
    assert started == [("decode", 0, 2), ("decode", 1, 2)]
    assert [run.head.kind for run in runs(records)] == ["decode", "maxctx"] * 2
    for summary in summaries(records):
        assert (summary.max_n_ctx, summary.max_n_ctx_verified, summary.max_n_ctx_reason) == (EDGE, True, "")
        assert summary.fit is not None
        assert summary.memory.n_ctx == 512
        assert (summary.fit.b_ms, summary.b_w16_ms) == (None, None)
    assert QuantSummary.of(runs(records)).run == runs(records)[0]
    stored = [read_run(store, each) for each in reversed(store.list_runs())]
    assert [(run.run_id, run.result) for run in stored] == [(run.run_id, run.result) for run in runs(records)]
    assert all(worker.closed for worker in workers)


def test_without_maxctx_nothing_is_searched(target: Target) -> None:
    rig, _ = fake_rig()
    records = list(run_bench(rig, decodes([target, target], 20, SETUP)))
    assert [run.head.kind for run in runs(records)] == ["decode", "decode"]
    assert summaries(records)[0].max_n_ctx_reason == ""


def test_the_search_is_of_the_same_setup(target: Target) -> None:
    rig, workers = fake_rig(answers=dict.fromkeys(range(3), edged()))
    setup = LlamaConfig(
        n_ctx=512, type_k="q8_0", type_v="q4_0", n_ubatch=128, flash_attn="on", memory_limit_bytes=99 * MIB
    )
    (summary,) = summaries(bench(rig, [target], setup, n_gen=20))
    assert (summary.memory.n_ctx, summary.max_n_ctx) == (512, EDGE)
    decode, dry, search = (worker.requests for worker in workers)
    assert search[0] == decode[0]
    assert dry[0] != decode[0]
    assert isinstance(decode[1], protocol.MakeContext)
    assert isinstance(search[1], protocol.MakeContext)
    assert replace(search[1].setup, n_ctx=512) == decode[1].setup


def test_a_decode_out_of_memory_is_searched(target: Target) -> None:
    """Its context did not fit, so what would have is the question; the summary keeps its outcome and reason."""
    rig, _ = fake_rig(answers=dict.fromkeys(range(3), edged()))
    (summary,) = summaries(bench(rig, [target], replace(SETUP, n_ctx=16384)))
    assert summary.outcome is Outcome.OUT_OF_MEMORY
    assert "failed to allocate" in summary.run.reason
    assert summary.max_n_ctx == EDGE


def test_a_failed_search_leaves_the_decode(target: Target) -> None:
    rig, _ = fake_rig(answers=dict.fromkeys((1, 2), edged(0)) | dict.fromkeys((4, 5), edged()))
    failed, passed = summaries(bench(rig, [target, target]))
    assert failed.outcome is Outcome.COMPLETED
    assert failed.fit is not None
    assert (failed.max_n_ctx, failed.max_n_ctx_verified) == (None, None)
    assert "does not fit" in failed.max_n_ctx_reason
    assert (passed.max_n_ctx, passed.max_n_ctx_reason) == (EDGE, "")


def test_a_crash_is_not_searched(target: Target) -> None:
    """The search would meet the same end; the next decode starts."""

    def crash(_request: protocol.Request) -> Iterator[protocol.Message | Ending]:
        yield Crashed(-6, ())

    rig, workers = fake_rig(answers={0: crash} | dict.fromkeys(range(1, 4), edged()))
    records = bench(rig, [target, target])
    assert [run.head.kind for run in runs(records)] == ["decode", "decode", "maxctx"]
    assert len(workers) == 4


def test_a_search_that_is_stopped_finds_nothing(target: Target) -> None:
    cancel = threading.Event()

    def stop(request: protocol.Request) -> Iterator[protocol.Message | Ending]:
        yield from edged()(request)
        if isinstance(request, protocol.MakeContext):
            cancel.set()

    rig, workers = fake_rig(answers={0: edged(), 1: edged(), 2: stop}, cancel=cancel)
    (summary,) = summaries(bench(rig, [target, target]))
    assert (summary.outcome, summary.max_n_ctx) == (Outcome.COMPLETED, None)
    assert summary.max_n_ctx_reason == "stopped before its end"
    assert len(workers) == 3


def test_a_run_deleted_during_its_search_stays_deleted(target: Target, store: Store) -> None:
    rig, _ = fake_rig(store, dict.fromkeys(range(3), edged()))
    records: list[Progress] = []
    for record in run_bench(rig, decodes([target], 300, SETUP), maxctx=True):
        records.append(record)
        if isinstance(record, Finished) and record.run.head.kind == "decode":
            assert record.run.run_id is not None
            store.delete_run(record.run.run_id)
    assert all(record.store_error is None for record in records if isinstance(record, Finished))
    assert [run.kind for run in store.list_runs()] == ["maxctx"]


def test_a_store_that_fails_is_reported(target: Target, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StoreError("the disk is full", "make room")
    rig, _ = fake_rig(store, dict.fromkeys(range(3), edged()))
    records: list[Progress] = []
    for record in run_bench(rig, decodes([target], 300, SETUP), maxctx=True):
        records.append(record)
        if isinstance(record, Finished) and record.run.head.kind == "decode":

            def fail(*_: object) -> None:
                raise error

            monkeypatch.setattr(store, "finish", fail)
    finished = records[-1]
    assert isinstance(finished, Finished)
    assert (context_of(finished.run).max_n_ctx, finished.store_error) == (EDGE, error)


@pytest.mark.llama
def test_the_real_thing(target: Target, tiny_twin: Path) -> None:
    setup = LlamaConfig(memory_limit_bytes=32 * MIB, threads=1)

    def start(_setup: EngineConfig, cancel: threading.Event) -> LlamaEngine:
        return launch(cancel, timeout_s=60)

    rig = Rig(launch=start, threads=1, describe_environment=environment)
    (summary,) = summaries(bench(rig, [target], setup, n_gen=50))
    assert summary.outcome is Outcome.COMPLETED
    assert summary.latency is not None
    assert summary.max_n_ctx_verified, summary.max_n_ctx_reason
    assert summary.max_n_ctx is not None
    file = read_model_file(tiny_twin)
    assert file.weight_bytes is not None
    assert 0 < summary.max_n_ctx * file.kv_bytes_per_token() < 32 * MIB - file.weight_bytes
    # A step is 512 KiB here; what malloc keeps of a process differs by less than a few.
    assert found(rig, target, setup)[0].max_n_ctx == pytest.approx(summary.max_n_ctx, abs=4 * 256)
