"""Readings of the machine's state: CPU, memory, each GPU's clocks, temperature, power and processes, other programs.

Take one about once a second during a measurement, in the parent of the timed process. A reading costs a few small
kernel files and a few NVML queries per GPU.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

from ggbench.machine.drm_gpus import read_drm_gpus
from ggbench.machine.gpus import Nvml, open_nvml
from ggbench.machine.host import describe_ram
from ggbench.machine.records import GpuProcess, GpuReading, MachineReading
from ggbench.text import shorten
from ggbench.units import format_bytes, format_count

_THROTTLE_NAMES = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""NVML's nvmlClocksEventReason* bits by the names in nvidia-smi's `clocks_event_reasons.` queries."""
_IDLE = 0x001
"""Reasons for low clocks of an idle GPU, which is not throttling."""
_INVALID_PIDS = (0, 0xFFFFFFFF)
"""Process ids that pynvml returns if it misreads a driver's records."""
_MAX_NAMED, _NAME_WIDTH = 3, 40


class MachineReader:
    """Takes repeated readings over one NVML session. `read` is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nvml: Nvml | None = None
        self._has_tried_nvml = False
        self._busy_and_total_s: tuple[float, float] | None = None

    def read(self) -> MachineReading:
        """Read the machine's state; `cpu_share` covers the time since the previous reading, None in the first."""
        import psutil

        with self._lock:
            if not self._has_tried_nvml:
                self._nvml, self._has_tried_nvml = open_nvml(), True
            ram, nvidia, swap = describe_ram(), read_gpus(self._nvml), psutil.swap_memory()
            return MachineReading(
                at_ns=moment_ns(),
                cpu_share=self._cpu_share(),
                used_bytes=ram.total_bytes - ram.available_bytes,
                total_bytes=ram.total_bytes,
                gpus=(*nvidia, *read_drm_gpus(len(nvidia))),
                swapped_bytes=swap.sin + swap.sout,
            )

    def _cpu_share(self) -> float | None:
        busy_s, total_s = cpu_seconds()
        before, self._busy_and_total_s = self._busy_and_total_s, (busy_s, total_s)
        if before is None or total_s <= before[1]:
            return None
        return min(1.0, max(0.0, (busy_s - before[0]) / (total_s - before[1])))


def cpu_seconds() -> tuple[float, float]:
    """Return the seconds that all CPUs were busy since the boot, and in all."""
    import psutil

    times = psutil.cpu_times()
    # The kernel includes guest time in `user`; `iowait` is idle time.
    total_s: float = sum(
        seconds for name, seconds in times._asdict().items() if name not in ("guest", "guest_nice")
    )
    return total_s - times.idle - getattr(times, "iowait", 0.0), total_s


BUSY_SHARE = 0.25
"""Share of all CPUs used by other programs from which a measurement is likely to be unsteady."""


class OthersWatch:
    """Watches the CPU use of other programs from its creation on."""

    def __init__(self) -> None:
        self._begun_s, self._at_s = self._seconds(), time.monotonic()

    def share(self, least_s: float = 0.3) -> float | None:
        """Return the share of all CPUs that other programs used, 0 to 1, after watching for `least_s` seconds.

        The time of this process and of its ended children is subtracted. None if the clocks did not advance.
        """
        time.sleep(max(0.0, self._at_s + least_s - time.monotonic()))
        busy_s, total_s, own_s = (
            now - begun for now, begun in zip(self._seconds(), self._begun_s, strict=True)
        )
        return min(1.0, max(0.0, (busy_s - own_s) / total_s)) if total_s > 0 else None

    @staticmethod
    def _seconds() -> tuple[float, float, float]:
        return *cpu_seconds(), sum(os.times()[:4])


def list_gpu_processes(indices: Collection[int]) -> tuple[GpuProcess, ...]:
    """Return the processes with memory on the GPUs with these NVML indices, as far as the driver reports them."""
    nvml = open_nvml()
    if nvml is None:
        return ()
    with contextlib.closing(nvml):
        gpus = [gpu for gpu in read_gpus(nvml) if gpu.index in indices]
    return tuple((processes_by_pid(gpus) or {}).values())


def processes_by_pid(gpus: Sequence[GpuReading]) -> dict[int, GpuProcess] | None:
    """Return the processes on these GPUs, each with its total memory; None if no GPU's driver reports them."""
    if all(gpu.processes is None for gpu in gpus):
        return None
    found: dict[int, GpuProcess] = {}
    for process in (process for gpu in gpus for process in gpu.processes or ()):
        used = (found[process.pid].used_bytes if process.pid in found else 0, process.used_bytes)
        found[process.pid] = GpuProcess(
            process.pid, process.name, None if None in used else sum(filter(None, used))
        )
    return found


