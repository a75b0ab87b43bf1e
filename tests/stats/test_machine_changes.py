"""What readings say of a machine that did not stay the same."""

import pytest
from msgspec.structs import replace

from ggbench.machine.records import GpuReading, MachineReading
from ggbench.runs.machine_use import device_spills, machine_changes, others_share

S = 1_000_000_000
GIB = 1 << 30


def reading(
    suspended_s: float = 40.0, n_cpus: int = 8, quota: float | None = None, total_bytes: int = 16 * GIB
) -> MachineReading:
    suspended_ns = round(suspended_s * S)
    return MachineReading(0, None, 1, total_bytes, suspended_ns=suspended_ns, n_cpus=n_cpus, quota_cpus=quota)


def test_memory_that_spilled_is_named() -> None:
    """The sum of the rises counts; less than 64 MiB may be another program's."""
    swapped = [replace(reading(), swapped_bytes=n << 20) for n in (1000, 1040, 1040, 1070)]
    assert [line[:30] for line in machine_changes(swapped)] == ["70.0 MiB were written to swap "]
    assert machine_changes(swapped[:3]) == ()


def test_what_the_engine_reads_while_timed_counts_instead_of_what_all_programs_do() -> None:
    """What it read before the timed span is its file, loaded; a fault may read much ahead, and many may read little."""
    spans = [(9 * S, 21 * S)]

    def readings(n_faults: int, mib: int, swapped_mib: int = 0) -> list[MachineReading]:
        before = [replace(reading(), at_ns=s * S, worker_faults=s, worker_read_bytes=s << 30) for s in (0, 10)]
        after = replace(before[-1], at_ns=20 * S, swapped_bytes=swapped_mib << 20)
        return [*before, replace(after, worker_faults=10 + n_faults, worker_read_bytes=(10 << 30) + (mib << 20))]

    (line,) = machine_changes(readings(9, 900), spans)
    assert line.startswith(
        "the engine waited 9 times for 900.0 MiB from the disk while timed: its mapped file was evicted"
    )
    _, line = machine_changes(readings(400, 1, swapped_mib=80), spans)
    assert line.startswith("the engine waited 400 times for 1.00 MiB from the disk while timed: memory was swapped out")
    assert machine_changes(readings(100, 50), spans) == ()
    assert machine_changes(readings(9, 900)) == ()


def test_a_load_and_a_new_worker_between_timed_spans_do_not_count() -> None:
    """The file is read again, by a process whose counters begin at zero; a few pages of others are swapped."""
    counted = [(0, 9, 900), (1, 9, 900), (4, 500, 9000), (5, 500, 9000), (9, 7, 700), (10, 7, 700)]
    readings = [replace(reading(), at_ns=s * S, worker_faults=n, worker_read_bytes=mib << 20) for s, n, mib in counted]
    spans = [(0, S), (4 * S, 5 * S), (9 * S, 10 * S)]
    assert machine_changes(readings, spans) == ()
    readings[-1] = replace(readings[-1], worker_read_bytes=800 << 20, swapped_bytes=1 << 20)
    (line,) = machine_changes(readings, spans)
    assert line.startswith("the engine waited 0 times for 100.0 MiB from the disk while timed: its mapped file was")


def test_what_others_used_counts_between_readings_around_timed_spans() -> None:
    """The first reading has no share, and what others did while the model loaded slowed nothing."""
    readings = [
        replace(reading(), at_ns=s * S, others_share=share) for s, share in ((0, None), (4, 0.9), (5, 0.2), (8, 0.6))
    ]
    assert others_share(readings, [(45 * S // 10, 46 * S // 10), (7 * S, 75 * S // 10)]) == pytest.approx(0.5)
    assert others_share(readings, [(45 * S // 10, 46 * S // 10)]) == pytest.approx(0.2)
    assert others_share(readings[:1], [(0, S)]) is others_share(readings, []) is others_share([], [(0, S)]) is None


def _on_gpu(used_gib: float, shared_gib: float | None = None, total_gib: float = 8) -> MachineReading:
    shared_bytes = None if shared_gib is None else round(shared_gib * GIB)
    gpu = GpuReading(
        0, "Radeon", used_bytes=round(used_gib * GIB), total_bytes=round(total_gib * GIB), shared_bytes=shared_bytes
    )
    return replace(reading(), gpus=(gpu,))


def test_memory_beyond_a_gpu_is_named() -> None:
    """What CUDA puts elsewhere is not in NVML's figures; amdgpu counts it."""
    (line,) = device_spills([_on_gpu(7.9)], (0,), 9 * GIB)
    assert line.startswith("buffers of 9.00 GiB on GPUs of 8.00 GiB: the driver keeps the rest in main memory")
    assert device_spills([_on_gpu(7.9)], (0,), 8 * GIB) == device_spills([], (0,), 9 * GIB) == ()
    (line,) = device_spills([_on_gpu(1, 0.5), _on_gpu(7.8, 2)], None, 0)
    assert line.startswith("1.50 GiB moved from a full Radeon to main memory (fewer layers on the GPU")


@pytest.mark.parametrize("last", [_on_gpu(4, 2), _on_gpu(7.8, 0.6), _on_gpu(7.8), _on_gpu(0.5, 6, total_gib=0.5)])
def test_shared_memory_that_is_no_spill(last: MachineReading) -> None:
    """There is room on the card; too little moved; none is reported; or an APU runs from main memory on purpose."""
    first = replace(last, gpus=(replace(last.gpus[0], used_bytes=0, shared_bytes=GIB // 2),))
    assert device_spills([first, last], None, 0) == ()


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([], ()),
        ([reading()], ()),
        ([reading(), reading(40.9)], ()),
        ([reading(), reading(102.0), reading(102.0)], ("the machine was suspended for 1:02",)),
        ([reading(), reading(50), reading(50), reading(60)], ("the machine was suspended for 0:20",)),
        ([reading(), reading(n_cpus=4), reading()], ("the CPUs available changed from 8 to 4",)),
        ([reading(), reading(quota=1.5)], ("the container's CPU limit changed from none to 1.50",)),
        ([reading(quota=4), reading()], ("the container's CPU limit changed from 4.00 to none",)),
        ([reading(), reading(total_bytes=8 * GIB)], ("the memory available changed from 16.0 GiB to 8.00 GiB",)),
    ],
)
def test_a_change_is_one_line(readings: list[MachineReading], expected: tuple[str, ...]) -> None:
    assert machine_changes(readings) == expected
