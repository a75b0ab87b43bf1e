"""What readings say of a machine that did not stay the same."""

import pytest
from msgspec.structs import replace

from ggbench.machine.records import GpuReading, MachineReading
from ggbench.runs.machine_use import gpu_spills, machine_changes, others_share
from ggbench.runs.run import others_text

S = 1_000_000_000
GIB = 1 << 30


def reading() -> MachineReading:
    return MachineReading(0, None, 1, 16 * GIB)


def test_memory_that_was_swapped_while_timed_is_named() -> None:
    """The sum of the rises around the spans counts, however short; less than 64 MiB may be another program's."""
    swapped = [
        replace(reading(), at_ns=s * S, swapped_bytes=n << 20) for s, n in enumerate((1000, 1040, 1040, 1070, 9000))
    ]
    assert [line[:30] for line in machine_changes(swapped, [(0, 3 * S - 1)])] == ["70.0 MiB were written to swap "]
    (line,) = machine_changes(swapped, [(31 * S // 10, 32 * S // 10)])
    assert line.startswith("7.74 GiB were written to swap ")
    assert machine_changes(swapped, []) == machine_changes(swapped, [(S // 10, 2 * S - 1)]) == ()


def test_what_the_engine_reads_while_timed_is_named() -> None:
    """What it read before the timed span is its file, loaded; a fault may read much ahead, and many may read little."""
    spans = [(9 * S, 21 * S)]

    def readings(n_faults: int, mib: int) -> list[MachineReading]:
        before = [replace(reading(), at_ns=s * S, worker_faults=s, worker_read_bytes=s << 30) for s in (0, 10)]
        after = replace(before[-1], at_ns=20 * S)
        return [*before, replace(after, worker_faults=10 + n_faults, worker_read_bytes=(10 << 30) + (mib << 20))]

    (line,) = machine_changes(readings(9, 900), spans)
    assert line.startswith("the engine waited 9 times for 900.0 MiB from the disk")
    (line,) = machine_changes(readings(400, 1), spans)
    assert line.startswith("the engine waited 400 times for 1.00 MiB from the disk")
    assert machine_changes(readings(100, 50), spans) == machine_changes(readings(9, 900), []) == ()


def test_a_load_and_a_new_worker_between_timed_spans_do_not_count() -> None:
    """The file is read again, by a process whose counters begin at zero."""
    counted = [(0, 9, 900), (1, 9, 900), (4, 500, 9000), (5, 500, 9000), (9, 7, 700), (10, 7, 700)]
    readings = [replace(reading(), at_ns=s * S, worker_faults=n, worker_read_bytes=mib << 20) for s, n, mib in counted]
    spans = [(0, S), (4 * S, 5 * S), (9 * S, 10 * S)]
    assert machine_changes(readings, spans) == ()
    readings[-1] = replace(readings[-1], worker_read_bytes=800 << 20)
    (line,) = machine_changes(readings, spans)
    assert line.startswith("the engine waited 0 times for 100.0 MiB from the disk")


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


def test_memory_that_moved_from_a_gpu_is_named() -> None:
    (line,) = gpu_spills([_on_gpu(1, 0.5), _on_gpu(7.8, 2)], None)
    assert line.startswith("1.50 GiB moved from a full Radeon to main memory (fewer layers on the GPU")
    assert gpu_spills([], (0,)) == gpu_spills([_on_gpu(1, 0.5), _on_gpu(7.8, 2)], (1,)) == ()


@pytest.mark.parametrize("last", [_on_gpu(4, 2), _on_gpu(7.8, 0.6), _on_gpu(7.8), _on_gpu(0.5, 6, total_gib=0.5)])
def test_shared_memory_that_is_no_spill(last: MachineReading) -> None:
    """There is room on the card; too little moved; none is reported; or an APU runs from main memory on purpose."""
    first = replace(last, gpus=(replace(last.gpus[0], used_bytes=0, shared_bytes=GIB // 2),))
    assert gpu_spills([first, last], None) == ()


def test_the_share_of_others_is_that_of_each_run() -> None:
    assert others_text(0.38, 0.49, 0.01) == "other programs used 38 % to 49 % of the CPU"
    assert others_text(0.49) == others_text(0.49, 0.49) == "other programs used 49 % of the CPU"
    assert others_text() == others_text(0.01) == ""
