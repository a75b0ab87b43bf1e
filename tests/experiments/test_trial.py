"""Trials from target to row, with an engine that replays what a worker tells."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.catalog.selector import Target, resolve
from ggbench.engine import protocol
from ggbench.engine.endings import Crashed, Ending, OutOfMemory
from ggbench.engine.logs import parse_allocations
from ggbench.engine.process import WorkerProcess
from ggbench.errors import BadFile, StoreError, UsageError
from ggbench.experiments.progress import Progress, PromptRead, TokensDecoded, TrialFinished, TrialStarted
from ggbench.experiments.rig import Rig
from ggbench.experiments.settings import TrialSettings
from ggbench.experiments.stored import stored_row
from ggbench.experiments.trial import run_trials
from ggbench.gguf_file.header import read_model_file
from ggbench.machine_records import Gpu, GpuProcess, GpuReading, MachineReading
from ggbench.records import Bandwidth, LoadConfig, Outcome, Row
from ggbench.store.database import Store
from ggbench.store.runs import decode, encode
from ggbench.units import MIB
from tests.fakes.engine import FakeEngine, fake_rig, obey

FAKE_WORKER = Path(__file__).parent.parent / "fakes" / "worker.py"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite") as opened:
        yield opened


def rows_of(rig: Rig, targets: list[Target], settings: TrialSettings) -> list[Row]:
    return [record.row for record in run_trials(rig, tuple(targets), settings) if isinstance(record, TrialFinished)]


def test_a_decode_becomes_a_row(target: Target, store: Store, tiny_twin: Path) -> None:
    """Every figure of the row follows from what the worker told, and the store has every sample."""
    rig, engines = fake_rig(store)
    (row,) = rows_of(rig, [target], TrialSettings("decode", n_gen=1000))
    model = read_model_file(tiny_twin)
    assert row.outcome is Outcome.COMPLETED
    assert (row.model, row.quant, row.provenance) == (str(tiny_twin), "q8_0", "twin")
    assert (row.bpw, row.weight_bytes, row.file_bytes) == (model.bpw, model.weight_bytes, tiny_twin.stat().st_size)
    assert (row.kv_bytes, row.compute_bytes, row.n_ctx, row.flash_attn) == (24 * MIB, 30 * MIB, 1280, True)
    assert row.fit is not None
    assert row.fit.w_tokens_per_ms == pytest.approx(200, rel=0.01)
    assert row.fit.b_ms == pytest.approx(10, rel=0.01)
    assert row.prefill_ms == 25  # the median of 25, 26, 27, and of 25 before the warm-up and the decode
    assert row.limit is not None
    assert row.limit.b_ms == pytest.approx(((model.active_weight_bytes or 0) + model.kv_bytes_per_token()) / 20e9 * 1e3)
    assert row.command == f"ggbench decode {tiny_twin} -n 1000 --threads 2"
    assert engines[0].closed
    assert row.run_id is not None
    samples = store.load_samples(row.run_id)
    assert samples.position.tolist() == list(range(26, 1026))
    assert store.load_run(row.run_id).row == row
    assert len(store.load_samples(row.run_id, phase="warmup").step_ns) == 8


def test_batches_are_what_llama_cpp_made_of_them(target: Target, store: Store) -> None:
    """It clamps n_batch to n_ctx and n_ubatch to n_batch; what was asked for stays in the configuration."""

    def clamp(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        for item in obey(request):
            if isinstance(item, protocol.ContextMade):
                item = protocol.ContextMade(item.seconds, 256, n_batch=256, n_ubatch=64)
            yield item

    def refuse(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        yield OutOfMemory("context", "failed to allocate")

    rig, _ = fake_rig(store, {0: clamp, 1: refuse})
    settings = TrialSettings("decode", LoadConfig(n_ubatch=64), n_gen=20)
    made, refused = rows_of(rig, [target, target], settings)
    assert (made.n_batch, made.n_ubatch) == (256, 64)
    assert (made.config.n_batch, made.config.n_ubatch) == (2048, 64)
    assert made.run_id is not None
    assert store.load_run(made.run_id).row == made
    assert (refused.n_batch, refused.n_ubatch) == (None, None)


def test_a_row_that_was_stored_without_its_batches_is_read(target: Target) -> None:
    """They are unknown then, not what was asked for."""
    (row,) = rows_of(fake_rig()[0], [target], TrialSettings("decode", n_gen=20))
    stored = json.loads(encode(row))
    del stored["n_batch"], stored["n_ubatch"]
    read, reason = decode(json.dumps(stored), Row)
    assert (read, reason) == (dataclasses.replace(row, n_batch=None, n_ubatch=None), "")


@pytest.mark.llama
def test_llama_cpp_tells_its_own_batches(target: Target, store: Store) -> None:
    """A context of 256 tokens has no batch of 512."""
    rig = dataclasses.replace(fake_rig(store)[0], launch=WorkerProcess)
    (row,) = rows_of(rig, [target], TrialSettings("prefill", LoadConfig(threads=1), prefill_lengths=(8,)))
    assert (row.n_ctx, row.n_batch, row.n_ubatch) == (256, 256, 256)


def test_repetitions_are_fitted_together_and_stored_apart(target: Target, store: Store) -> None:
    """Each repetition starts again from the first position."""
    rig, _ = fake_rig(store)
    (row,) = rows_of(rig, [target], TrialSettings("decode", n_gen=300, repeat=3))
    assert row.n_gen == 900
    assert row.run_id is not None
    samples = store.load_samples(row.run_id)
    assert samples.repeat.tolist() == [0] * 300 + [1] * 300 + [2] * 300
    assert samples.position.tolist() == list(range(26, 326)) * 3


def test_prompt_lengths_are_timed_from_medians(target: Target) -> None:
    """One timing for each length, by rising length, and no decode."""
    rig, engines = fake_rig()
    (row,) = rows_of(rig, [target], TrialSettings("prefill", prefill_lengths=(512, 1), repeat=3))
    assert [(speed.n_prompt, speed.prefill_ms, speed.repeat) for speed in row.prefills] == [(1, 2, 3), (512, 513, 3)]
    assert row.prefills[1].tok_s == pytest.approx(512 / 0.513)
    assert row.fit is None
    assert not any(isinstance(request, protocol.Decode) for request in engines[0].requests)
    assert row.n_ctx == 512


def crash_in_decode(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
    if isinstance(request, protocol.Decode) and request.phase == "decode":
        yield protocol.Decoded("decode", 26, [10_000_000] * 20, [1] * 20)
        yield Crashed(-11, ("last words",))
    else:
        yield from obey(request)


def refuse_context(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
    if isinstance(request, protocol.MakeContext):
        yield OutOfMemory("context", "failed to allocate")
    else:
        yield from obey(request)


def test_a_crash_is_a_row_with_a_reason_and_the_sweep_goes_on(target: Target, store: Store) -> None:
    """What was measured before the crash is kept; the next trial has a worker of its own."""
    rig, engines = fake_rig(store, {0: crash_in_decode, 1: refuse_context})
    crashed, refused, good = rows_of(rig, [target] * 3, TrialSettings("bench", n_gen=300))
    assert crashed.outcome is Outcome.CRASHED
    assert crashed.reason == "the worker was ended by SIGSEGV: last words"
    assert (crashed.n_gen, crashed.latency is not None) == (20, True)
    assert refused.outcome is Outcome.OUT_OF_MEMORY
    assert (refused.kv_bytes, refused.n_ctx, refused.fit) == (None, None, None)
    assert good.outcome is Outcome.COMPLETED
    assert [engine.closed for engine in engines] == [True] * 3
    assert {run.state for run in store.list_runs()} == {"crashed", "out_of_memory", "completed"}


def test_a_crash_in_amx_code_names_the_way_out(target: Target) -> None:
    """llama.cpp issue 20824: a person learns that it is a known fault and which build avoids it."""

    def crash(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        if isinstance(request, protocol.Prefill):
            yield Crashed(-11, ())
        else:
            yield protocol.Log(2, "load_tensors:          AMX model buffer size =   525.32 MiB")
            yield from obey(request)

    rig, _ = fake_rig(answers={0: crash})
    (row,) = rows_of(rig, [target], TrialSettings("decode", n_gen=10))
    assert "AMX" in row.reason
    assert "./scripts/ggbench" in row.reason


def test_a_file_that_cannot_be_read_is_a_row(target: Target, tmp_path: Path) -> None:
    """A broken file in a sweep has a row with its reason and the error for who runs it alone."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"")
    rig, engines = fake_rig()
    records = list(run_trials(rig, (resolve(str(broken))[0], target), TrialSettings("bench", n_gen=10)))
    first, second = (record for record in records if isinstance(record, TrialFinished))
    assert isinstance(first.error, BadFile)
    assert first.row.outcome is Outcome.FAILED
    assert first.row.reason == first.error.message
    assert second.row.outcome is Outcome.COMPLETED
    assert len(engines) == 1


