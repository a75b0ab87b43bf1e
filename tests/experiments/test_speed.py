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
from ggbench.errors import UsageError
from ggbench.experiments.speed.measure import EXPERIMENT, run_within
from ggbench.experiments.speed.record import SpeedResult, SpeedSettings
from ggbench.gguf_file.header import read_model_file
from ggbench.models.targets import Target
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.limits import decode_line
from ggbench.sizing.theory.weights import file_weights
from ggbench.units import MIB
from tests.fakes.engine import FakeWorker, fake_rig, obey
from tests.fakes.recorded import runs_of

Answer = Callable[[Request], Iterator[protocol.Message | Ending]]


def speed_job(
    target: Target,
    inputs: tuple[int, ...],
    batches: tuple[int, ...] = (1,),
    n_gen: int = 64,
    within_s: float | None = None,
    **setup: object,
) -> Job:
    settings = SpeedSettings(inputs, n_gen, batches, within_s)
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
    assert (last.case.n_seqs, last.case.n_input, last.prefill_ms, last.ttft_ms) == (4, 512, 2048, 2048.05)
    assert last.prefill_tok_s == pytest.approx(1000)
    assert last.token_ms == pytest.approx(10 + (512 + 31.5) * 0.02, rel=0.001)
    assert last.ended.memory is not None
    assert (last.ended.memory.kv_bytes, last.ended.memory.compute_bytes) == (24 * MIB, 30 * MIB)
    one, four = found(run).lines
    assert (one.n_seqs, four.n_seqs) == (1, 4)
    assert one.fit is not None
    assert four.fit is not None
    assert one.fit.w_tokens_per_ms == pytest.approx(200, rel=0.02)
    assert four.fit.w_tokens_per_ms == pytest.approx(50, rel=0.02)


def test_the_limit_of_a_batch_reads_weights_once_and_every_cache(target: Target) -> None:
    rig, _ = fake_rig()
    (run,) = runs_of(rig, speed_job(target, (1,), (1, 4)))
    assert target.path is not None
    file = read_model_file(target.path)
    for line in found(run).lines:
        expected = decode_line(file_weights(file, ""), kv_cache(file), 20e9, line.n_seqs)
        assert line.limit is not None
        assert (line.limit.w_tokens_per_ms, line.limit.b_ms) == pytest.approx(expected)


def test_a_case_that_takes_too_long_is_a_row_with_its_expected_time(target: Target) -> None:
    rig, workers = fake_rig()
    (run,) = runs_of(rig, speed_job(target, (1, 30720), (1, 2), within_s=30))
    assert run.outcome is Outcome.COMPLETED
    assert outcomes(run) == {
        (1, 1): Outcome.COMPLETED, (1, 30720): Outcome.SKIPPED, (2, 1): Outcome.COMPLETED, (2, 30720): Outcome.SKIPPED
    }  # fmt: skip
    skipped = {each.case.n_seqs: each.ended for each in found(run).cases if each.case.n_input == 30720}
    for n_seqs, ended in skipped.items():
        expected_s = 30.72 * n_seqs + 64 * (0.010 + n_seqs * 30752 * 5e-6)
        assert ended.expected_s == pytest.approx(expected_s, rel=0.01)
    assert skipped[1].reason == "would take about 0:41, but only 0:30 of 0:30 are left"
    assert skipped[1].memory is not None
    assert not any(each.n_prompt == 30720 for each in measured(workers[1]))


def test_a_batch_too_large_to_try_leaves_time_for_the_others(target: Target) -> None:
    rig, workers = fake_rig()
    (run,) = runs_of(rig, speed_job(target, (1,), (1, 256), within_s=10))
    assert [each.n_seqs for each in measured(workers[1]) if each.n_prompt == 16] == [1]
    assert outcomes(run)[1, 1] == Outcome.COMPLETED


@pytest.mark.parametrize(
    ("ending", "outcome", "n_loads"),
    [(OutOfMemory("decode", "failed to allocate"), Outcome.OUT_OF_MEMORY, 1), (Crashed(-11, ()), Outcome.CRASHED, 1)],
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


def test_a_model_that_does_not_load_ends_the_run(target: Target) -> None:
    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        yield OutOfMemory("load", "failed to allocate")

    rig, _ = fake_rig(answers={1: answer})
    (run,) = runs_of(rig, speed_job(target, (1,), within_s=600))
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


def test_the_time_is_shared_out_among_quants(target: Target) -> None:
    """Half each, as almost none is used; the command of each says how much it had."""
    rig, _ = fake_rig()
    jobs = [speed_job(target, (1,), within_s=100)] * 2
    runs = [each.run for each in run_within(rig, jobs) if isinstance(each, Finished)]
    settings = [run.head.settings for run in runs]
    assert [each.within_s for each in settings if isinstance(each, SpeedSettings)] == [50, pytest.approx(100, abs=2)]
    assert "--within 50s" in runs[0].head.command


@pytest.mark.parametrize(
    ("inputs", "batches", "setup", "message"),
    [
        ((0,), (1,), {}, "an input length is 0"),
        ((1,), (-1,), {}, "a batch size is -1"),
        ((1,), (257,), {}, "a batch of 257 sequences is more than llama.cpp supports"),
        ((), (1,), {}, "there is nothing to measure"),
        ((1,), (1, 8), {"n_batch": 4}, "a step of 8 sequences does not fit into an n_batch of 4"),
        ((1,), (1,), {"n_ctx": 512}, "speed sizes the context for each case"),
    ],
)
def test_numbers_that_make_no_case(
    target: Target, inputs: tuple[int, ...], batches: tuple[int, ...], setup: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        speed_job(target, inputs, batches, **setup)
    assert raised.value.message == message
