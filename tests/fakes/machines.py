"""A machine with one GPU, as records keep it and as `ggbench doctor` sees it."""

from msgspec.structs import replace

from ggbench.decisions.doctor.checkup import Calibration, Checkup
from ggbench.engines.llama.build import LlamaBuild, LlamaDevice
from ggbench.hub.access import HubLogin
from ggbench.machine.condition import CpuState, DataFolder, GpuDriver, GpuState, MemoryState
from ggbench.machine.records import Environment, Gpu
from ggbench.runs.store.health import StoreHealth
from ggbench.stats.decode_timing import Bandwidth

GPU = Gpu(
    index=0, name="NVIDIA RTX 4090", uuid="GPU-1", pci_bus_id="0000:01:00.0", total_bytes=24 << 30,
    free_bytes=23 << 30, bus_width_bits=384, memory_clock_mhz=10501, driver="580.1",
)  # fmt: skip
ENVIRONMENT = Environment(
    ggbench="0.1.0", python="3.11.2", llama_cpp_python="0.3.36", llama_cpp="build 7000 (abcdef1)",
    system_info="CUDA : ARCHS = 890 | CPU : AVX512 = 1", os="Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64",
    cpu="AMD EPYC 9B14", n_cores=8, ram_bytes=64 << 30, gpus=(GPU,),
)  # fmt: skip


GIB = 1 << 30
HOME = "/home/alice"

PLACE = DataFolder(
    "results", "XDG_DATA_HOME", f"{HOME}/.local/share/ggbench", 3 << 20, 90 * GIB, 1, "ext4", True, False
)
CACHES = replace(
    PLACE, name="caches", variable="XDG_CACHE_HOME", path=f"{HOME}/.cache/ggbench", used_bytes=GIB + (14 << 20)
)
SOUND = Checkup(
    ggbench="0.1.0",
    python="3.11.2",
    os="Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64",
    llama=LlamaBuild(
        llama_cpp_python="0.3.36", llama_cpp="0.5.0", commit="0c1e570",
        features={"CPU": {"AVX2": "1", "AVX512": "1", "OPENMP": "1"}}, backends=("CPU",),
        devices=(LlamaDevice("CPU", "AMD EPYC 9B14", "CPU", False),),
    ),
    cpu=CpuState(
        "AMD EPYC 9B14", 8, 16, None, frozenset({"avx2", "avx512f", "sse3"}), ("performance",), "acpi-cpufreq"
    ),
    memory=MemoryState(64 * GIB, 60 * GIB, None, 0, 0, None, 8 << 20, 0, "madvise"),
    driver=GpuDriver(),
    places=(
        PLACE,
        CACHES,
        replace(CACHES, name="llama.cpp", path=f"{CACHES.path}/llama.cpp", is_disposable=True, used_bytes=14 << 20),
        replace(CACHES, name="twins", path=f"{CACHES.path}/twins", is_disposable=True, used_bytes=GIB),
    ),
    store=StoreHealth(f"{HOME}/.local/share/ggbench/results.sqlite", 3 << 20, 5, 5, 12),
    hub=HubLogin(None, False, False, None),
    calibration=Calibration(Bandwidth(12.8e9, "measured 2026-11-22 with 8 threads (memcmp)")),
)  # fmt: skip

CUDA_BUILD = replace(
    SOUND.llama,
    features=SOUND.llama.features | {"CUDA": {"ARCHS": "750,800,860,890", "USE_GRAPHS": "1"}},
    backends=("CUDA", "CPU"),
    devices=(LlamaDevice("CUDA0", GPU.name, "CUDA", True), *SOUND.llama.devices),
    cuda_version=(12, 4),
)
DRIVER = GpuDriver("580.1", (13, 0), "", (GpuState(GPU, (8, 9), (), ()),), 1)
WITH_GPU = replace(SOUND, llama=CUDA_BUILD, driver=DRIVER)
