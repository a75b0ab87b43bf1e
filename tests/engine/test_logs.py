"""What llama.cpp allocated, and whether it ran out of memory, read from logs that llama.cpp wrote on real machines.

The first line of each log in `llama_cuda` tells where its author published it and what it was recorded on. Lines left
out are marked "..."; what a server put before a line (time, level, colour) is gone, for llama.cpp's callback has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from ggbench.engine.logs import Allocations, parse_allocations, tells_cause, tells_out_of_memory
from ggbench.records.memory import DeviceBuffers
from ggbench.units import MIB

DATA = Path(__file__).parent.parent / "data"
RECORDED = DATA / "llama_cuda"


def lines_of(name: str) -> list[str]:
    """A recorded log without the line that tells where it is from."""
    source, *lines = (RECORDED / f"{name}.log").read_text(encoding="utf-8").splitlines()
    assert source.startswith("# https://")
    return lines


def mib(n_bytes: int | None) -> float | None:
    """As llama.cpp prints it."""
    return None if n_bytes is None else round(n_bytes / MIB, 2)


@dataclass(frozen=True, slots=True)
class Told:
    """What a log says, in llama.cpp's own MiB."""

    weights: dict[str, float]
    kv: dict[str, float]
    compute: dict[str, float]
    output: dict[str, float]
    cache: float | None = None
    flash_attn: bool | None = None
    gpus: tuple[tuple[str, str | None], ...] = ()
    is_all_offloaded: bool = False


def told_by(allocations: Allocations) -> Told:
    """The same of what was read; buffers that are 0 are left out."""

    def by_device(field: str) -> dict[str, float]:
        return {each.device: n for each in allocations.buffers if (n := round(getattr(each, field) / MIB, 2))}

    return Told(
        weights=by_device("weight_bytes"),
        kv=by_device("kv_bytes"),
        compute=by_device("compute_bytes"),
        output=by_device("output_bytes"),
        cache=mib(allocations.cache_bytes),
        flash_attn=allocations.flash_attn,
        gpus=allocations.gpu_devices,
        is_all_offloaded=allocations.is_all_offloaded,
    )


ONE_GPU = (("CUDA0", None),)

