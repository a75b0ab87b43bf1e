"""The stand-ins of scripts/gpu_rehearsal as far as they go without CUDA's compiler."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import gpu_rehearsal

READ = """
import json
from msgspec.structs import asdict
from ggbench.machine.gpus import list_gpus
from ggbench.machine.readings import MachineReader
print(json.dumps([asdict(list_gpus()[0]), asdict(MachineReader().read().gpus[0])]))
"""


@pytest.fixture
def compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        pytest.skip("there is no C compiler")
    return found


def test_nvml_is_read_through_its_real_binding(compiler: str, tmp_path: Path) -> None:
    gpu_rehearsal.compile_library(compiler, "nvml", tmp_path / "libnvidia-ml.so.1", [])
    environ = gpu_rehearsal.environment(tmp_path, memory_mib=8192)

    answer = subprocess.run([sys.executable, "-c", READ], env=environ, capture_output=True, text=True, check=True)

    gpu, reading = json.loads(answer.stdout)
    assert (gpu["name"], gpu["pci_bus_id"], gpu["driver"]) == ("Stand-in GPU", "00000000:00:00.0", "0.0 stand-in")
    assert (gpu["total_bytes"], gpu["total_bytes"] - gpu["free_bytes"]) == (8192 << 20, 600 << 20)
    assert (gpu["bus_width_bits"], gpu["memory_clock_mhz"]) == (5120, 2619)
    assert reading["used_bytes"] == 600 << 20
    assert (reading["power_w"], reading["temperature_c"], reading["sm_clock_mhz"]) == (300.0, 40.0, 1980)
    assert (reading["throttle"], reading["processes"]) == ([], [])
    assert reading["energy_mj"] > 0
