"""The machine: its GPUs, its state at one moment, the state during a run, and its software."""

from __future__ import annotations

from ggbench.record import Record


class Gpu(Record):
    """A GPU; None means unknown."""

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


class GpuProcess(Record):
    """A program that uses a GPU's memory."""

    pid: int
    """The driver's process id, which may differ from that inside a container."""
    name: str | None
    """Path or name of its program, as the driver reports it: untrusted text."""
    used_bytes: int | None
    """None if the driver does not report it."""


class GpuReading(Record):
    """One GPU at one moment; None if the chip or its driver does not report it."""

    index: int
    """NVML's index, in PCI bus order."""
    name: str
    uuid: str | None = None
    pci_bus_id: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    used_bytes: int | None = None
    """Includes memory reserved by the driver, which nvidia-smi lists separately: used and free add up to the total."""
    total_bytes: int | None = None
    shared_bytes: int | None = None
    """Main memory that the driver lets this GPU use (amdgpu's GTT), as far as it is in use."""
    energy_mj: int | None = None
    """Millijoules since the driver was loaded; the difference of two readings is the energy used between them."""
    throttle: tuple[str, ...] | None = None
    """Reasons for reduced clocks, by nvidia-smi's names such as `sw_power_cap`; empty if there are none, or if the GPU
    is idle."""
    processes: tuple[GpuProcess, ...] | None = None
    """In ascending order of pid."""


class MachineReading(Record):
    """The machine at one moment."""

    at_ns: int
    """Since the epoch."""
    cpu_share: float | None
    """Share of all processors' time used since the previous reading, 0 to 1; None in the first."""
    used_bytes: int | None
    """Main memory in use within the container's limit, without file cache."""
    total_bytes: int | None
    gpus: tuple[GpuReading, ...] = ()
    swapped_bytes: int = 0
    """Bytes written to and read from swap since the start of the machine; only differences are meaningful."""
    worker_faults: int | None = None
    """Major page faults of the engine's process so far, each a wait for the disk; None if unknown."""
    worker_read_bytes: int | None = None
    """Bytes that its process has had read from the disk so far, for page faults too; None if unknown."""
    others_share: float | None = None
    """Part of `cpu_share` used by neither ggbench nor the engine's process; None if unknown."""


class Throttling(Record):
    """A reason for low clocks, and its number of readings."""

    reason: str
    """One of `GpuReading.throttle`."""
    n_readings: int


class GpuUse(Record):
    """Readings of a run's GPUs, summarized over the timed spans; None means unknown.

    For several GPUs: the hottest, the slowest, and the sums of power and energy.
    """

    indices: tuple[int, ...]
    """NVML's indices of the GPUs with buffers."""
    n_readings: int
    """Number of readings during timing; a short run may have none."""
    temperature_max_c: float | None = None
    sm_clock_min_mhz: int | None = None
    power_mean_w: float | None = None
    energy_per_token_mj: float | None = None
    """Millijoules per decoded token, from the GPUs' energy counters."""
    throttle: tuple[Throttling, ...] | None = None
    """Most frequent first."""
    worker_bytes: int | None = None
    """Peak memory of this run's worker over all these GPUs; also None under a memory limit, as it includes the ballast,
    and if NVML's process ids differ from ours, as in a container."""
    other_processes: tuple[GpuProcess, ...] | None = None
    """Other programs that used memory of these GPUs."""


class Environment(Record):
    """The machine and the software of a run."""

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
    """Physical cores available to this process; None if an imported run's file does not state it, as below."""
    ram_bytes: int | None
    gpus: tuple[Gpu, ...] = ()
    llama_cpp_commit: str = ""
    """Short commit hash of llama.cpp; empty if the build or an earlier ggbench does not report it."""
    backends: tuple[str, ...] = ()
    """ggml's backends, compiled in or loaded, as `Vulkan` and `CPU`; empty if the engine reports none."""
    build_flags: str = ""
    """CMake options that llama.cpp was compiled with; empty if unknown, as for a wheel made elsewhere."""
    imported: Imported | None = None
    """None for a run measured here."""
    server: str = ""
    """Program and version of the server, wherever it runs; empty if an engine here ran the model."""
    transformers: str = ""
    """Versions of Transformers and torch, `5.23.0, torch 2.13.0+cpu`; empty if another engine ran the model."""
    changes: tuple[str, ...] = ()
    """Changes of the machine during the run, such as a suspend or fewer CPUs, one line each."""
    others_share: float | None = None
    """Share of all CPUs that other programs used while the engine was timed, 0 to 1; None if unknown."""


Cell = str | int | float | bool | list[int | float] | None
"""Value of one field of another tool's row."""


class Imported(Record, kw_only=True):
    """The source of an imported run. All texts are untrusted."""

    tool: str
    """The program that measured the run: `llama-bench`, `ggbench 0.1.0`."""
    file: str
    """Name of the file, without its folder."""
    file_sha256: str
    """Hash of the file's bytes."""
    content_sha256: str
    """Hash of this run's content, equal for the same rows in any file, so that they are imported once."""


class ImportedRow(Record):
    """Rows of another tool, with its field names, to export them unchanged."""

    tool: str
    fields: dict[str, Cell]
