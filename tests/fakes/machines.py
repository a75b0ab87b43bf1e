"""A machine with one GPU, as records keep it; change what a test is about with dataclasses.replace."""

from ggbench.machine.records import Environment, Gpu

GPU = Gpu(
    index=0, name="NVIDIA RTX 4090", uuid="GPU-1", pci_bus_id="0000:01:00.0", total_bytes=24 << 30,
    free_bytes=23 << 30, bus_width_bits=384, memory_clock_mhz=10501, driver="580.1",
)  # fmt: skip
ENVIRONMENT = Environment(
    ggbench="0.1.0", python="3.11.2", llama_cpp_python="0.3.36", llama_cpp="build 7000 (abcdef1)",
    system_info="CUDA : ARCHS = 890 | CPU : AVX512 = 1", os="Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64",
    cpu="AMD EPYC 9B14", n_cores=8, ram_bytes=64 << 30, gpus=(GPU,),
)  # fmt: skip
