"""Decodes and prefills from target to result, with a worker that replays what llama.cpp reports."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import BatchedDecode, Decode, DecodeAtDepth, Prefill, Request
from ggbench.engines.endings import Cancelled, Crashed, Ending, Failed, Outcome
from ggbench.engines.events import Steps
from ggbench.engines.http.endpoint import EndpointConfig
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.errors import UsageError
from ggbench.experiments.decode.measure import EXPERIMENT as DECODE
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.gguf_file.header import read_model_file
from ggbench.models.targets import Target
from ggbench.runs.experiment import Job
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.units import MIB
from tests.fakes.engine import fake_rig, obey
from tests.fakes.recorded import PLAIN, decode_job, decoded, prefill_job, prefilled, runs_of


def test_a_decode_becomes_a_run(target: Target, store: Store, tiny_twin: Path) -> None:
    rig, workers = fake_rig(store)
    (run,) = runs_of(rig, decode_job(target, 1000))
    model, result, subject = read_model_file(tiny_twin), decoded(run), run.subject
    assert run.outcome is Outcome.COMPLETED
    assert (subject.model, subject.quant, subject.source) == (str(tiny_twin), "q8_0", "twin")
    assert (subject.bpw, subject.weight_bytes) == (model.bpw, model.weight_bytes)
    assert (subject.file_bytes, subject.header_sha256) == (tiny_twin.stat().st_size, model.header_sha256)
    memory = run.memory
    assert (memory.kv_bytes, memory.compute_bytes, memory.n_ctx) == (24 * MIB, 30 * MIB, 1280)
    assert memory.flash_attn
    assert result.fit is not None
    assert result.fit.w_tokens_per_ms == pytest.approx(200, rel=0.01)
    assert result.fit.b_ms == pytest.approx(10, rel=0.01)
    assert result.prefill_ms == 25  # the median of 25, 26, 27, and of 25 before the warm-up and the decode
    assert result.limit is not None
    b_ms = ((model.active_weight_bytes or 0) + model.kv_bytes_per_token()) / 20e9 * 1e3
    assert result.limit.b_ms == pytest.approx(b_ms)
    assert result.b_ratio == pytest.approx(b_ms / 10, rel=0.01)
    assert result.w_ratio == pytest.approx(200 / (20e9 / model.kv_bytes_per_token() / 1e3), rel=0.01)
    assert run.head.command == f"ggbench decode {tiny_twin} -n 1000 --threads 2"
    assert workers[0].closed
    assert run.run_id is not None
    assert store.load_samples(run.run_id).position.tolist() == list(range(26, 1026))
    assert sum(len(each.step_ns) for each in store.load_chunks(run.run_id)) == 8 + 1000 + 12 * 24


def test_a_decode_reads_its_prompt_and_warms_up_before_anything_is_timed(target: Target) -> None:
    rig, workers = fake_rig()
    runs_of(rig, decode_job(target, 100, repeat=2))
    load, context, *workloads = workers[0].requests
    assert isinstance(load, LoadModel)
    assert isinstance(context, MakeContext)
    assert workloads == [Prefill(25, 3, 1), Decode(25, 8), Decode(25, 100), Decode(25, 100)]


def test_a_long_decode_times_three_depths_again(target: Target, store: Store) -> None:
    """Only they tell the context from the machine, so W has an interval; they are not among the run's steps."""
    rig, workers = fake_rig(store)
    (run,) = runs_of(rig, decode_job(target, 3000))
    again = workers[0].requests[5:]
    assert [type(each) for each in again] == [DecodeAtDepth] * 12
    result = decoded(run)
    assert result.fit is not None and result.fit.w_ci95 is not None and result.latency is not None
    low, high = result.fit.w_ci95
    assert low < 200.1 and high is not None and high > 199.9
    assert (result.n_gen, result.unsteady) == (3000, "")
    assert run.run_id is not None
    assert store.load_samples(run.run_id).lengths == {"decode/p25/b1/r0": 3000}
    assert read_run(store, store.load_run(run.run_id)).result == result