def test_cancelling_keeps_what_was_measured_and_starts_nothing_else(target: Target, store: Store) -> None:
    """The running trial ends in a row of what it has."""
    cancel = threading.Event()
    rig, engines = fake_rig(store, cancel=cancel)
    records: list[Progress] = []
    for record in run_trials(rig, (target, target), TrialSettings("bench", n_gen=1000)):
        records.append(record)
        if isinstance(record, TokensDecoded) and record.n_done == 500:
            cancel.set()
    (finished,) = (record for record in records if isinstance(record, TrialFinished))
    assert finished.row.outcome is Outcome.CANCELLED
    assert finished.row.n_gen == 500
    assert sum(isinstance(record, TrialStarted) for record in records) == 1
    assert len(engines) == 1
    assert engines[0].closed


def test_dropping_the_generator_closes_the_worker_and_keeps_the_samples(target: Target, store: Store) -> None:
    """A front end that goes away in the middle leaves no worker and loses no sample."""
    rig, engines = fake_rig(store)
    trials = run_trials(rig, (target,), TrialSettings("decode", n_gen=1000))
    for record in trials:
        if isinstance(record, TokensDecoded) and record.n_done == 500:
            break
    trials.close()
    assert engines[0].closed
    (run,) = store.list_runs()
    assert run.n_samples == 500


