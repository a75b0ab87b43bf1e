"""GPUs that are not here, sized by llama.cpp's own allocator: alone, several, and as RPC servers hold them."""

import contextlib
import ctypes
import re
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from ggbench.engines.contract import DescribedDevice, EstimateMemory, Source, launch_engine
from ggbench.engines.endings import Completed, Failed
from ggbench.engines.events import Allocated
from ggbench.engines.llama.backend_rules import BACKENDS, Tensor
from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import write_sparse
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_headers
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import DeviceMemory
from ggbench.units import GIB, MIB
from tests.fakes.rpc_server import serving, with_rpc

pytestmark = pytest.mark.llama
MODELS = ("qwen1.5-0.5b", "qwen3-30b-a3b", "deepseek-v2-lite")
SETUPS = {
    "shares": LlamaConfig(tensor_split=(1, 2), threads=1),
    "quantized KV": LlamaConfig(type_k="q8_0", type_v="q8_0", threads=1),
    "most layers": LlamaConfig(n_gpu_layers=2, threads=1),
    "no flash attention": LlamaConfig(flash_attn="off", threads=1),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ModelFile, Path]]:
    found = {}
    for model in MODELS:
        [target] = resolve_headers(parse_model(model, "q4_k_m"))
        file = target.header()
        found[model] = file, write_sparse(file, tmp_path_factory.mktemp(model))
    return found


def allocated(path: Path, setup: LlamaConfig, devices: tuple[DescribedDevice, ...]) -> Allocated:
    with contextlib.closing(launch_engine(LlamaConfig())) as engine:
        *events, ending = engine.run(EstimateMemory(Source(path), setup, devices))
    assert isinstance(ending, Completed), ending
    return [event for event in events if isinstance(event, Allocated)][-1]


def test_a_card_that_is_not_here_takes_the_layers_and_their_cache(files: dict[str, tuple[ModelFile, Path]]) -> None:
    _, path = files["qwen1.5-0.5b"]
    setup = LlamaConfig(n_ctx=4096, threads=1)
    found = {each.device: each for each in allocated(path, setup, (DescribedDevice("CUDA0", "CUDA", GIB),)).buffers}
    assert not found["CUDA0"].is_host
    assert found["CUDA0"].compute_bytes > 10 * MIB > found["CPU"].compute_bytes
    assert found["CPU"].output_bytes


@pytest.mark.parametrize("model", ["qwen3.5-0.8b", "granite-4.0-h-tiny", "lfm2-1.2b", "nemotron-3-nano-30b-a3b"])
def test_recurrent_states_are_allocated_wherever_main_memory_begins(model: str, tmp_path: Path) -> None:
    """Tensors of the card are aligned to 128 bytes, those of main memory to 64."""
    [target] = resolve_headers(parse_model(model, "f16"))
    path = write_sparse(target.header(), tmp_path)
    found = allocated(path, LlamaConfig(n_ctx=4096, threads=1), (DescribedDevice("CUDA0", "CUDA", GIB),))
    states = sum(state.state_bytes for state in target.header().states)
    assert found.total("kv_bytes") == pytest.approx(states, abs=0.1 * MIB)
    assert found.cache_bytes is not None and found.cache_bytes > states


def test_recurrent_states_of_a_card_take_no_memory_here(tmp_path: Path) -> None:
    """llama.cpp allocates and clears them even where it only sizes."""
    [target] = resolve_headers(parse_model("qwen3.5-0.8b", "f16"))
    path, setup = write_sparse(target.header(), tmp_path), LlamaConfig(n_ctx=128 * 256, n_seq_max=128, threads=1)
    before = {child.pid for child in psutil.Process().children()}
    with contextlib.closing(launch_engine(LlamaConfig())) as engine:
        *events, _ = engine.run(EstimateMemory(Source(path), setup, (DescribedDevice("CUDA0", "CUDA", GIB),)))
        [worker] = {child.pid for child in psutil.Process().children()} - before
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{worker}/status").read_text())
    *_, found = [event for event in events if isinstance(event, Allocated)]
    assert peak and found.total("kv_bytes") > 2 * GIB > 4 * int(peak[1]) << 10


