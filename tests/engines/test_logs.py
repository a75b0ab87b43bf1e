"""What llama.cpp allocated, read from logs that llama.cpp wrote on real machines."""

from dataclasses import dataclass, field

import pytest

from ggbench.engines.events import Allocated, MemoryKind
from ggbench.engines.llama.logs import parse_allocations
from ggbench.units import MIB
from tests.fakes.recorded_logs import lines_of

PLACES = {
    "CPU": MemoryKind.HOST,
    **{f"CUDA{number}": MemoryKind.GPU for number in range(4)},
    "CUDA_Host": MemoryKind.HOST,
    "Vulkan0": MemoryKind.GPU,
    "Vulkan_Host": MemoryKind.HOST,
    "RPC[10.2.0.3:9999]": MemoryKind.REMOTE,
}
"""What ggml's devices and buffer types are called on the machines that the logs are from."""


def read(lines: list[str]) -> Allocated:
    """The allocations of a log, on a machine with those devices."""
    return parse_allocations(lines, PLACES)


def mib(n_bytes: int | None) -> float | None:
    return None if n_bytes is None else round(n_bytes / MIB, 2)


@dataclass(frozen=True, slots=True)
class Estimate:
    weights: dict[str, float] = field(default_factory=dict)
    kv: dict[str, float] = field(default_factory=dict)
    compute: dict[str, float] = field(default_factory=dict)
    output: dict[str, float] = field(default_factory=dict)
    cache: float | None = None
    flash_attn: bool | None = None
    gpus: tuple[tuple[str, str | None], ...] = ()
    is_all_offloaded: bool = False


def in_mib(allocated: Allocated) -> Estimate:
    """The same of what was read; buffers that are 0 are left out."""

    def by_device(part: str) -> dict[str, float]:
        return {each.device: n for each in allocated.buffers if (n := round(getattr(each, part) / MIB, 2))}

    return Estimate(
        weights=by_device("weight_bytes"), kv=by_device("kv_bytes"), compute=by_device("compute_bytes"),
        output=by_device("output_bytes"), cache=mib(allocated.cache_bytes), flash_attn=allocated.flash_attn,
        gpus=allocated.gpu_devices, is_all_offloaded=allocated.is_all_offloaded,
    )  # fmt: skip


ONE_GPU = (("CUDA0", None),)
FOUR_GPUS = tuple((f"CUDA{n}", f"0000:{bus}:00.0") for n, bus in enumerate(("16", "34", "ac", "ca")))

