"""A machine with one GPU, as records keep it and as `ggbench doctor` sees it."""

from msgspec.structs import replace

from ggbench.decisions.doctor.checkup import Checkup, Folder
from ggbench.engines.llama.build import LlamaBuild, LlamaDevice
from ggbench.machine.records import Environment, Gpu, GpuReading
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

CACHES = Folder("caches", "XDG_CACHE_HOME", f"{HOME}/.cache/ggbench", 90 * GIB, True)
SOUND = Checkup(
    ggbench="0.1.0",
    python="3.11.2",
    os="Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64",
    llama_cpp=LlamaBuild(
        llama_cpp_python="0.3.36", llama_cpp="0.5.0", commit="0c1e570",
        features=("AVX2", "AVX512", "OPENMP"), backends=("CPU",),
        devices=(LlamaDevice("CPU", "AMD EPYC 9B14", "CPU", False),),
    ),
    cpu="AMD EPYC 9B14",
    n_cores=8,
    total_bytes=64 * GIB,
    available_bytes=60 * GIB,
    folders=(Folder("results", "XDG_DATA_HOME", f"{HOME}/.local/share/ggbench", 90 * GIB, True), CACHES),
    results=StoreHealth(f"{HOME}/.local/share/ggbench/results.sqlite", 3 << 20, 12),
    bandwidth=Bandwidth(12.8e9, "measured 2026-11-22 with 8 threads (memcmp)"),
)  # fmt: skip

CUDA_BUILD = replace(
    SOUND.llama_cpp,
    backends=("CUDA", "CPU"),
    devices=(LlamaDevice("CUDA0", GPU.name, "CUDA", True), *SOUND.llama_cpp.devices),
)
READING = GpuReading(0, GPU.name, used_bytes=GIB, total_bytes=24 * GIB, throttle=(), processes=())
WITH_GPU = replace(SOUND, llama_cpp=CUDA_BUILD, driver="580.1", gpus=(READING,))