def name_processes(processes: Sequence[GpuProcess]) -> str:
    """Format the largest three: `python3.11 (pid 4242, 6.00 GiB), an unnamed process (pid 911, 300.0 MiB)`."""
    by_size = sorted(processes, key=lambda process: process.used_bytes or 0, reverse=True)
    names = []
    for process in by_size[:_MAX_NAMED]:
        size = "" if process.used_bytes is None else f", {format_bytes(process.used_bytes)}"
        names.append(f"{program_name(process.name)} (pid {process.pid}{size})")
    n_more = len(by_size) - len(names)
    return ", ".join(names) + (f" and {format_count(n_more)} more" if n_more else "")


def program_name(name: str | None) -> str:
    """Return the file name in a command line."""
    path = (name or "").split(" ", 1)[0]
    return shorten(path.rpartition("/")[2], _NAME_WIDTH) or "an unnamed process"


def read_gpus(nvml: Nvml | None) -> tuple[GpuReading, ...]:
    return () if nvml is None else tuple(_read_gpu(nvml, index, handle) for index, handle in nvml.devices())


def _read_gpu(nvml: Nvml, index: int, handle: Any) -> GpuReading:  # noqa: ANN401 - pynvml has no types
    """Read one GPU; a value that the chip does not report, or reports as 0, is None."""
    memory = nvml.query("nvmlDeviceGetMemoryInfo", handle)
    power_mw = nvml.query("nvmlDeviceGetPowerUsage", handle)
    temperature = nvml.query("nvmlDeviceGetTemperature", handle, nvml.constant("NVML_TEMPERATURE_GPU"))
    return GpuReading(
        **nvml.identity(index, handle),
        sm_clock_mhz=nvml.query("nvmlDeviceGetClockInfo", handle, nvml.constant("NVML_CLOCK_SM")) or None,
        memory_clock_mhz=nvml.query("nvmlDeviceGetClockInfo", handle, nvml.constant("NVML_CLOCK_MEM")) or None,
        temperature_c=None if not temperature else float(temperature),
        power_w=power_mw / 1e3 if power_mw else None,
        # Includes driver-reserved memory, which nvidia-smi separates since 510: used and free add up to the total.
        used_bytes=None if memory is None else int(memory.used),
        total_bytes=None if memory is None else int(memory.total),
        energy_mj=nvml.query("nvmlDeviceGetTotalEnergyConsumption", handle) or None,
        throttle=_throttle(nvml, handle),
        processes=_processes(nvml, handle),
    )


def _throttle(nvml: Nvml, handle: Any) -> tuple[str, ...] | None:  # noqa: ANN401
    bits = nvml.query("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        return None
    set_bits = [1 << place for place in range(int(bits).bit_length()) if bits >> place & 1]
    return tuple(_THROTTLE_NAMES.get(bit, f"reason_{bit:#x}") for bit in set_bits if bit != _IDLE)


def _processes(nvml: Nvml, handle: Any) -> tuple[GpuProcess, ...] | None:  # noqa: ANN401
    """Return compute and graphics processes; one that is both is in both lists with the same memory."""
    lists = [_running(nvml, handle, use) for use in ("Compute", "Graphics")]
    if all(processes is None for processes in lists):
        return None
    found: dict[int, int | None] = {}
    for process in (process for processes in lists for process in processes or ()):
        found[process.pid] = process.usedGpuMemory if found.get(process.pid) is None else found[process.pid]
    return tuple(
        GpuProcess(pid, nvml.query("nvmlSystemGetProcessName", pid), found[pid]) for pid in sorted(found)
    )


def _running(nvml: Nvml, handle: Any, use: str) -> list[Any] | None:  # noqa: ANN401
    """Return one of NVML's process lists; None from drivers that fill it with other records than pynvml reads.

    Those from 535.43 to 535.86 do. Source: https://github.com/XuehaiPan/nvitop/pull/89.
    """
    processes: list[Any] | None = nvml.query(f"nvmlDeviceGet{use}RunningProcesses_v3", handle)
    is_read = processes is not None and not any(process.pid in _INVALID_PIDS for process in processes)
    return processes if is_read else None


if sys.platform == "linux":
    _CLOCK = time.CLOCK_BOOTTIME
else:
    _CLOCK = time.CLOCK_MONOTONIC


def elapsed_ns() -> int:
    """Return nanoseconds since an arbitrary start, including suspended time."""
    return time.clock_gettime_ns(_CLOCK)


_EPOCH_NS = time.time_ns() - elapsed_ns()
"""Start of `elapsed_ns`, by the wall clock at the start of this process."""


def moment_ns() -> int:
    """Return nanoseconds since the epoch, by the wall clock at the start of this process.

    Differences are correct even if the clock is set meanwhile.
    """
    return _EPOCH_NS + elapsed_ns()
