"""What readings say of a machine that did not stay the same."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.machine.readings import spilled_bytes
from ggbench.machine.records import MachineReading
from ggbench.runs.machine_use import machine_changes

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
    refaulted = [replace(reading(), refaulted_bytes=n << 30) for n in (5, 8)]
    assert [line[:30] for line in machine_changes(swapped)] == ["70.0 MiB were written to swap "]
    assert [line[:30] for line in machine_changes(refaulted)] == ["3.00 GiB of files were evicted"]
    assert machine_changes(swapped[:3]) == ()


def test_spilled_pages_are_read_from_the_kernel(tmp_path: Path) -> None:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    (tmp_path / "vmstat").write_text("nr_free_pages 9\nworkingset_refault_file 4\npswpin 1\npswpout 2\n")
    assert spilled_bytes(tmp_path) == {"swapped_bytes": 3 * page_bytes, "refaulted_bytes": 4 * page_bytes}


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
