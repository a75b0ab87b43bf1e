"""Readings of the machine as arrays: each comes back as it was taken."""

import math

import pytest

from ggbench.machine.records import GpuProcess, GpuReading, MachineReading
from ggbench.runs.reading_series import Readings

DESKTOP = GpuProcess(911, "/usr/bin/desktop", None)
CARD = GpuReading(1, "Card", "GPU-1", sm_clock_mhz=1900, power_w=70.5, throttle=("sw_power_cap",), processes=(DESKTOP,))
TAKEN = [
    MachineReading(1_700_000_000_123_456_789, None, 1, 2),
    MachineReading(1_700_000_001_123_456_789, 0.5, None, 2, (GpuReading(0, "Other", energy_mj=7), CARD), 5, 8, 1.5),
    MachineReading(1_700_000_002_123_456_789, 0.25, 3, 2, (CARD,), worker_faults=0, worker_read_bytes=1 << 40),
]


def test_readings_come_back_as_they_were_taken() -> None:
    readings = Readings(TAKEN[:1])
    readings.extend(TAKEN[1:])
    assert list(readings) == TAKEN
    assert (readings[-1], readings[1:], len(readings)) == (TAKEN[2], TAKEN[1:], 3)
    with pytest.raises(IndexError):
        readings[3]
    assert isinstance(readings[1].gpus[0].energy_mj, int)


def test_a_column_has_all_values_of_a_field() -> None:
    readings = Readings(TAKEN)
    assert readings.column("at_ns").tolist() == [each.at_ns for each in TAKEN]
    assert readings.column("cpu_share")[1:].tolist() == [0.5, 0.25]
    assert math.isnan(readings.column("cpu_share")[0])
    assert readings.gpu_indices == (0, 1)
    assert readings.gpu_column(1, "power_w").tolist() == [70.5, 70.5]
