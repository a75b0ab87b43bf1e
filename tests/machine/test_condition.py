"""The state of a machine from made-up kernel files and from NVML as real cards answered it."""

import os
from pathlib import Path

import psutil
import pynvml
import pytest

from ggbench.decisions.doctor.checkup import describe_folder
from ggbench.machine import readings
from ggbench.machine.gpus import driver_problem
from tests.fakes.nvml import FakeNvml, install


def test_the_load_is_that_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPUs were busy for 5 of 8 s: 1 with this process, 2 with a child of it that ended, 2 with others."""
    busy_and_total_s, own_s = iter([(100.0, 1000.0), (105.0, 1008.0)]), iter([(3.0, 1.0, 0, 0), (3.5, 1.5, 1.5, 0.5)])
    monkeypatch.setattr(readings, "cpu_seconds", lambda: next(busy_and_total_s))
    monkeypatch.setattr("os.times", lambda: next(own_s))
    assert readings.OthersWatch().share(0) == 2 / 8


@pytest.mark.parametrize(
    ("nvml", "device_class", "problem"),
    [
        pytest.param(None, "0x030200\n", "NVML Shared Library Not Found", id="no driver"),
        pytest.param(FakeNvml([], init_status=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), "0x030200\n",
                     "RM has detected an NVML/RM version mismatch.", id="driver updated while it ran"),
        pytest.param(None, "0x040300\n", "", id="the card's sound device alone"),
    ],
)  # fmt: skip
def test_a_card_without_a_working_driver_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nvml: FakeNvml | None, device_class: str, problem: str
) -> None:
    install(monkeypatch, nvml)
    device = tmp_path / "bus/pci/devices/0000:01:00.0"
    assert driver_problem(tmp_path) == ""
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text(device_class)
    assert driver_problem(tmp_path) == problem


def test_a_missing_folder_has_the_disk_of_the_nearest_above(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(1 << 20))
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "loop").symlink_to(tmp_path)
    place, missing = (describe_folder("results", "XDG_DATA_HOME", tmp_path / each) for each in ("", "a/b/c"))
    assert place.used_bytes is not None
    assert 1 << 20 <= place.used_bytes < (1 << 20) + (1 << 16)
    assert (missing.used_bytes, missing.is_writable) == (0, True)
    assert missing.free_bytes is not None
    assert abs(missing.free_bytes - psutil.disk_usage(str(tmp_path)).free) < 1 << 30
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path, is_link: bool) -> None:
    blocking = tmp_path / "blocking"
    blocking.symlink_to(tmp_path / "missing") if is_link else blocking.touch()
    assert not describe_folder("results", "XDG_DATA_HOME", blocking / "ggbench").is_writable
