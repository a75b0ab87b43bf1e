"""What the store has of a run gives what the run itself gave: whole, and of one that was killed as far as it came."""

import contextlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.experiments.maxctx.measure import EXPERIMENT as MAXCTX
from ggbench.experiments.maxctx.record import MaxctxSettings, Probe
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.records import GpuProcess, GpuReading, MachineReading
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import PointMeasured, Progress, SamplesTimed
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run, read_run
from tests.fakes.engine import WORKER_PID, fake_rig, on_gpu, with_gpu
from tests.fakes.recorded import decode_job, decoded
from tests.fakes.small_machine import SmallMachine, context_of, limited

PEAK = 777 << 20

Make = Callable[[Store, Target], tuple[RunContext, Job]]


def measuring(store: Store) -> RunContext:
    """A rig whose weights lie on a GPU that is read beside the run."""
    energies = itertools.count(0, 1000)

    def read_machine() -> MachineReading:
        process = GpuProcess(WORKER_PID, "python", 640 << 20)
        card = GpuReading(0, "Card", temperature_c=60, energy_mj=next(energies), throttle=(), processes=(process,))
        return MachineReading(time.time_ns(), None, 1, 2, (card,))

    rig = with_gpu(fake_rig(store, dict.fromkeys(range(4), on_gpu))[0])
    return replace(rig, read_machine=read_machine, reading_interval_s=0.001)


def decode(store: Store, target: Target) -> tuple[RunContext, Job]:
    return measuring(store), decode_job(target, 1000, repeat=2)


def maxctx(store: Store, target: Target) -> tuple[RunContext, Job]:
    kv_bytes = read_model_file(target.path or Path()).kv_bytes_per_token()
    rig = SmallMachine(kv_bytes, 16384, decode_edge=15000).rig(store)
    return rig, Job(MAXCTX, target, limited(), MaxctxSettings(beyond_train=True))


@pytest.fixture(autouse=True)
def peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.runs.recording.peak_rss_bytes", lambda _: PEAK)


def killed(store: Store, make: Make, target: Target, at: Callable[[Progress], bool]) -> None:
    """A run whose process ends where `at` is first true; its store closes without an end of the run."""
    rig, job = make(store, target)
    with contextlib.closing(run_job(rig, job)) as progress:
        next(record for record in progress if at(record))
    store.close()


def left(path: Path) -> Run:
    """The only run, read by the next to open the store."""
    with Store.open(path) as store:
        (stored,) = store.list_runs()
        assert stored.state == "interrupted"
        assert listed_run(stored).outcome is Outcome.INTERRUPTED
        return read_run(store, stored)


def test_a_killed_decode_has_all_that_it_had(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    killed(Store.open(path), decode, target, lambda each: isinstance(each, SamplesTimed) and each.n_done == 1500)
    run = left(path)
    assert (run.outcome, run.reason) == (Outcome.INTERRUPTED, "ggbench exited before the run ended")
    assert run.finished_at is None
    result = decoded(run)
    assert (result.n_gen, result.prefill_ms) == (1500, 25)
    assert result.fit is not None and result.fit.is_nothing  # no depth was timed again
    assert result.limit is not None and result.latency is not None
    assert [each.device for each in run.memory.buffers] == ["CUDA0", "CPU_Mapped", "CPU"]
    assert (run.memory.n_ctx, run.memory.peak_bytes, run.memory.flash_attn) == (1280, PEAK, True)
    assert run.gpu_use is not None and run.gpu_use.worker_bytes == 640 << 20
    assert run.head.environment is not None


def test_a_killed_search_has_its_probes(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    seen: list[Probe] = []

    def at_a_failure(each: Progress) -> bool:
        if isinstance(each, PointMeasured) and isinstance(each.observation, Probe):
            seen.append(each.observation)
        return bool(seen) and not seen[-1].is_dry and seen[-1].passed and seen[-1].n_ctx == 16384

    killed(Store.open(path), maxctx, target, at_a_failure)
    run = left(path)
    context = context_of(run)
    assert context.probes == tuple(seen)
    assert (context.max_n_ctx, context.verified_by_decode) == (16384, False)
    assert context.plan.memory_bytes == limited().memory_limit_bytes
    assert run.head.environment is not None
