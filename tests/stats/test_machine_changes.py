"""What readings say of a machine that did not stay the same."""

import pytest

from ggbench.machine.records import MachineReading
from ggbench.runs.machine_use import machine_changes

S = 1_000_000_000
GIB = 1 << 30


def reading(
    suspended_s: float = 40.0, n_cpus: int = 8, quota: float | None = None, total_bytes: int = 16 * GIB
) -> MachineReading:
    suspended_ns = round(suspended_s * S)
    return MachineReading(0, None, 1, total_bytes, suspended_ns=suspended_ns, n_cpus=n_cpus, quota_cpus=quota)


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