def compute_bytes(path: Path, setup: LlamaConfig, backend: str) -> int:
    return allocated(path, setup, (DescribedDevice("GPU0", backend, GIB),)).total("compute_bytes")


@pytest.mark.parametrize(
    ("backend", "type_kv", "copies"),
    [
        ("CUDA", "f16", False),
        ("CUDA", "q8_0", True),
        ("ROCm", "q4_0", True),
        ("SYCL", "q8_0", True),
        ("MTL", "f16", True),
        ("MTL", "q8_0", True),
        ("Vulkan", "q8_0", False),
    ],
)
def test_flash_attention_keeps_one_layer_in_f16_where_its_backend_does(
    files: dict[str, tuple[ModelFile, Path]], backend: str, type_kv: str, copies: bool
) -> None:
    """K and V of all cells, in a compute buffer that has some room for them already."""
    file, path = files["qwen1.5-0.5b"]
    setup = LlamaConfig(n_ctx=32768, threads=1, type_k=type_kv, type_v=type_kv)
    more = compute_bytes(path, setup, backend) - compute_bytes(path, setup, "RPC")
    one_layer = 32768 * file.n_embd * 2 * 2
    assert (one_layer / 2 < more < 1.2 * one_layer) == copies
    assert copies or not more


def test_a_latent_cache_is_copied_once(files: dict[str, tuple[ModelFile, Path]]) -> None:
    """V is a view of K: 576 elements for each of the cells, of which some fit between other tensors."""
    _, path = files["deepseek-v2-lite"]
    setup = LlamaConfig(n_ctx=131072, threads=1, type_k="q8_0", type_v="q8_0")
    more = compute_bytes(path, setup, "CUDA") - compute_bytes(path, setup, "RPC")
    assert 0.9 < more / (131072 * 576 * 2) <= 1


def in_the_old_layout(file: ModelFile) -> ModelFile:
    """Return DeepSeek V2 Lite as it was published in 2024: 16 heads of K 192 and V 128 instead of a latent."""
    renamed = [
        replace(each, name=each.name.replace("v_b", "kv_b"), shape=(512, 16 * 256), n_bytes=2 * (each.n_bytes or 0))
        if "attn_v_b" in each.name
        else each
        for each in file.tensors
        if "attn_k_b" not in each.name
    ]
    kept = {key: value for key, value in file.metadata.items() if not key.endswith("_mla")}
    widths = {"head_count_kv": 16, "key_length": 192, "value_length": 128}
    changed = {f"deepseek2.attention.{key}": value for key, value in widths.items()}
    return replace(file, tensors=tuple(renamed), metadata=kept | changed)


@pytest.fixture(scope="module")
def old_deepseek(files: dict[str, tuple[ModelFile, Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sparse(in_the_old_layout(files["deepseek-v2-lite"][0]), tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize(("n_ctx", "mib"), [(2048, 104.27), (8192, 340.27)])
def test_heads_without_a_kernel_switch_flash_attention_off(old_deepseek: Path, n_ctx: int, mib: float) -> None:
    """The scores of 16 heads, 512 tokens and all cells are 64 and 256 MiB of them; Vulkan has a kernel for such."""
    setup = LlamaConfig(n_ctx=n_ctx, threads=1)
    found = allocated(old_deepseek, setup, (DescribedDevice("CUDA0", "CUDA", 24 * GIB),))
    sizes = {each.device: each.compute_bytes / MIB for each in found.buffers}
    assert found.flash_attn is False
    assert sizes["CUDA0"] == pytest.approx(mib, abs=0.01)
    assert allocated(old_deepseek, setup, (DescribedDevice("Vulkan0", "Vulkan", 24 * GIB),)).flash_attn


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"type_v": "q8_0"}, "no flash attention kernel"),
        ({"flash_attn": "on"}, "no flash attention kernel"),
        ({"split_mode": "row"}, "does not support split buffers"),
    ],
)
def test_what_cuda_has_no_kernels_for_is_refused(old_deepseek: Path, changed: dict[str, str], message: str) -> None:
    """A quantized V requires flash attention; splits by rows have left llama.cpp's CUDA (its issue 27465)."""
    setup = replace(LlamaConfig(n_ctx=2048, threads=1), **changed)
    devices = tuple(DescribedDevice(f"CUDA{number}", "CUDA", 24 * GIB) for number in range(2))
    with contextlib.closing(launch_engine(LlamaConfig())) as engine:
        *_, ending = engine.run(EstimateMemory(Source(old_deepseek), setup, devices))
    assert isinstance(ending, Failed)
    assert message in ending.message