def test_a_machine_that_slows_down_is_marked_and_w_is_that_of_the_depths_timed_again(target: Target) -> None:
    def slowing(request: Request) -> Iterator[protocol.Message | Ending]:
        for item in obey(request):
            if isinstance(request, Decode) and isinstance(item, Steps):
                steps = enumerate(item.step_ns, item.first_position)
                item = Steps(item.first_position, [ns + 2000 * n for n, ns in steps], [])
            yield item

    rig, _ = fake_rig(answers={0: slowing})
    (run,) = runs_of(rig, decode_job(target, 3000))
    result = decoded(run)
    assert result.fit is not None and result.fit.has_changed and run.unsteady
    assert result.fit.w_tokens_per_ms == pytest.approx(200, rel=0.001)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Failed("decode", "no cells"), Outcome.COMPLETED), (Crashed("gone"), Outcome.COMPLETED),
        (Cancelled(), Outcome.CANCELLED),
    ],
)  # fmt: skip
def test_a_run_is_kept_where_its_depths_cannot_be_timed_again(target: Target, ending: Ending, outcome: Outcome) -> None:
    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        yield from [ending] if isinstance(request, DecodeAtDepth) else obey(request)

    rig, _ = fake_rig(answers={0: answer})
    (run,) = runs_of(rig, decode_job(target, 3000))
    result = decoded(run)
    assert (run.outcome, result.n_gen) == (outcome, 3000)
    assert result.fit is not None and result.fit.w_tokens_per_ms == pytest.approx(200, rel=0.01)
    assert (result.fit.w_ci95, result.fit.b_ci95) == (None, None)


def test_repetitions_are_fitted_together_and_stored_apart(target: Target, store: Store) -> None:
    rig, _ = fake_rig(store)
    (run,) = runs_of(rig, decode_job(target, 300, repeat=3))
    assert decoded(run).n_gen == 900
    assert run.run_id is not None
    samples = store.load_samples(run.run_id)
    assert samples.lengths == {f"decode/p25/b1/r{number}": 300 for number in range(3)}
    assert samples.position.tolist() == list(range(26, 326)) * 3


def at_depths(target: Target, *depths: int, n_gen: int = 128, repeat: int = 1) -> Job:
    return Job(DECODE, target, PLAIN, DecodeSettings(n_gen, repeat=repeat, depths=depths))


def test_a_decode_at_depths_times_a_window_behind_each(target: Target, store: Store) -> None:
    rig, workers = fake_rig(store)
    (run,) = runs_of(rig, at_depths(target, 0, 4096, repeat=8))
    result = decoded(run)
    first, last = DecodeAtDepth(0, 128), DecodeAtDepth(4095, 128)
    turns = [first, last] * 2 + [last, first] * 4 + [first, last] * 2
    assert workers[0].requests[2:] == [DecodeAtDepth(0, 8), *turns]
    assert (run.memory.n_ctx, result.n_prompt, result.n_gen) == (4352, 0, 2048)
    assert [(each.n_depth, each.n_gen, each.repeat) for each in result.depths] == [(0, 128, 8), (4096, 128, 8)]
    for each, mean_ms in zip(result.depths, (10 + 64.5 / 200, 10 + (4096 + 63.5) / 200), strict=True):
        assert each.tok_s == pytest.approx(1e3 / mean_ms)
        assert each.tok_s_ci95 is not None
        assert each.tok_s_ci95[0] <= each.tok_s
    assert result.fit is not None
    assert result.fit.w_tokens_per_ms == pytest.approx(200)
    assert result.fit.w_ci95 is not None
    assert " -n 128 --repeat 8 --n-depth 0,4096 " in run.head.command
    assert run.run_id is not None
    samples = store.load_samples(run.run_id)
    assert samples.position.tolist()[:256] == [*range(2, 130), *range(4097, 4225)]
    assert list(samples.lengths)[1:3] == ["decode/d4096/b1/r0", "decode/d0/b1/r1"]


def test_one_depth_has_a_speed_and_no_line(target: Target) -> None:
    (run,) = runs_of(fake_rig()[0], at_depths(target, 1024))
    result = decoded(run)
    assert (result.fit, [each.n_depth for each in result.depths]) == (None, [1024])


