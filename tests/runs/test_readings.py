"""Readings of the machine beside a run: what its GPUs did, and who else held their memory."""

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Decode, Prefill, Request
from ggbench.engines.endings import Ending, Outcome, OutOfMemory
from ggbench.engines.events import DeviceBuffers, MemoryKind, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.logs import parse_allocations
from ggbench.machine.readings import MachineReader, moment_ns
from ggbench.machine.records import GpuProcess, GpuReading, MachineReading
from ggbench.models.targets import Target
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_recording, read_run
from ggbench.stats.decode_timing import Bandwidth
from tests.fakes.engine import CUDA, PLACES, WORKER_PID, fake_rig, obey, on_gpu, with_gpu
from tests.fakes.recorded import decode_job, decoded, prefill_job, runs_of

DESKTOP = GpuProcess(911, "/usr/bin/desktop", 300 << 20)


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
    rig = with_gpu(fake_rig()[0])
    allocated = parse_allocations(
        [f"load_tensors: {line}" for line in lines], PLACES.places | {"CUDA1": MemoryKind.GPU}
    )
    found = rig.bandwidth_of(allocated, rig.describe_environment({}))
    assert (found and found.bytes_per_s) == (bandwidth and pytest.approx(bandwidth))


def test_readings_beside_a_run_are_stored_and_reported(target: Target, store: Store) -> None:
    taken = threading.Semaphore(0)
    energies = itertools.count(0, 1000)

    def read_machine() -> MachineReading:
        card = GpuReading(
            0, "Card", sm_clock_mhz=1900, power_w=250, energy_mj=next(energies), throttle=("sw_power_cap",),
            processes=(GpuProcess(WORKER_PID, "python", 640 << 20), DESKTOP),
        )  # fmt: skip
        taken.release()
        return MachineReading(time.time_ns(), None, 1, 2, (card,))

    def decode_beside_readings(request: Request) -> Iterator[protocol.Message | Ending]:
        for event in on_gpu(request):
            yield event
            if isinstance(event, Steps) and isinstance(request, Decode) and request.n_gen > 8:
                while taken.acquire(blocking=False):
                    pass  # those from before these steps
                for _ in range(2):
                    assert taken.acquire(timeout=10)

    rig = with_gpu(fake_rig(store, {0: decode_beside_readings})[0])
    (run,) = runs_of(replace(rig, read_machine=read_machine, reading_interval_s=0.001), decode_job(target, 300))

    use = run.gpu_use
    assert use is not None
    assert use.n_readings > 0
    assert (use.sm_clock_min_mhz, use.power_mean_w) == (1900, 250)
    assert use.energy_per_token_mj is not None
    assert use.other_processes == (DESKTOP,)
    assert (use.worker_bytes, run.memory.other_bytes) == (640 << 20, 540 << 20)
    assert "sw_power_cap" in run.unsteady
    assert run.run_id is not None
    stored = store.load_run(run.run_id)
    readings = read_recording(store, stored).readings
    assert len(readings) >= use.n_readings
    assert [reading.at_ns for reading in readings] == sorted(reading.at_ns for reading in readings)
    assert read_run(store, stored).gpu_use == use


@pytest.mark.parametrize("held", [True, False])
def test_who_holds_the_memory_is_named_with_an_out_of_memory(target: Target, held: bool) -> None:
    def no_room(_request: Request) -> Iterator[protocol.Message | Ending]:
        yield PLACES
        yield protocol.Log(2, f"load_tensors: {CUDA}")
        yield OutOfMemory("load", "cudaMalloc failed: out of memory")

    reading = MachineReading(1, None, 1, 2, (GpuReading(0, "Card", processes=(DESKTOP,)),) if held else ())
    rig = with_gpu(fake_rig(answers={0: no_room})[0])
    (run,) = runs_of(replace(rig, read_machine=lambda: reading), decode_job(target, 300))
    assert run.outcome is Outcome.OUT_OF_MEMORY
    assert run.reason.endswith("GPU memory is used by desktop (pid 911, 300.0 MiB)") is held


def test_a_machine_that_cannot_be_read_costs_no_measurement(target: Target, store: Store) -> None:
    def fail() -> MachineReading:
        raise OSError("no /proc here")

    (run,) = runs_of(replace(fake_rig(store)[0], read_machine=fail), decode_job(target, 300))
    assert (run.outcome, run.gpu_use) == (Outcome.COMPLETED, None)
    assert run.run_id is not None
    assert not read_recording(store, store.load_run(run.run_id)).readings


@dataclass
class ChangingMachine:
    before: MachineReading
    since: MachineReading
    is_read: threading.Event = field(default_factory=threading.Event)
    is_changed: bool = False

    def read(self) -> MachineReading:
        found = self.since if self.is_changed else self.before
        self.is_read.set()
        return replace(found, at_ns=moment_ns())

    def answer(self, request: Request) -> Iterator[protocol.Message | Ending]:
        """Answer as a worker in good health, on a machine that changes as it measures."""
        *answers, ending = obey(request)
        is_timed = isinstance(request, Decode | Prefill)
        if is_timed:
            assert self.is_read.wait(10)
            self.is_changed = True
        yield from answers
        if is_timed:  # a reading follows what was timed, however fast that was
            self.is_read.clear()
            assert self.is_read.wait(10)
        yield ending

    def rig(self, store: Store) -> RunContext:
        rig = fake_rig(store, {0: self.answer})[0]
        return replace(with_gpu(rig), read_machine=self.read, reading_interval_s=0.001)