def test_an_interrupted_run_is_shown_from_its_samples(target: Target, tmp_path: Path) -> None:
    """Nobody made the row of a run that was killed; it is made from what the store kept."""
    path = tmp_path / "killed.sqlite"
    with Store.open(path) as first:
        rig, _ = fake_rig(first)
        trials = run_trials(rig, (target,), TrialSettings("decode", n_gen=1000))
        next(record for record in trials if isinstance(record, TokensDecoded) and record.n_done == 500)
        trials.close()
    with Store.open(path) as second:
        (summary,) = second.list_runs()
        row = stored_row(second, second.load_run(summary.run_id))
    assert (summary.state, row.outcome) == ("interrupted", Outcome.INTERRUPTED)
    assert row.n_gen == 500
    assert row.fit is not None
    assert row.fit.b_ms == pytest.approx(10, rel=0.02)


class FullDisk:
    """A store that takes so many writes and then no more."""

    def __init__(self, store: Store, n_writes: int) -> None:
        self._store, self._left = store, n_writes

    def __getattr__(self, name: str) -> object:
        if self._left == 0:
            raise StoreError("the disk is full", "make room")
        self._left -= 1
        return getattr(self._store, name)


@pytest.mark.parametrize("n_writes", [0, 1, 3, 8])
def test_a_store_that_fails_costs_no_measurement(target: Target, store: Store, n_writes: int) -> None:
    """Every trial of the sweep ends in a whole row, and says that the store does not have it."""
    rig, _ = fake_rig(FullDisk(store, n_writes))  # type: ignore[arg-type]
    records = list(run_trials(rig, (target, target), TrialSettings("bench", n_gen=500)))
    finished = [record for record in records if isinstance(record, TrialFinished)]
    assert [record.row.outcome for record in finished] == [Outcome.COMPLETED] * 2
    assert [record.row.n_gen for record in finished] == [500, 500]
    assert any(record.store_error for record in finished)


def test_an_interrupted_prefill_is_shown_by_its_lengths(target: Target, tmp_path: Path) -> None:
    """Each length has its own median; there is no prompt of 25 that nobody read."""
    path = tmp_path / "killed.sqlite"
    with Store.open(path) as first:
        rig, _ = fake_rig(first)
        trials = run_trials(rig, (target,), TrialSettings("prefill", prefill_lengths=(1, 512), repeat=2))
        for record in trials:
            if isinstance(record, PromptRead) and record.n_prompt == 512:
                break
        trials.close()
    with Store.open(path) as second:
        row = stored_row(second, second.load_run(second.list_runs()[0].run_id))
    assert [(speed.n_prompt, speed.repeat) for speed in row.prefills] == [(1, 2), (512, 1)]
    assert (row.prefill_ms, row.n_prompt) == (None, None)


def test_a_log_before_the_worker_is_ready_does_not_hide_who_measures(target: Target, store: Store) -> None:
    """A CUDA build logs its devices while it starts."""

    class Chatty(FakeEngine):
        def call(self, request: protocol.Request) -> Iterator[protocol.Event | Ending]:
            if not self.requests:
                yield protocol.Log(2, "ggml_cuda_init: found 1 CUDA devices")
            yield from super().call(request)

    rig, _ = fake_rig(store)
    trials = run_trials(dataclasses.replace(rig, launch=Chatty), (target,), TrialSettings("decode", n_gen=100))
    next(record for record in trials if isinstance(record, TokensDecoded))
    trials.close()
    (summary,) = store.list_runs()
    assert store.load_run(summary.run_id).start.environment is not None