LOGS = {
    # One GPU whose memory is the machine's; the lines of the context's end give its compute buffers a second time.
    "qwen3_4b_gb10": Estimate(
        weights={"CPU_Mapped": 304.28, "CUDA0": 2375.91}, kv={"CUDA0": 576.00},
        compute={"CUDA0": 301.75, "CUDA_Host": 18.01}, output={"CUDA_Host": 0.58}, cache=576.00, flash_attn=True,
        gpus=ONE_GPU, is_all_offloaded=True,
    ),
    # A cache of all tokens and one of the sliding window.
    "gemma4_iswa_gb10": Estimate(
        kv={"CUDA0": 512.00 + 1280.00}, compute={"CUDA0": 569.01, "CUDA_Host": 159.02}, cache=1792.00, flash_attn=True,
        gpus=ONE_GPU,
    ),
    # A cache of the attention layers and the state of the recurrent ones.
    "qwen3_6_hybrid_gb10": Estimate(
        kv={"CUDA0": 2048.00 + 149.62}, compute={"CUDA0": 495.00, "CUDA_Host": 84.02}, output={"CUDA_Host": 0.95},
        cache=2197.62, flash_attn=True, gpus=ONE_GPU,
    ),
    # A cache of keys and one of the indexer's over four GPUs; the experts in main memory leave every layer offloaded.
    "glm_dsa_4_gpus": Estimate(
        weights={"CUDA0": 19485.92, "CUDA1": 62690.10, "CUDA2": 55724.53, "CUDA3": 44989.64, "CUDA_Host": 346468.22},
        kv={"CUDA0": 57640.62, "CUDA1": 9296.88, "CUDA2": 8312.50, "CUDA3": 6125.00},
        compute={"CUDA0": 5374.07, "CUDA1": 3752.07, "CUDA2": 3744.07, "CUDA3": 3736.07, "CUDA_Host": 1774.07},
        output={"CUDA_Host": 0.59}, cache=81375.00, flash_attn=True, gpus=FOUR_GPUS,
        is_all_offloaded=True,
    ),
    # The states beside DeepSeek V4's caches have a wording of their own.
    "dsv4_compressor_state": Estimate(kv={"CUDA0": 11.64}, output={"CUDA_Host": 0.49}, cache=11.64, gpus=ONE_GPU),
    "row_split_4_gpus": Estimate(
        weights={"CUDA0_Split": 14056.88, "CUDA1_Split": 13387.50, "CUDA2_Split": 13387.50, "CUDA3_Split": 13540.08,
            "CUDA0": 1.31, "CUDA1": 1.25, "CUDA2": 1.25, "CUDA3": 1.22},
        gpus=tuple((f"CUDA{n}{part}", None) for part in ("_Split", "") for n in range(4)), is_all_offloaded=True,
    ),
    "partial_offload": Estimate(weights={"CPU_Mapped": 4944.60, "CUDA0": 3621.44}, gpus=ONE_GPU),
    "flash_attn_disabled": Estimate(kv={"CPU": 78080.00}, output={"CUDA_Host": 0.49}, cache=78080.00, flash_attn=False),
    "quantized_kv": Estimate(
        kv={"CUDA0": 544.00}, output={"CUDA_Host": 0.95}, cache=544.00, flash_attn=True, gpus=ONE_GPU,
    ),
    "kv_in_pinned_memory": Estimate(
        kv={"CUDA_Host": 72.00}, compute={"CUDA0": 3009.50, "CUDA_Host": 24.01}, output={"CUDA_Host": 0.98},
        flash_attn=False, gpus=ONE_GPU,
    ),
    "devices_without_ids": Estimate(
        compute={"CUDA0": 616.05, "CUDA1": 296.25, "CUDA_Host": 12.26}, gpus=(("CUDA0", None), ("CUDA1", None)),
    ),
    # A device of another machine has its address in its name.
    "rpc": Estimate(
        kv={"RPC[10.2.0.3:9999]": 128.00, "CUDA0": 128.00}, gpus=(("RPC[10.2.0.3:9999]", None), ("CUDA0", None)),
    ),
    "mlock_refused": Estimate(weights={"CUDA_Host": 788.91, "CUDA0": 16306.25}, gpus=ONE_GPU, is_all_offloaded=True),
    "pinned_memory_refused": Estimate(
        weights={"CUDA0": 43919.32, "CPU": 20608.00}, gpus=ONE_GPU, is_all_offloaded=True,
    ),
    # Up to the first failure: the compute buffers never came to be.
    "pipeline_2_gpus": Estimate(
        kv={"CUDA0": 12327.00, "CUDA1": 11153.00}, output={"CUDA_Host": 0.50}, cache=23480.00,
        gpus=(("CUDA0", None), ("CUDA1", None)),
    ),
    "oom_of_compute_vulkan": Estimate(
        kv={"Vulkan0": 6564.00}, output={"Vulkan_Host": 0.58}, cache=6564.00, gpus=(("Vulkan0", None),),
    ),
    # Before any buffer, the GPUs in use are those with an id.
    "oom_at_load": Estimate(gpus=FOUR_GPUS),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_log_is_read_whole(name: str) -> None:
    assert in_mib(read(lines_of(name))) == LOGS[name]


# llama-cpp-python 0.3.36 with `no_alloc`, qwen1.5-4b q8_0.
DRY_LOG = """\
load_tensors:          CPU model buffer size =     0.00 MiB
llama_context:        CPU  output buffer size =     0.58 MiB
llama_kv_cache:        CPU KV buffer size =     0.00 MiB
llama_kv_cache: size =  400.00 MiB (  1024 cells,  40 layers,  1/1 seqs), K (f16):  200.00 MiB, V (f16):  200.00 MiB
llama_kv_cache: attn_rot_k = 0, n_embd_head_k_all = 128
resolve_fused_ops: Flash Attention enabled
sched_reserve:        CPU compute buffer size =   306.75 MiB
"""


def test_a_dry_log_has_the_size_of_the_cache_that_was_not_made() -> None:
    allocations = read(DRY_LOG.splitlines())
    assert allocations.cache_bytes == 400 * MIB
    assert (allocations.total("weight_bytes"), allocations.total("kv_bytes")) == (0, 0)
    assert allocations.total("compute_bytes") == round(306.75 * MIB)
    assert allocations.flash_attn is True


def test_each_gpu_in_use_has_the_id_that_the_log_gave() -> None:
    lines = [
        "llama_prepare_model_devices: using device CUDA0 (NVIDIA Card (80 GB)) (0000:41:00.0) - 81000 MiB free",
        "llama_prepare_model_devices: using device CUDA1 (NVIDIA Card) (GPU-aaaa2222-0000) - 81000 MiB free",
        "llama_prepare_model_devices: using device CUDA2 (NVIDIA Card) (unknown id) - 81000 MiB free",
        "load_tensors:   CPU_Mapped model buffer size =   292.36 MiB",
        *(f"load_tensors:        CUDA{number} model buffer size =  1000.00 MiB" for number in range(3)),
        "llama_context:  CUDA_Host compute buffer size =    15.01 MiB",
    ]
    allocations = read(lines)
    assert allocations.device_ids == (("CUDA0", "0000:41:00.0"), ("CUDA1", "GPU-aaaa2222-0000"))
    assert allocations.gpu_devices == (("CUDA0", "0000:41:00.0"), ("CUDA1", "GPU-aaaa2222-0000"), ("CUDA2", None))
