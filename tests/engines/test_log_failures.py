"""Whether llama.cpp ran out of memory, and why it died, read from logs that it wrote on real machines."""

import pytest

from ggbench.engines.failure_lines import crash_cause, out_of_memory_line, wanted_bytes
from tests.fakes.recorded_logs import NAMES, lines_of

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
    assert out_of_memory_line(lines_of(name)) == BLAMED[name]


def test_a_tensor_that_is_too_large_for_a_device_is_too_little_memory_of_it() -> None:
    """The last lines of llama.cpp 0.5.0-dev with Vulkan on llvmpipe: 600,000 tokens, whose K takes 146 MiB a layer."""
    lines = [
        "sched_reserve: reserving ...",
        "ggml/src/ggml-backend.cpp:941: pre-allocated tensor (cache_k_l0) in a buffer (Vulkan0) that cannot run the "
        "operation (NONE)",
    ]
    assert out_of_memory_line(lines) == "cache_k_l0 is larger than Vulkan0 lets one tensor be"
    assert out_of_memory_line([line.replace("NONE", "SET_ROWS") for line in lines]) == ""


@pytest.mark.parametrize("name", NOT_OF_MEMORY)
def test_a_recorded_log_of_something_else_does_not_blame_memory(name: str) -> None:
    lines = lines_of(name)
    assert any(NOT_OF_MEMORY[name] in line for line in lines)
    assert out_of_memory_line(lines) == ""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in BLAMED.keys() | NOT_OF_MEMORY.keys()])
def test_a_log_of_a_run_that_worked_does_not_blame_memory(name: str) -> None:
    assert out_of_memory_line(lines_of(name)) == ""


@pytest.mark.parametrize(
    ("line", "n_bytes"),
    [
        ("ggml_aligned_malloc: insufficient memory (attempted to allocate  98.25 MB)", 103_022_592),
        ("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 103022592", 103_022_592),
        ("alloc_tensor_range: failed to allocate CUDA0 buffer of size 1024", 1024),
        ("terminate called after throwing an instance of 'std::bad_alloc'", None),
    ],
)
def test_the_size_of_an_allocation_that_failed(line: str, n_bytes: int | None) -> None:
    assert wanted_bytes(line) == n_bytes


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("illegal_access", "CUDA error: an illegal memory access was encountered"),
        ("no_kernel_image", "CUDA error: no kernel image is available for execution on the device"),
        ("cublas_not_created", "CUDA error: the resource allocation failed"),
    ],
)
def test_the_cause_of_a_crash_is_not_the_end_of_a_backtrace(name: str, cause: str) -> None:
    assert crash_cause(lines_of(name)) == cause


def test_a_driver_may_print_anything() -> None:
    assert crash_cause(["loading", "vk: fatal\x1b[2J\ufffd: device lost"]) == "vk: fatal[2J\ufffd: device lost"
