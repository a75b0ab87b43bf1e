"""What ggbench sees of this machine and of itself, for `ggbench doctor`: facts alone, without a judgement."""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.machine.records import Gpu, GpuProcess
from ggbench.stats.decode_timing import Bandwidth


@dataclass(frozen=True, slots=True)
class LlamaDevice:
    """A device that llama.cpp can compute on."""

    name: str
    """llama.cpp's, such as `CUDA0`."""
    description: str
    backend: str
    """Name of ggml's backend, such as `CUDA`."""
    is_gpu: bool
    """Integrated ones included."""


@dataclass(frozen=True, slots=True)
class LlamaBuild:
    """The llama.cpp that ggbench uses; without a version where it cannot be loaded."""

    is_installed: bool = True
    problem: str = ""
    """Why it cannot be loaded, as the loader says it; empty where it can."""
    llama_cpp_python: str = ""
    llama_cpp: str = ""
    commit: str = ""
    """Short hash; empty where the build does not say."""
    features: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    """What each backend was compiled with, by llama.cpp's names: `("CPU", (("AVX2", "1"), ...))`."""
    backends: tuple[str, ...] = ()
    devices: tuple[LlamaDevice, ...] = ()
    cuda_version: tuple[int, int] | None = None
    """Of the CUDA runtime that is loaded with it; None without one, and where it is linked in statically."""

    def features_of(self, backend: str) -> dict[str, str]:
        """Return the features of a backend; none where it is not compiled in."""
        return dict(dict(self.features).get(backend, ()))


@dataclass(frozen=True, slots=True)
class CpuState:
    """The CPU, and what slows it; None where the system does not say."""

    name: str
    n_cores: int
    """Physical cores that this process may use."""
    n_cpus: int
    """Logical CPUs of the whole machine."""
    quota_cpus: float | None
    """CPU time that the container may use, in CPUs; None without a limit."""
    instructions: frozenset[str]
    """Instruction sets by the kernel's names, such as `avx512f`; empty where unknown."""
    governors: tuple[str, ...] = ()
    """Of the frequency scaling, each once."""
    scaling_driver: str | None = None
    energy_preference: str | None = None
    busy_share: float | None = None
    """Share of all CPUs that other programs used while ggbench looked, 0 to 1."""
    is_on_battery: bool | None = None


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Main memory and what limits it, bytes; None is no limit, or unknown."""

    total_bytes: int
    available_bytes: int
    """That can be allocated without swapping, within the container's limit."""
    container_limit_bytes: int | None
    swap_total_bytes: int
    swap_used_bytes: int
    address_space_limit_bytes: int | None
    """`ulimit -v`."""
    locked_limit_bytes: int | None
    """`ulimit -l`, which `--mlock` needs."""
    overcommit: int | None
    """`vm.overcommit_memory`: 2 grants no more than there is."""
    huge_pages: str | None
    """Transparent huge pages: `always`, `madvise` or `never`."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU that NVIDIA's driver reports."""

    gpu: Gpu
    compute_capability: tuple[int, int] | None
    """Such as (8, 9); None where the driver does not say."""
    processes: tuple[GpuProcess, ...] | None
    throttle: tuple[str, ...] | None
    """Why its clocks are held down, by nvidia-smi's names."""


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """NVIDIA's driver and the GPUs behind it."""

    version: str | None = None
    cuda_version: tuple[int, int] | None = None
    """The newest CUDA that this driver runs."""
    problem: str = ""
    """Why NVML does not answer; empty where it does, and where no NVIDIA GPU is on the bus."""
    gpus: tuple[GpuState, ...] = ()
    n_visible: int = 0
    """GPUs that CUDA_VISIBLE_DEVICES leaves."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that ggbench writes to, and its disk."""

    name: str
    """Such as `results`."""
    variable: str
    """Environment variable that moves it elsewhere, such as `XDG_DATA_HOME`."""
    path: str
    used_bytes: int | None
    """Of the files in it; None where that is unknown, 0 where it does not exist yet."""
    free_bytes: int | None
    """On its disk, for this user."""
    disk: int | None
    """The same number for folders on the same disk."""
    file_system: str | None
    """Such as `ext4` or `nfs4`."""
    is_writable: bool
    is_disposable: bool
    """Whether ggbench can make its content again."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """The results file as it is; looking at it changes nothing."""

    path: str
    file_bytes: int | None
    """With its write-ahead log; None where there is none yet."""
    version: int | None
    """Of its tables; None where it cannot be read."""
    newest_version: int
    """That this ggbench knows."""
    n_runs: int | None
    n_running: int = 0
    """Runs that still say so."""
    problem: str = ""
    """What SQLite's integrity check found, or why the file cannot be read; empty where it is sound."""
    is_foreign: bool = False
    """Whether it is the database of another program."""
    n_set_aside: int = 0
    """Damaged files that were moved aside and kept."""


@dataclass(frozen=True, slots=True)
class HubLogin:
    """How ggbench reaches the Hugging Face Hub; the token itself is never read."""

    token_from: str | None
    """`HF_TOKEN`, or the path of the token's file; None where nobody is logged in."""
    is_exposed: bool
    """Whether other users of this machine can read the token's file."""
    is_offline: bool
    """By an environment variable."""
    endpoint: str | None
    """None for the Hub's own."""
    problem: str = ""
    """What is wrong with the settings."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of this machine once, for forecasts and limits."""

    bandwidth: Bandwidth | None
    """Of main memory; None before the first run."""
    is_busy: bool = False
    """Whether it was taken on a busy machine, and so is too low."""
    shares: str | None = None
    """What models reach of the bandwidth here; None before two of them ran."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """All of it."""

    ggbench: str
    python: str
    os: str
    llama: LlamaBuild
    cpu: CpuState
    memory: MemoryState
    driver: GpuDriver
    places: tuple[Place, ...]
    store: StoreHealth
    hub: HubLogin
    calibration: Calibration