def test_a_prompt_beside_other_programs_is_marked(
    target: Target, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU is busy all the time, and the engine does not get any of it; a GPU would not care."""
    monkeypatch.setattr("ggbench.runs.reading_log.cpu_seconds_of", lambda pid: 0.0)
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    monkeypatch.setattr("ggbench.runs.machine_use._FEWEST_TICKS_NS", 1)
    rig = ChangingMachine(MachineReading(0, 1.0, 1, 2), MachineReading(0, 1.0, 1, 2)).rig(store)
    (run,) = runs_of(rig, prefill_job(target, 8))
    assert run.run_id is not None
    for each in (run, read_run(store, store.load_run(run.run_id))):
        assert each.unsteady == "other programs used 100 % of the CPU"
    on_gpu_too = replace(run.memory, buffers=(DeviceBuffers("CUDA0", MemoryKind.GPU, 9, 0, 0, 0),))
    assert replace(run, memory=on_gpu_too).unsteady == ""


def test_setting_the_clock_moves_no_step(target: Target, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = time.time_ns()
    jumps = itertools.cycle([0, -86_400, 3600])
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + next(jumps) * 1_000_000_000)
    rig = replace(fake_rig(store)[0], read_machine=MachineReader().read, reading_interval_s=0.001)
    (run,) = runs_of(rig, decode_job(target, 300))
    assert run.run_id is not None
    stored = store.load_run(run.run_id)
    observed = [each.at_ns for each in store.load_observations(run.run_id) if each.kind != "machine_reading"]
    readings = [each.at_ns for each in read_recording(store, stored).readings]
    chunks = [each.at_ns for each in store.load_chunks(run.run_id)]
    for moments in (observed, readings, chunks):
        assert moments == sorted(moments)
        assert moments[-1] - moments[0] < 600 * 1_000_000_000


def test_a_killed_run_has_what_changed_until_then(target: Target, store: Store) -> None:
    """From its readings alone, as it never came to an end that could be stored."""
    gpu = GpuReading(0, "Radeon", used_bytes=1 << 30, total_bytes=8 << 30, shared_bytes=0)
    full = replace(gpu, used_bytes=8 << 30, shared_bytes=1 << 30)
    before, since = (MachineReading(0, None, 1, 2, (each,)) for each in (gpu, full))
    rig = ChangingMachine(before, since).rig(store)
    (run,) = runs_of(rig, prefill_job(target, 8))
    assert run.run_id is not None
    stored, begun = store.load_run(run.run_id), rig.describe_environment({})
    found = read_run(store, replace(stored, result_json=None, state="interrupted", environment=begun))
    assert found.head.environment is not None
    (what,) = found.head.environment.changes
    assert what.startswith("1.00 GiB moved from a full Radeon to main memory") and found.unsteady == what


@pytest.mark.parametrize(
    ("setup", "has_limit"),
    [
        pytest.param(LlamaConfig(), True, id="all on the GPU"),
        pytest.param(LlamaConfig(kv_offload=False), False, id="the cache in main memory"),
        pytest.param(LlamaConfig(override_tensor=("ffn_up=CPU",)), False, id="some tensors in main memory"),
    ],
)
def test_memories_of_two_speeds_have_no_one_limit(target: Target, setup: LlamaConfig, has_limit: bool) -> None:
    """A user's own figure stands for both."""
    rig = with_gpu(fake_rig(answers={0: on_gpu, 1: on_gpu})[0])
    (run,) = runs_of(rig, decode_job(target, 10, setup))
    assert (decoded(run).limit is not None) is has_limit
    (stated,) = runs_of(replace(rig, given_bandwidth=Bandwidth(1e12, "given")), decode_job(target, 10, setup))
    assert decoded(stated).limit is not None


def test_what_a_worker_holds_is_unknown_under_a_limit_and_of_gpus_that_nvml_does_not_list(target: Target) -> None:
    """Under a limit it holds the ballast as well."""
    gpu = GpuReading(0, "Card", processes=(GpuProcess(WORKER_PID, "python", 640 << 20),))
    rig = with_gpu(fake_rig(answers=dict.fromkeys(range(2), on_gpu))[0])
    rig = replace(rig, read_machine=lambda: MachineReading(time.time_ns(), None, 1, 2, (gpu,)))
    limit = LlamaConfig(memory_limit_bytes=1 << 30)
    free, limited = runs_of(rig, prefill_job(target, 8), prefill_job(target, 8, setup=limit))
    assert free.gpu_use is not None and free.gpu_use.worker_bytes == 640 << 20
    assert limited.gpu_use is not None and limited.gpu_use.worker_bytes is limited.memory.other_bytes is None
    rig = replace(fake_rig(answers={0: on_gpu})[0], read_machine=lambda: MachineReading(1, None, 1, 2))
    (unlisted,) = runs_of(rig, decode_job(target, 10))
    assert unlisted.gpu_use is None
