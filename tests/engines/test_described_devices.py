"""GPUs that are not here, sized by llama.cpp's own allocator: alone, several, and as RPC servers hold them."""

import contextlib
import ctypes
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import DescribedDevice, EstimateMemory, Source, launch_engine
from ggbench.engines.endings import Completed
from ggbench.engines.events import Allocated
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.described_devices import interface_problem
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
MODELS = ("qwen1.5-0.5b", "qwen3-30b-a3b", "gemma-3-4b")
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


def test_another_interface_of_ggml_is_refused() -> None:
    """The structures here are those of version 2: another one's would be read as garbage."""

    class Library:
        registry = ctypes.c_int(3)

        @staticmethod
        def ggml_backend_reg_by_name(_: bytes) -> int:
            return ctypes.addressof(Library.registry)

    assert interface_problem(Library).startswith(  # type: ignore[arg-type]
        "this llama.cpp has version 3 of ggml's backend interface; devices can be described only to version 2; install"
    )


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


def test_cuda_copies_a_quantized_cache_to_f16_and_vulkan_does_not(files: dict[str, tuple[ModelFile, Path]]) -> None:
    """One layer's K and V of all cells, in a compute buffer that has some room for them already."""
    file, path = files["qwen1.5-0.5b"]
    setup = LlamaConfig(n_ctx=8192, threads=1, type_k="q8_0", type_v="q8_0")
    compute = {
        backend: allocated(path, setup, (DescribedDevice("GPU0", backend, GIB),)).total("compute_bytes")
        for backend in ("CUDA", "Vulkan")
    }
    one_layer = 8192 * file.n_embd * 2 * 2
    assert one_layer / 2 < compute["CUDA"] - compute["Vulkan"] <= one_layer


def test_experts_in_main_memory_are_copied_to_the_card_for_a_prompt(files: dict[str, tuple[ModelFile, Path]]) -> None:
    _, path = files["qwen3-30b-a3b"]
    card = (DescribedDevice("CUDA0", "CUDA", GIB),)

    def compute_bytes(setup: LlamaConfig) -> int:
        return next(each.compute_bytes for each in allocated(path, setup, card).buffers if each.device == "CUDA0")

    without, with_experts = (LlamaConfig(n_ctx=4096, threads=1, n_cpu_moe=n) for n in (0, 48))
    assert compute_bytes(with_experts) > compute_bytes(without) + 100 * MIB


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
        planned = Placement(file, setup, on_gpu=True, devices=devices).planned(dry.context(1024))
    for name, found in zip(names, planned, strict=False):
        for part in ("weight_bytes", "kv_bytes", "compute_bytes"):
            assert getattr(found, part) == pytest.approx(getattr(real[name], part), abs=1 << 16), (name, part)
