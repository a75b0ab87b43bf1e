"""The machine: its GPUs, what it was doing at one moment, what that meant for a run, and the software on it."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """One GPU at one moment; None is unknown."""

    index: int
    name: str
    uuid: str | None
    pci_bus_id: str | None
    total_bytes: int | None
    """None on chips that share the system's memory."""
    free_bytes: int | None
    bus_width_bits: int | None
    memory_clock_mhz: int | None
    """The highest memory clock as NVML counts it: half the data rate of a pin."""
    driver: str | None


class GpuProcess(msgspec.Struct, frozen=True):
    """A program that holds memory of a GPU."""

    pid: int
    """The driver's number, which in a container may differ from the container's own."""
    name: str | None
    """Path or name of its program, as the driver reports it: untrusted text."""
    used_bytes: int | None
    """None if the driver does not report it."""


class GpuReading(msgspec.Struct, frozen=True):
    """One GPU at one moment; None if the chip or its driver does not report it."""

    index: int
    """NVML's, in the order of the PCI bus."""
    name: str
    uuid: str | None = None
    pci_bus_id: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    used_bytes: int | None = None
    """Includes what the driver reserves, which nvidia-smi lists apart: used and free add up to the total."""
    total_bytes: int | None = None
    energy_mj: int | None = None
    """Millijoules since the driver was loaded; the difference of two readings is what was used between them."""
    throttle: tuple[str, ...] | None = None
    """Reasons for clocks below their maximum, by nvidia-smi's names such as `sw_power_cap`; empty when nothing holds
    them down, an idle GPU included."""
    processes: tuple[GpuProcess, ...] | None = None
    """In ascending order of pid."""


class MachineReading(msgspec.Struct, frozen=True):
    """The machine at one moment."""

    at_ns: int
    """Since the epoch."""
    cpu_share: float | None
    """Share of all processors' time that was used since the reading before, 0 to 1; None in the first."""
    used_bytes: int | None
    """Main memory in use within the container's limit, without file cache."""
    total_bytes: int | None
    gpus: tuple[GpuReading, ...] = ()
    suspended_ns: int = 0
    """For how long the machine was suspended so far; only differences mean anything."""
    n_cpus: int = 1
    """Logical CPUs that this process may use."""
    quota_cpus: float | None = None
    """The container's limit; None also without one."""


class Throttling(msgspec.Struct, frozen=True):
    """A reason for low clocks, and how often it was seen."""

    reason: str
    """One of `GpuReading.throttle`."""
    n_readings: int


class GpuUse(msgspec.Struct, frozen=True):
    """Readings of the GPUs that a run used, summarized over the time in which it was timed; None is unknown.

    Of several GPUs: the hottest, the slowest, and the sum of power and energy.
    """

    indices: tuple[int, ...]
    """NVML's, of the GPUs that hold buffers."""
    n_readings: int
    """Taken while something was timed; a short run may have none."""
    temperature_max_c: float | None = None
    sm_clock_min_mhz: int | None = None
    sm_clock_median_mhz: float | None = None
    power_mean_w: float | None = None
    energy_per_token_mj: float | None = None
    """Millijoules for each decoded token, from the GPUs' energy counters."""
    throttle: tuple[Throttling, ...] | None = None
    """Most frequent first."""
    worker_bytes: int | None = None
    """Most memory that this run's own worker held, of all these GPUs together; None also under a memory limit, whose
    ballast it holds as well, and where NVML counts processes differently from here, as for a container."""
    other_processes: tuple[GpuProcess, ...] | None = None
    """Programs other than this run's that held memory of these GPUs."""


class Environment(msgspec.Struct, frozen=True):
    """Where and with what a run was measured."""

    ggbench: str
    python: str
    llama_cpp_python: str
    llama_cpp: str
    """llama.cpp's own version line."""
    system_info: str
    """`llama_print_system_info()`: the instruction sets and backends compiled in."""
    os: str
    cpu: str
    n_cores: int | None
    """Physical cores this process may use; None if an imported run's file does not state it, as below."""
    ram_bytes: int | None
    gpus: tuple[Gpu, ...] = ()
    llama_cpp_commit: str = ""
    """Short hash that llama.cpp was built from; empty if the build or an earlier ggbench does not report it."""
    backends: tuple[str, ...] = ()
    """ggml's backends, compiled in or loaded, as `Vulkan` and `CPU`; empty if the engine reports none."""
    build_flags: str = ""
    """CMake options that llama.cpp was compiled with; empty if unknown, as for a wheel made elsewhere."""
    imported: Imported | None = None
    """None of a run that was measured here."""
    server: str = ""
    """Program and version of the server that was asked, wherever it runs; empty if an engine here ran the model."""
    transformers: str = ""
    """Versions of Transformers and torch, `5.23.0, torch 2.13.0+cpu`; empty if another engine ran the model."""
    changes: tuple[str, ...] = ()
    """Changes in the machine during the run, such as a suspend or fewer CPUs, each in one line."""


Cell = str | int | float | bool | list[int | float] | None
"""Value of one field of another tool's row."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Where an imported run comes from. All texts are another's: untrusted."""

    tool: str
    """The program that measured it: `llama-bench`, `ggbench 0.1.0`."""
    file: str
    """Name of the file, without its folder."""
    file_sha256: str
    """Hash of the file's bytes."""
    content_sha256: str
    """Hash of this run's content: equal for the same rows in any file, so they are imported once."""
    lacks: tuple[str, ...] = ()
    """Facts that the file lacks, and the consequences, as text."""


class ImportedRow(msgspec.Struct, frozen=True):
    """One row of another tool, under its own field names, so it can be exported as it came."""

    tool: str
    fields: dict[str, Cell]
