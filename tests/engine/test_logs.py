"""What llama.cpp allocated, read from logs that it wrote."""

from __future__ import annotations

from pathlib import Path

from ggbench.engine.logs import parse_allocations, tells_out_of_memory
from ggbench.records import DeviceBuffers
from ggbench.units import MIB

DATA = Path(__file__).parent.parent / "data"

# From reports of llama.cpp runs on CUDA, as its issue tracker has them.
CUDA_LOG = """\
load_tensors: offloading 28 repeating layers to GPU
load_tensors: offloaded 29/29 layers to GPU
load_tensors:        CUDA0 model buffer size =  4168.09 MiB
load_tensors:   CPU_Mapped model buffer size =   292.36 MiB
llama_context:  CUDA_Host  output buffer size =     0.58 MiB
llama_kv_cache:      CUDA0 KV buffer size =   224.00 MiB
llama_kv_cache: size =  224.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (f16):  112.00 MiB, V (f16):  112.00 MiB
llama_context: Flash Attention was auto, set to enabled
llama_context:      CUDA0 compute buffer size =   304.00 MiB
llama_context:  CUDA_Host compute buffer size =    15.01 MiB
"""


def test_a_recorded_cpu_log() -> None:
    """Every buffer of a real run is found, with the line of each to two decimals."""
    lines = (DATA / "llama_cpu_0.5b_q8_0.log").read_text(encoding="utf-8").splitlines()
    allocations = parse_allocations(lines)
    assert allocations.buffers == (
        DeviceBuffers("CPU_Mapped", weight_bytes=round(628.14 * MIB)),
        DeviceBuffers(
            "CPU",
            kv_bytes=48 * MIB,
            compute_bytes=round(300.75 * MIB),
            output_bytes=round(0.58 * MIB),
        ),
    )
    assert allocations.flash_attn is True
    assert allocations.total("kv_bytes") == 48 * MIB


def test_a_cuda_log_by_device() -> None:
    """Weights, KV, compute and output go to the device that each line names."""
    allocations = parse_allocations(CUDA_LOG.splitlines())
    assert {device.device for device in allocations.buffers} == {"CUDA0", "CPU_Mapped", "CUDA_Host"}
    cuda = allocations.buffers[0]
    assert (cuda.weight_bytes, cuda.kv_bytes, cuda.compute_bytes) == (round(4168.09 * MIB), 224 * MIB, 304 * MIB)
    assert allocations.flash_attn is True


def test_caches_side_by_side_are_added_up() -> None:
    """Sliding-window and recurrent models print one line for each cache that they hold."""
    lines = [
        "llama_kv_cache:        CPU KV buffer size =    16.00 MiB",
        "llama_kv_cache:        CPU KV buffer size =     4.00 MiB",
        "llama_memory_recurrent:        CPU RS buffer size =     2.25 MiB",
    ]
    assert parse_allocations(lines).buffers == (DeviceBuffers("CPU", kv_bytes=round(22.25 * MIB)),)


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


def test_a_dry_log_tells_the_cache_that_was_not_made() -> None:
    """The buffers of weights and KV are empty, and the cache's own line has its size."""
    allocations = parse_allocations(DRY_LOG.splitlines())
    assert allocations.cache_bytes == 400 * MIB
    assert (allocations.total("weight_bytes"), allocations.total("kv_bytes")) == (0, 0)
    assert allocations.total("compute_bytes") == round(306.75 * MIB)
    assert allocations.flash_attn is True


def test_the_sizes_of_caches_side_by_side_are_added_up() -> None:
    """A hybrid model tells one size for its attention and one for its recurrent state; without a context none is."""
    lines = [
        "llama_kv_cache: size =   16.00 MiB (   512 cells,   4 layers,  1/1 seqs), K (f16):    8.00 MiB, V (f16)",
        "llama_memory_recurrent: size =    2.25 MiB (     1 cells,  24 layers,  1 seqs), R (f32):    0.25 MiB, S",
    ]
    assert parse_allocations(lines).cache_bytes == round(18.25 * MIB)
    assert parse_allocations(["load_tensors: offloaded 29/29 layers to GPU"]).cache_bytes is None


def test_flash_attention_as_asked_for() -> None:
    """What the context was told stands where llama.cpp did not have to decide; nothing said is None."""
    assert parse_allocations(["llama_context: flash_attn            = disabled"]).flash_attn is False
    assert parse_allocations(["llama_context: flash_attn            = enabled"]).flash_attn is True
    assert parse_allocations(["llama_context: flash_attn            = auto"]).flash_attn is None


def test_memory_is_blamed_only_by_lines_that_blame_it() -> None:
    """llama.cpp's lines for allocations that fail, on CPU and CUDA; other failures are not taken for them."""
    cpu = "ggml_aligned_malloc: insufficient memory (attempted to allocate 1536.00 MB)"
    cuda = "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory"
    assert tells_out_of_memory(["load_tensors: loading", cpu]) == cpu
    assert tells_out_of_memory([cuda]) == cuda
    assert tells_out_of_memory(["llama_model_load: error loading model: unknown model architecture: 'x'"]) == ""


def test_each_gpu_in_use_has_the_id_that_the_log_told() -> None:
    """Made up after llama.cpp's own format: a bus id, a UUID, and a device whose backend knows no id."""
    lines = [
        "llama_prepare_model_devices: using device CUDA0 (NVIDIA Card (80 GB)) (0000:41:00.0) - 81000 MiB free",
        "llama_prepare_model_devices: using device CUDA1 (NVIDIA Card) (GPU-aaaa2222-0000) - 81000 MiB free",
        "llama_prepare_model_devices: using device CUDA2 (NVIDIA Card) (unknown id) - 81000 MiB free",
        "load_tensors:   CPU_Mapped model buffer size =   292.36 MiB",
        *(f"load_tensors:        CUDA{number} model buffer size =  1000.00 MiB" for number in range(3)),
        "llama_context:  CUDA_Host compute buffer size =    15.01 MiB",
    ]
    allocations = parse_allocations(lines)
    assert allocations.device_ids == (("CUDA0", "0000:41:00.0"), ("CUDA1", "GPU-aaaa2222-0000"))
    assert allocations.gpu_devices == (("CUDA0", "0000:41:00.0"), ("CUDA1", "GPU-aaaa2222-0000"), ("CUDA2", None))