GPU = Gpu(0, "Card", "GPU-1", "00000000:41:00.0", 24 << 30, 23 << 30, 384, 10501, "580")
WORKER_PID = 1
"""Of the stand-in for the worker."""
CUDA = "using device CUDA0 (NVIDIA Card (x)) (0000:41:00.0) - 23000 MiB free"


@pytest.mark.parametrize(
    ("lines", "bandwidth"),
    [
        ([CUDA, "CUDA0 model buffer size = 4000.00 MiB", "load_tensors: offloaded 33/33 layers to GPU"], 1008.096e9),
        ([CUDA, "CUDA0 model buffer size = 4000.00 MiB", "load_tensors: offloaded 20/33 layers to GPU"], None),
        (["CUDA1 model buffer size = 4000.00 MiB", "load_tensors: offloaded 33/33 layers to GPU"], None),
        (["CPU_Mapped model buffer size = 4000.00 MiB"], 20e9),
    ],
)
def test_the_bandwidth_is_that_of_the_memory_where_the_weights_are(lines: list[str], bandwidth: float | None) -> None:
    """Of the GPU at the bus id that llama.cpp names, of main memory, and of neither where the weights are in both."""
    rig, _ = fake_rig()
    env = dataclasses.replace(rig.describe_environment("", "", ""), gpus=(GPU,))
    found = rig.bandwidth_of(parse_allocations(f"load_tensors: {line}" for line in lines), env)
    assert (found and found.bytes_per_s) == (bandwidth and pytest.approx(bandwidth))


@pytest.mark.parametrize(
    "settings",
    [
        {"n_gen": -1},
        {"n_gen": 1, "repeat": 0},
        {"prefill_lengths": (0,)},
        {"n_gen": 10, "config": LoadConfig(n_ctx=34)},
        {"prefill_lengths": (512,), "config": LoadConfig(n_ctx=511)},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object]) -> None:
    """They are refused before anything is loaded."""
    with pytest.raises(UsageError):
        TrialSettings("decode", **settings)  # type: ignore[arg-type]


def test_the_context_is_just_enough() -> None:
    """In whole steps of 256, unless it is given."""
    assert TrialSettings("decode", n_gen=10_000).n_ctx == 10_240
    assert TrialSettings("decode", n_gen=231).n_ctx == 256
    assert TrialSettings("decode", n_gen=232).n_ctx == 512
    assert TrialSettings("decode", LoadConfig(n_ctx=1000), n_gen=10).n_ctx == 1000


def test_the_command_names_every_option_that_is_not_the_default(target: Target) -> None:
    """A row can be measured again by its line alone."""
    config = LoadConfig(type_k="q8_0", tensor_split=(3.0, 1.0), memory_limit_bytes=1 << 30, n_gpu_layers=12)
    settings = TrialSettings("decode", config, n_gen=10, repeat=2)
    named = dataclasses.replace(target, path=Path("/models/a b.gguf"))
    assert settings.command_for(named, Bandwidth(1008e9, "given")) == (
        "ggbench decode '/models/a b.gguf' -n 10 --repeat 2 --bandwidth 1008GB/s --type-k q8_0 --n-gpu-layers 12"
        " --tensor-split 3,1 --memory-limit 1GiB"
    )
    twin = resolve("synth:qwen1.5-0.5b", ["q4_0"])[0]
    assert settings.command_for(twin).startswith("ggbench decode synth:qwen1.5-0.5b q4_0 -n 10")


@pytest.mark.parametrize(
    ("cue", "outcome", "reason"),
    [
        ("abort", Outcome.CRASHED, "SIGABRT: GGML_ASSERT(something) failed"),
        ("garbage", Outcome.CRASHED, "not an event"),
        ("hang", Outcome.TIMED_OUT, "no sign of life"),
        ("exit", Outcome.CRASHED, "exit status 7"),
        ("refuse", Outcome.FAILED, "load failed: unknown architecture"),
    ],
)
def test_a_worker_that_misbehaves_is_a_row(
    target: Target, store: Store, cue: str, outcome: Outcome, reason: str
) -> None:
    """A real child process that aborts, hangs or writes garbage ends in a row that says so, and in the store."""

    def launch(cancel: threading.Event) -> WorkerProcess:
        timeout_s = 0.5 if cue == "hang" else 60.0  # a busy machine takes longer to start Python
        return WorkerProcess(cancel, timeout_s, command=(sys.executable, str(FAKE_WORKER), cue))

    rig, _ = fake_rig(store)
    (row,) = rows_of(dataclasses.replace(rig, launch=launch), [target], TrialSettings("decode", n_gen=10))
    assert row.outcome is outcome
    assert reason in row.reason
    assert [run.state for run in store.list_runs()] == [outcome.value]