def test_several_users_decode_in_one_batch(target: Target, store: Store) -> None:
    """The worker's W is 200 tokens/ms for one sequence; a step of four reads four caches."""
    rig, workers = fake_rig(store)
    settings = DecodeSettings(2300, repeat=2, n_seqs=4)
    (run,) = runs_of(rig, Job(DECODE, target, PLAIN, settings))
    _, context, *workloads = workers[0].requests
    assert isinstance(context, MakeContext)
    assert (context.setup.n_ctx, context.setup.n_seq_max) == (settings.n_ctx_needed, 4) == (4 * 2560, 4)
    assert workloads == [BatchedDecode(25, 8, 4), BatchedDecode(25, 2300, 4), BatchedDecode(25, 2300, 4)]
    result = decoded(run)
    assert result.fit is not None and result.limit is not None and result.latency is not None
    assert result.fit.w_tokens_per_ms == pytest.approx(50, rel=0.02)
    assert target.path is not None
    per_token = read_model_file(target.path).kv_bytes_per_token()
    assert result.limit.w_tokens_per_ms == pytest.approx(20e9 / per_token / 4e3)
    assert (result.n_seqs, result.n_gen, result.prefill_ms) == (4, 4600, 100)
    assert result.tok_s_together == pytest.approx(4 * result.latency.tok_s)
    assert " -n 2300 --repeat 2 --parallel 4 " in run.head.command
    assert DECODE.speed_of(run) is None
    speed = DECODE.speed_of(run, 4)
    assert speed is not None and speed.reach == 2325
    assert run.run_id is not None
    assert read_run(store, store.load_run(run.run_id)).result == result


def test_users_that_cannot_be_are_one_line(target: Target) -> None:
    for settings, setup, message in (
        ({"n_seqs": 4, "depths": (0,)}, {}, "--n-depth fills the cache of one sequence"),
        ({"n_seqs": 9}, {"n_batch": 8}, "a step of 9 sequences does not fit into an n_batch of 8"),
        ({"n_seqs": 4}, {"n_ctx": 1000}, "n_ctx 1000 is too small for the 2048 tokens"),
        ({}, {"kv_unified": True}, "--kv-unified shares one KV cache among several slots"),
    ):
        with pytest.raises(UsageError, match=message):
            Job(DECODE, target, LlamaConfig(**setup), DecodeSettings(300, **settings))


def test_only_llama_cpp_decodes_at_a_depth(target: Target) -> None:
    for other in (TransformersConfig(), EndpointConfig("http://127.0.0.1:8080")):
        with pytest.raises(UsageError, match="cannot decode at a depth"):
            Job(DECODE, target, other, DecodeSettings(8, depths=(1024,)))
    assert DecodeSettings.of_options(depths=(0,)).n_gen == 128
    assert DecodeSettings.of_options(depths=(0,), n_gen=10_000).n_gen == DecodeSettings.of_options().n_gen == 10_000


def test_prompt_lengths_are_timed_from_medians(target: Target) -> None:
    rig, workers = fake_rig()
    (run,) = runs_of(rig, prefill_job(target, 512, 1))
    prefills = prefilled(run).prefills
    assert [(speed.n_prompt, speed.prefill_ms, speed.repeat) for speed in prefills] == [(1, 2, 3), (512, 513, 3)]
    assert prefills[1].tok_s == pytest.approx(512 / 0.513)
    assert workers[0].requests[2:] == [Prefill(512, 3, 1), Prefill(1, 3, 1)]
    assert run.memory.n_ctx == 512
    assert run.head.command.startswith(f"ggbench prefill {target.path} --lengths 512,1 --repeat 3")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda target: decode_job(target, 0), id="no token"),
        pytest.param(lambda target: decode_job(target, 1, repeat=0), id="no repetition"),
        pytest.param(lambda target: prefill_job(target, 0), id="no prompt"),
        pytest.param(lambda target: decode_job(target, 10, LlamaConfig(n_ctx=34)), id="one token short"),
        pytest.param(lambda target: prefill_job(target, 512, setup=LlamaConfig(n_ctx=511)), id="a prompt too long"),
        pytest.param(lambda target: decode_job(target, 1 << 31), id="beyond any context"),
    ],
)
def test_what_cannot_be_measured(target: Target, make: Callable[[Target], object]) -> None:
    with pytest.raises(UsageError):
        make(target)