F16, Q8_0, Q5_1, IQ4_NL, BF16 = 1, 8, 7, 20, 30


@pytest.mark.parametrize(
    ("widths", "gqa", "types", "backends"),
    [
        ((128, 128), 1, (F16, F16), "CUDA MTL Vulkan SYCL"),
        ((192, 128), 1, (F16, F16), "MTL Vulkan"),
        ((192, 128), 16, (F16, F16), "CUDA MTL Vulkan"),
        ((192, 192), 8, (F16, F16), "MTL Vulkan"),
        ((320, 256), 32, (F16, F16), "CUDA MTL Vulkan"),
        ((512, 512), 1, (F16, F16), "MTL Vulkan SYCL"),
        ((576, 512), 20, (Q8_0, Q8_0), "CUDA MTL Vulkan SYCL"),
        ((72, 64), 1, (F16, F16), "Vulkan"),
        ((100, 100), 1, (F16, F16), ""),
        ((128, 128), 4, (Q8_0, F16), "CUDA Vulkan"),
        ((128, 128), 4, (BF16, F16), "CUDA"),
        ((128, 128), 4, (Q5_1, Q5_1), "CUDA MTL Vulkan"),
        ((128, 128), 4, (IQ4_NL, IQ4_NL), "Vulkan"),
    ],
)
def test_flash_attention_has_the_kernels_of_each_backend(
    widths: tuple[int, int], gqa: int, types: tuple[int, int], backends: str
) -> None:
    """Read in ggml's `supports_op` of each; ROCm compiles CUDA's."""
    q = Tensor(ne=(widths[0], 512, 2 * gqa, 1))
    k, v = (Tensor(type=each, ne=(width, 4096, 2, 1)) for each, width in zip(types, widths, strict=True))
    op = Tensor(src=tuple(map(ctypes.addressof, (q, k, v))))
    found = [name for name, rules in BACKENDS.items() if rules.supports["FLASH_ATTN_EXT"](op)]
    assert found == backends.replace("CUDA", "CUDA ROCm").split()


def test_experts_in_main_memory_are_copied_to_the_card_for_a_prompt(files: dict[str, tuple[ModelFile, Path]]) -> None:
    _, path = files["qwen3-30b-a3b"]
    card = (DescribedDevice("CUDA0", "CUDA", GIB),)

    def on_card(setup: LlamaConfig) -> int:
        return next(each.compute_bytes for each in allocated(path, setup, card).buffers if each.device == "CUDA0")

    without, with_experts = (LlamaConfig(n_ctx=4096, threads=1, n_cpu_moe=n) for n in (0, 48))
    assert on_card(with_experts) > on_card(without) + 100 * MIB


@with_rpc
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_a_planned_split_is_what_llama_cpp_allocates(tiny_twin: Path, setup: LlamaConfig) -> None:
    """RPC devices split a model like cards do: within 64 KiB for each device."""
    setup, file = replace(setup, n_ctx=1024), read_model_file(tiny_twin)
    with serving() as one, serving() as other, contextlib.closing(launch_engine(LlamaConfig())) as engine:
        servers = one.address, other.address
        *events, ending = engine.open(Source(tiny_twin), replace(setup, rpc_servers=servers))
    assert isinstance(ending, Completed), ending
    real = {each.device: each for each in [event for event in events if isinstance(event, Allocated)][-1].buffers}
    names = [f"RPC0[{server}]" for server in servers]
    devices = tuple(DeviceMemory(name, GIB, backend="RPC") for name in names)
    with DryAllocator(launch_engine(LlamaConfig()), setup, devices) as dry:
        dry.load(file, tiny_twin)
        planned = Placement(file, setup, devices).planned(dry.context(1024))
    for name, found in zip(names, planned, strict=False):
        for part in ("weight_bytes", "kv_bytes", "compute_bytes"):
            assert getattr(found, part) == pytest.approx(getattr(real[name], part), abs=1 << 16), (name, part)