def test_readings_beside_a_run_are_stored_and_told(target: Target, store: Store) -> None:
    """A thread reads the machine while the worker decodes; the row has what its GPU did and what else held memory."""
    taken = threading.Semaphore(0)
    energies = itertools.count(0, 1000)

    def read_machine() -> MachineReading:
        reading = MachineReading(
            time.time_ns(),
            None,
            1,
            2,
            (
                GpuReading(
                    0,
                    "Card",
                    sm_clock_mhz=1900,
                    power_w=250,
                    energy_mj=next(energies),
                    throttle=("sw_power_cap",),
                    processes=(
                        GpuProcess(WORKER_PID, "python", 640 << 20),
                        GpuProcess(911, "/usr/bin/desktop", 300 << 20),
                    ),
                ),
            ),
        )
        taken.release()
        return reading

    def decode_beside_readings(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        if isinstance(request, protocol.LoadModel):
            yield protocol.Log(2, f"load_tensors: {CUDA}")
            yield protocol.Log(2, "load_tensors:        CUDA0 model buffer size =   100.00 MiB")
        for event in obey(request):
            yield event
            if isinstance(event, protocol.Decoded) and event.phase == "decode":
                for _ in range(4):
                    assert taken.acquire(timeout=10)

    rig, _ = fake_rig(store, {0: decode_beside_readings})
    env = dataclasses.replace(rig.describe_environment("", "", ""), gpus=(GPU,))
    rig = dataclasses.replace(
        rig, read_machine=read_machine, reading_interval_s=0.001, describe_environment=lambda *_: env
    )

    (row,) = rows_of(rig, [target], TrialSettings("decode", n_gen=300))

    assert row.gpu_use is not None
    assert row.gpu_use.n_readings > 0
    assert (row.gpu_use.sm_clock_min_mhz, row.gpu_use.power_mean_w) == (1900, 250)
    assert row.gpu_use.energy_per_token_mj is not None
    assert row.gpu_use.other_processes == (GpuProcess(911, "/usr/bin/desktop", 300 << 20),)
    assert (row.gpu_use.worker_bytes, row.other_bytes) == (640 << 20, 540 << 20)
    assert "sw_power_cap" in row.unsteady
    assert row.run_id is not None
    stored = store.load_readings(row.run_id)
    assert len(stored) >= row.gpu_use.n_readings
    assert [reading.at_ns for reading in stored] == sorted(reading.at_ns for reading in stored)
    assert store.load_run(row.run_id).row == row


def test_who_holds_the_memory_is_told_with_an_out_of_memory(target: Target) -> None:
    """A person learns which program to close; readings of a machine without a GPU add nothing."""

    def no_room(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        yield protocol.Log(2, f"load_tensors: {CUDA}")
        yield OutOfMemory("load", "cudaMalloc failed: out of memory")

    desktop = GpuProcess(911, "/usr/bin/desktop", 300 << 20)
    for gpus, told in (((GpuReading(0, "Card", processes=(desktop,)),), True), ((), False)):
        readings = itertools.repeat(MachineReading(1, None, 1, 2, gpus))
        rig, _ = fake_rig(answers={0: no_room})
        environments = itertools.repeat(dataclasses.replace(rig.describe_environment("", "", ""), gpus=(GPU,)))
        rig = dataclasses.replace(
            rig, read_machine=readings.__next__, describe_environment=lambda *_, made=environments: next(made)
        )

        (row,) = rows_of(rig, [target], TrialSettings("decode", n_gen=300))

        assert row.outcome is Outcome.OUT_OF_MEMORY
        assert row.reason.endswith("GPU memory is held by desktop (pid 911, 300.0 MiB)") is told


def test_a_machine_that_cannot_be_read_costs_no_measurement(target: Target, store: Store) -> None:
    """The run goes on without readings."""

    def fail() -> MachineReading:
        raise OSError("no /proc here")

    rig, _ = fake_rig(store)
    (row,) = rows_of(dataclasses.replace(rig, read_machine=fail), [target], TrialSettings("decode", n_gen=300))

    assert (row.outcome, row.gpu_use) == (Outcome.COMPLETED, None)
    assert row.run_id is not None and store.load_readings(row.run_id) == ()
