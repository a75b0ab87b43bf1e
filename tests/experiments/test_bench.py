"""Decodes with a search after each: the summary, what the store has, and a search that fails."""

import threading
from collections.abc import Iterator

from msgspec.structs import replace

from ggbench.cli.bench import run_bench
from ggbench.engines import protocol
from ggbench.engines.contract import ProveContext, Request
from ggbench.engines.endings import Completed, Crashed, Ending, Outcome, OutOfMemory
from ggbench.engines.events import ContextProven
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.models.targets import Target
from ggbench.runs.progress import Finished, Progress, Started
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.runs.summary import QuantSummary
from ggbench.units import MIB
from tests.fakes.engine import Answer, fake_rig, obey
from tests.fakes.jobs import decodes

EDGE = 2048
SETUP = LlamaConfig(memory_limit_bytes=100 * MIB)


def edged(edge: int = EDGE) -> Answer:
    """A worker in which contexts above the edge do not fit, unless they are dry."""
    is_dry = False

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        nonlocal is_dry
        if isinstance(request, LoadModel):
            is_dry = request.dry
        match request:
            case MakeContext(setup) if (setup.n_ctx or 0) > edge and not is_dry:
                yield OutOfMemory("context", "failed to allocate")
            case MakeContext(setup):
                n_ctx = setup.n_ctx or 0
                yield protocol.Log(2, f"llama_kv_cache: size = {n_ctx * 2048 / MIB:.2f} MiB ( {n_ctx} cells")
                yield from obey(request)
            case ProveContext():
                yield ContextProven(full=True)
                yield Completed()
            case _:
                yield from obey(request)

    return answer


def bench(rig: RunContext, targets: list[Target], setup: LlamaConfig = SETUP, n_gen: int = 300) -> list[Progress]:
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


def test_a_crash_is_not_searched(target: Target) -> None:
    """The search would meet the same end; the next decode starts."""

    def crash(_request: Request) -> Iterator[protocol.Message | Ending]:
        yield Crashed("it died")

    rig, workers = fake_rig(answers={0: crash} | dict.fromkeys(range(1, 4), edged()))
    records = bench(rig, [target, target])
    assert [run.head.kind for run in runs(records)] == ["decode", "decode", "maxctx"]
    assert len(workers) == 4


def test_a_search_that_is_stopped_finds_nothing(target: Target) -> None:
    cancel = threading.Event()

    def stop(request: Request) -> Iterator[protocol.Message | Ending]:
        yield from edged()(request)
        if isinstance(request, MakeContext):
            cancel.set()

    rig, workers = fake_rig(answers={0: edged(), 1: edged(), 2: stop}, cancel=cancel)
    (summary,) = summaries(bench(rig, [target, target]))
    assert (summary.outcome, summary.max_n_ctx) == (Outcome.COMPLETED, None)
    assert summary.max_n_ctx_reason == "stopped before the end"
    assert len(workers) == 3


def test_a_search_and_its_decode_do_not_depend_on_each_other(target: Target) -> None:
    """A decode out of memory is searched, and a search that finds nothing leaves the decode its figures."""
    rig, _ = fake_rig(answers=dict.fromkeys(range(3), edged()))
    (summary,) = summaries(bench(rig, [target], replace(SETUP, n_ctx=16384)))
    assert (summary.outcome, summary.max_n_ctx) == (Outcome.OUT_OF_MEMORY, EDGE)
    rig, _ = fake_rig(answers=dict.fromkeys((1, 2), edged(0)) | dict.fromkeys((4, 5), edged()))
    failed, passed = summaries(bench(rig, [target, target]))
    assert (failed.outcome, failed.max_n_ctx, failed.max_n_ctx_verified) == (Outcome.COMPLETED, None, None)
    assert failed.fit is not None and "does not fit" in failed.max_n_ctx_reason
    assert (passed.max_n_ctx, passed.max_n_ctx_reason) == (EDGE, "")
