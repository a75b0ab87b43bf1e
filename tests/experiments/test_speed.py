"""A speed run from target to result, with a worker that replays what llama.cpp reports."""

import threading
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import BatchedDecode, Request
from ggbench.engines.endings import Crashed, Ending, Outcome, OutOfMemory
from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.experiments.speed.measure import EXPERIMENT
from ggbench.experiments.speed.record import SpeedResult, SpeedSettings
from ggbench.models.targets import Target
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import decode
from ggbench.runs.stored import read_run
from tests.fakes.engine import FakeWorker, fake_rig, obey
from tests.fakes.recorded import runs_of
from tests.fakes.small_machine import SmallMachine, limited

Answer = Callable[[Request], Iterator[protocol.Message | Ending]]


def speed_job(
    target: Target, inputs: tuple[int, ...], batches: tuple[int, ...] = (1,), n_gen: int = 64, **setup: object
) -> Job:
    settings = SpeedSettings(inputs, n_gen, batches)
    return Job(EXPERIMENT, target, replace(LlamaConfig(), **setup), settings)


def found(run: Run) -> SpeedResult:
    assert isinstance(run.result, SpeedResult)
    return run.result


def outcomes(run: Run) -> dict[tuple[int, int], Outcome]:
    return {(each.case.n_seqs, each.case.n_input): each.ended.outcome for each in found(run).cases}


def measured(worker: FakeWorker) -> list[BatchedDecode]:
    """What the worker was asked to decode, in that order, warm-up left out."""
    return [each for each in worker.requests if isinstance(each, BatchedDecode) and each.n_gen > 1]


def ended_badly(ending: Ending, n_seqs: int, n_prompt: int) -> Answer:
    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, BatchedDecode) and (request.n_seqs, request.n_prompt) == (n_seqs, n_prompt):
            yield ending
        else:
            yield from obey(request)

    return answer


def test_every_case_is_measured_in_a_context_of_its_own(target: Target, store: Store) -> None:
    rig, workers = fake_rig(store)
    (run,) = runs_of(rig, speed_job(target, (512, 1), (4, 1)))
    assert run.outcome is Outcome.COMPLETED
    requests = workers[1].requests
    assert sum(isinstance(each, LoadModel) for each in requests) == 1
    contexts = [each.setup for each in requests if isinstance(each, MakeContext)]
    assert [(each.n_ctx, each.n_seq_max) for each in contexts] == [(256, 1), (1024, 4), (768, 1), (3072, 4)]
    assert measured(workers[1]) == [BatchedDecode(n_input, 64, n_seqs) for n_input in (1, 512) for n_seqs in (1, 4)]
    last = found(run).cases[-1]
    decode_s = 64 * (10 + (512 + 31.5) * 0.02) / 1e3
    assert (last.case.n_seqs, last.case.n_input, last.prefill_ms) == (4, 512, 2048)
    assert (last.prefill_tok_s, last.decode_tok_s) == pytest.approx((1000, 4 * 64 / decode_s), rel=0.001)
    assert last.tok_s_qwen2_5 == pytest.approx(4 * 64 / (2.048 + decode_s), rel=0.001)
    assert last.tok_s_qwen3 == pytest.approx(4 * (512 + 64) / (2.048 + decode_s), rel=0.001)
    assert last.latency is not None and last.latency.tok_s == pytest.approx(64 / decode_s, rel=0.001)
    assert last.ended.memory_bytes is not None


def test_a_case_that_cannot_fit_is_not_tried(target: Target) -> None:
    """Linux overcommits, so a machine without a limit would kill some program instead."""
    machine = SmallMachine(kv_bytes=4096, edge=1 << 30)
    job = Job(EXPERIMENT, target, limited(), SpeedSettings((1, 1 << 20), 64))
    (run,) = runs_of(machine.rig(), job)
    assert list(outcomes(run).values()) == [Outcome.COMPLETED, Outcome.OUT_OF_MEMORY]
    assert "needs 4.12 GiB" in found(run).cases[1].ended.reason
    assert machine.allocated == [256]


@pytest.mark.parametrize(
    ("ending", "outcome", "n_loads"),
    [(OutOfMemory("decode", "failed to allocate"), Outcome.OUT_OF_MEMORY, 1), (Crashed("it died"), Outcome.CRASHED, 1)],
)
def test_a_case_that_ends_badly_leaves_the_others_running(
    target: Target, ending: Ending, outcome: Outcome, n_loads: int
) -> None:
    rig, workers = fake_rig(answers={1: ended_badly(ending, 1, 512)})
    (run,) = runs_of(rig, speed_job(target, (1, 512), (1, 2)))
    assert outcomes(run)[1, 512] is outcome
    assert list(outcomes(run).values()).count(Outcome.COMPLETED) == 3
    assert run.outcome is Outcome.COMPLETED
    loads = [each for worker in workers[1:] for each in worker.requests if isinstance(each, LoadModel)]
    assert len(loads) == (2 if outcome is Outcome.CRASHED else n_loads)


def test_stored_cases_that_were_skipped_can_be_read() -> None:
    """Earlier versions had a time limit."""
    ended = '{"case":{"n_seqs":1,"n_input":6144,"n_gen":8},"outcome":"skipped","reason":"would take about 16 s"}'
    result, problem = decode(f'{{"cases":[{{"ended":{ended}}}]}}', SpeedResult)
    assert result is not None, problem
    assert [each.why for each in result.cases] == ["skipped: would take about 16 s"]


def test_a_model_that_does_not_load_ends_the_run(target: Target) -> None:
    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        yield OutOfMemory("load", "failed to allocate")

    rig, _ = fake_rig(answers={1: answer})
    (run,) = runs_of(rig, speed_job(target, (1,)))
    assert run.outcome is Outcome.OUT_OF_MEMORY
    assert found(run).cases == ()


def test_a_cancelled_run_has_the_cases_that_ended(target: Target, store: Store) -> None:
    """Also as it is read back, as after a kill: what ended, and the line through all steps."""
    cancel = threading.Event()

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        for each in obey(request):
            if isinstance(each, Steps) and isinstance(request, BatchedDecode) and request.n_prompt == 512:
                cancel.set()
            yield each

    rig, _ = fake_rig(store, {1: answer}, cancel)
    (run,) = runs_of(rig, speed_job(target, (1, 512), (1, 4)))
    assert run.outcome is Outcome.CANCELLED
    assert outcomes(run) == {(1, 1): Outcome.COMPLETED, (4, 1): Outcome.COMPLETED}
    assert run.run_id is not None
    stored = replace(store.load_run(run.run_id), result_json=None)
    assert found(read_run(store, stored)) == found(run)