TOLD = {
    # One GPU whose memory is the machine's; the lines of the context's end tell its compute buffers a second time.
    "qwen3_4b_gb10": Told(
        weights={"CPU_Mapped": 304.28, "CUDA0": 2375.91},
        kv={"CUDA0": 576.00},
        compute={"CUDA0": 301.75, "CUDA_Host": 18.01},
        output={"CUDA_Host": 0.58},
        cache=576.00,
        flash_attn=True,
        gpus=ONE_GPU,
        is_all_offloaded=True,
    ),
    # A cache of all tokens and one of the sliding window.
    "gemma4_iswa_gb10": Told(
        weights={},
        kv={"CUDA0": 512.00 + 1280.00},
        compute={"CUDA0": 569.01, "CUDA_Host": 159.02},
        output={},
        cache=1792.00,
        flash_attn=True,
        gpus=ONE_GPU,
    ),
    # A cache of the attention layers and the state of the recurrent ones.
    "qwen3_6_hybrid_gb10": Told(
        weights={},
        kv={"CUDA0": 2048.00 + 149.62},
        compute={"CUDA0": 495.00, "CUDA_Host": 84.02},
        output={"CUDA_Host": 0.95},
        cache=2197.62,
        flash_attn=True,
        gpus=ONE_GPU,
    ),
    # A cache of keys and one of the indexer's over four GPUs; the experts in main memory leave every layer offloaded.
    "glm_dsa_4_gpus": Told(
        weights={
            "CUDA0": 19485.92,
            "CUDA1": 62690.10,
            "CUDA2": 55724.53,
            "CUDA3": 44989.64,
            "CUDA_Host": 346468.22,
        },
        kv={"CUDA0": 57640.62, "CUDA1": 9296.88, "CUDA2": 8312.50, "CUDA3": 6125.00},
        compute={"CUDA0": 5374.07, "CUDA1": 3752.07, "CUDA2": 3744.07, "CUDA3": 3736.07, "CUDA_Host": 1774.07},
        output={"CUDA_Host": 0.59},
        cache=81375.00,
        flash_attn=True,
        gpus=(
            ("CUDA0", "0000:16:00.0"),
            ("CUDA1", "0000:34:00.0"),
            ("CUDA2", "0000:ac:00.0"),
            ("CUDA3", "0000:ca:00.0"),
        ),
        is_all_offloaded=True,
    ),
    # The states beside DeepSeek V4's caches have a wording of their own.
    "dsv4_compressor_state": Told(
        weights={},
        kv={"CUDA0": 11.64},
        compute={},
        output={"CUDA_Host": 0.49},
        cache=11.64,
        gpus=ONE_GPU,
    ),
    "row_split_4_gpus": Told(
        weights={
            "CUDA0_Split": 14056.88,
            "CUDA1_Split": 13387.50,
            "CUDA2_Split": 13387.50,
            "CUDA3_Split": 13540.08,
            "CUDA0": 1.31,
            "CUDA1": 1.25,
            "CUDA2": 1.25,
            "CUDA3": 1.22,
        },
        kv={},
        compute={},
        output={},
        gpus=tuple((f"CUDA{n}{part}", None) for part in ("_Split", "") for n in range(4)),
        is_all_offloaded=True,
    ),
    "partial_offload": Told(
        weights={"CPU_Mapped": 4944.60, "CUDA0": 3621.44}, kv={}, compute={}, output={}, gpus=ONE_GPU
    ),
    "flash_attn_disabled": Told(
        weights={}, kv={"CPU": 78080.00}, compute={}, output={"CUDA_Host": 0.49}, cache=78080.00, flash_attn=False
    ),
    "quantized_kv": Told(
        weights={},
        kv={"CUDA0": 544.00},
        compute={},
        output={"CUDA_Host": 0.95},
        cache=544.00,
        flash_attn=True,
        gpus=ONE_GPU,
    ),
    "kv_in_pinned_memory": Told(
        weights={},
        kv={"CUDA_Host": 72.00},
        compute={"CUDA0": 3009.50, "CUDA_Host": 24.01},
        output={"CUDA_Host": 0.98},
        flash_attn=False,
        gpus=ONE_GPU,
    ),
    "devices_without_ids": Told(
        weights={},
        kv={},
        compute={"CUDA0": 616.05, "CUDA1": 296.25, "CUDA_Host": 12.26},
        output={},
        gpus=(("CUDA0", None), ("CUDA1", None)),
    ),
    # A device of another machine has its address in its name.
    "rpc": Told(
        weights={},
        kv={"RPC[10.2.0.3:9999]": 128.00, "CUDA0": 128.00},
        compute={},
        output={},
        gpus=(("RPC[10.2.0.3:9999]", None), ("CUDA0", None)),
    ),
    "mlock_refused": Told(
        weights={"CUDA_Host": 788.91, "CUDA0": 16306.25},
        kv={},
        compute={},
        output={},
        gpus=ONE_GPU,
        is_all_offloaded=True,
    ),
    "pinned_memory_refused": Told(
        weights={"CUDA0": 43919.32, "CPU": 20608.00},
        kv={},
        compute={},
        output={},
        gpus=ONE_GPU,
        is_all_offloaded=True,
    ),
    # Up to the first failure: the compute buffers never came to be.
    "pipeline_2_gpus": Told(
        weights={},
        kv={"CUDA0": 12327.00, "CUDA1": 11153.00},
        compute={},
        output={"CUDA_Host": 0.50},
        cache=23480.00,
        gpus=(("CUDA0", None), ("CUDA1", None)),
    ),
    "oom_of_compute_vulkan": Told(
        weights={},
        kv={"Vulkan0": 6564.00},
        compute={},
        output={"Vulkan_Host": 0.58},
        cache=6564.00,
        gpus=(("Vulkan0", None),),
    ),
    # Before any buffer, the GPUs in use are those with an id.
    "oom_at_load": Told(
        weights={},
        kv={},
        compute={},
        output={},
        gpus=(
            ("CUDA0", "0000:16:00.0"),
            ("CUDA1", "0000:34:00.0"),
            ("CUDA2", "0000:ac:00.0"),
            ("CUDA3", "0000:ca:00.0"),
        ),
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_recorded_log_is_read_whole(name: str) -> None:
    """Every buffer goes to the device that its line names, to llama.cpp's two decimals."""
    assert told_by(parse_allocations(lines_of(name))) == TOLD[name]


@pytest.mark.parametrize("name", [name for name, told in TOLD.items() if told.cache is not None])
def test_the_buffers_of_the_caches_add_up_to_the_size_that_the_log_tells(name: str) -> None:
    """Two kinds of lines say how large the caches are, each rounded to 0.01 MiB by llama.cpp."""
    allocations = parse_allocations(lines_of(name))
    assert allocations.cache_bytes is not None
    assert mib(allocations.total("kv_bytes")) == pytest.approx(mib(allocations.cache_bytes), abs=0.03)


def test_each_device_has_what_llama_cpp_itself_counts_there() -> None:
    """The breakdown at the end of that run has model, context and compute of each GPU in whole MiB, rounded down."""
    lines = lines_of("glm_dsa_4_gpus")
    row = re.compile(r"- (CUDA\d) .*\( *\d+ = +(\d+) \+ +(\d+) \+ +(\d+)\)")
    counted = {match[1]: tuple(int(match[n]) for n in (2, 3, 4)) for line in lines if (match := row.search(line))}
    assert len(counted) == 4
    assert counted == {
        each.device: tuple(n_bytes // MIB for n_bytes in (each.weight_bytes, each.kv_bytes, each.compute_bytes))
        for each in parse_allocations(lines).buffers
        if not each.is_host
    }


@pytest.mark.parametrize("name", ["qwen3_4b_gb10", "gemma4_iswa_gb10", "qwen3_6_hybrid_gb10"])
def test_compute_buffers_are_those_that_the_context_had_at_its_end(name: str) -> None:
    """The destructor of a context tells its compute buffers to four decimals."""
    lines = lines_of(name)
    last = re.compile(r"^~llama_context: +(\w+) compute buffer size is +([\d.]+) MiB, matches")
    at_end = {match[1]: float(match[2]) for line in lines if (match := last.search(line))}
    read = {each.device: each.compute_bytes / MIB for each in parse_allocations(lines).buffers if each.compute_bytes}
    assert len(at_end) == 2
    assert read == pytest.approx(at_end, abs=0.006)


def test_a_compute_buffer_that_is_reserved_again_takes_the_place_of_the_first() -> None:
    """A second reservation in one context, of the recorded figures of another model, is not added to the first."""
    lines = lines_of("qwen3_4b_gb10")
    again = [line for line in lines_of("gemma4_iswa_gb10") if line.startswith("sched_reserve:")]
    compute = told_by(parse_allocations([*lines, *again])).compute
    assert compute == {"CUDA0": 569.01, "CUDA_Host": 159.02}


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


def test_flash_attention_in_wordings_that_no_log_at_hand_has() -> None:
    """Made up after llama.cpp's llama-context.cpp: what was asked for, and what the GPU did not support."""
    assert parse_allocations(["llama_context: flash_attn            = disabled"]).flash_attn is False
    unsupported = [
        "resolve_fused_ops: layer 0 is assigned to device CUDA0 but Flash Attention is assigned to device CPU "
        "(usually due to missing support)",
        "resolve_fused_ops: Flash Attention not supported, set to disabled",
    ]
    assert parse_allocations(unsupported).flash_attn is False
    assert parse_allocations(unsupported[:1]).flash_attn is None
    assert parse_allocations(["llama_context: flash_attn            = auto"]).flash_attn is None


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


CUDA_ALLOC = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {} MiB on device {}: cudaMalloc failed: out of memory"
)

BLAMED = {
    "oom_at_load": CUDA_ALLOC.format("132345.77", 2),
    "oom_of_kv": CUDA_ALLOC.format("204800.00", 0),
    "oom_of_kv_cpu": "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 137438953504",
    "oom_of_compute": "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 2611253376",
    "oom_of_compute_rocm": CUDA_ALLOC.format("14136.04", 0),
    "oom_of_compute_vulkan": (
        "ggml_vulkan: Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory"
    ),
    "pipeline_2_gpus": CUDA_ALLOC.format("12710.31", 0),
    "oom_in_decode": "CUDA error: out of memory",
    "oom_in_first_kernel": "CUDA error: out of memory",
}

NOT_OF_MEMORY = {
    # llama.cpp went on after these.
    "pipeline_retry": "retrying without pipeline parallelism",
    "pinned_memory_refused": "of pinned memory: out of memory",
    "mlock_refused": "Cannot allocate memory",
    "kv_in_pinned_memory": "failed to allocate graph, reserving",
    # And died of these.
    "illegal_access": "an illegal memory access was encountered",
    "no_kernel_image": "no kernel image is available",
    "kernel_image_invalid": "device kernel image is invalid",
    "driver_too_old": "CUDA driver version is insufficient",
    "cublas_not_created": "the resource allocation failed",
}


@pytest.mark.parametrize("name", BLAMED)
def test_a_recorded_log_that_blames_memory_does_so_by_its_first_line_of_it(name: str) -> None:
    """At load, for KV, for compute buffers and in decode, on CUDA, ROCm, Vulkan and CPU."""
    assert tells_out_of_memory(lines_of(name)) == BLAMED[name]


@pytest.mark.parametrize("name", NOT_OF_MEMORY)
def test_a_recorded_log_of_something_else_does_not_blame_memory(name: str) -> None:
    """Neither what llama.cpp recovered from nor another failure; cuBLAS failed so on a GPU with 24 GB free."""
    lines = lines_of(name)
    assert any(NOT_OF_MEMORY[name] in line for line in lines)
    assert tells_out_of_memory(lines) == ""


@pytest.mark.parametrize("name", [name for name in TOLD if name not in BLAMED.keys() | NOT_OF_MEMORY.keys()])
def test_a_log_of_a_run_that_worked_does_not_blame_memory(name: str) -> None:
    """No line of a load or a context that came to be is taken for running out."""
    assert tells_out_of_memory(lines_of(name)) == ""


@pytest.mark.parametrize("name", ["oom_at_load", "oom_of_compute_rocm", "pipeline_2_gpus", "pipeline_retry"])
def test_the_lines_that_blame_memory_are_of_one_allocation(name: str) -> None:
    """What CUDA was asked for in MiB is what llama.cpp's next line tells in bytes: the excerpts are whole there."""
    text = "\n".join(lines_of(name))
    asked, n_bytes = re.search(r"allocating ([\d.]+) MiB", text), re.search(r"buffer of size (\d+)", text)
    assert asked and n_bytes
    assert mib(int(n_bytes[1])) == float(asked[1])


def test_a_retry_that_fails_as_well_blames_memory() -> None:
    """What was forgotten is the first attempt alone; the second is that of another recorded log."""
    retried = [*lines_of("pipeline_retry"), *lines_of("oom_of_compute")]
    assert tells_out_of_memory(retried) == BLAMED["oom_of_compute"]


def test_memory_is_blamed_for_an_allocation_on_the_cpu() -> None:
    """Made up after llama.cpp's ggml.c; the model that nobody knows is a failure of another kind."""
    cpu = "ggml_aligned_malloc: insufficient memory (attempted to allocate 1536.00 MB)"
    assert tells_out_of_memory(["load_tensors: loading", cpu]) == cpu
    assert tells_out_of_memory(["llama_model_load: error loading model: unknown model architecture: 'x'"]) == ""


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("illegal_access", "CUDA error: an illegal memory access was encountered"),
        ("no_kernel_image", "CUDA error: no kernel image is available for execution on the device"),
        ("cublas_not_created", "CUDA error: the resource allocation failed"),
    ],
)
def test_last_words_tell_the_cause_and_not_the_end_of_a_backtrace(name: str, cause: str) -> None:
    """What follows it says where in llama.cpp's source that was."""
    assert tells_cause(lines_of(name)) == cause


def test_last_words_without_a_known_cause_are_the_last_of_them() -> None:
    """Made up: a library's own complaint, and silence."""
    assert tells_cause(["loading", " symbol lookup error ", ""]) == "symbol lookup error"
    assert tells_cause(["", " "]) == ""


def test_every_recorded_log_is_replayed() -> None:
    """None lies there unread."""
    assert {path.stem for path in RECORDED.glob("*.log")} == TOLD.keys() | BLAMED.keys() | NOT_OF_MEMORY.keys()
