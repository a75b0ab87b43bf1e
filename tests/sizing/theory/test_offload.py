"""Which tensors llama.cpp puts where, against buffer sizes that its CUDA and Vulkan builds logged."""

import re

import msgspec.structs
import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import plan_twin
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_headers
from ggbench.sizing.placement import ONE_GPU, Placement
from ggbench.sizing.theory.offload import check_overrides, is_on_device
from ggbench.units import MIB
from tests.conftest import TINY

pytestmark = pytest.mark.llama


def drawn(hyper: Hyperparameters, quant: str = "q8_0") -> ModelFile:
    return plan_twin(hyper, [quant], name="drawn")[quant]


def on_gpu(file: ModelFile, n_gpu_layers: int) -> Placement:
    return Placement(file, LlamaConfig(n_gpu_layers=n_gpu_layers), [ONE_GPU])


def output_bytes(file: ModelFile) -> int:
    return sum(tensor.n_bytes or 0 for tensor in file.tensors if tensor.name.startswith("output"))


# "model buffer size" of the device and of the CPU in logs of full offloads: ollama issue 9091 and llama.cpp reports.
@pytest.mark.parametrize(
    ("model", "quant", "device_mib", "host_mib"),
    [
        ("qwen2.5-0.5b", "q8_0", 500.79, 137.94),
        ("qwen2.5-7b", "q4_k_m", 4168.09, 292.36),
        ("qwen2.5-14b", "q4_k_m", 8148.38, 417.66),
    ],
)
def test_a_full_offload_as_logged(model: str, quant: str, device_mib: float, host_mib: float) -> None:
    file = resolve_headers(parse_model(model, quant))[0].file
    assert file is not None
    placed = on_gpu(file, -1)
    assert (placed.weight_bytes or 0) / MIB == pytest.approx(device_mib, abs=0.006)
    assert (placed.host_weight_bytes or 0) / MIB == pytest.approx(host_mib, abs=0.006)
    assert not placed.is_split


def test_a_partial_offload_as_logged() -> None:
    """Eleven repeating layers of the 32B in Q8_0 took 5435.42 MiB (ollama issue 10125); the output is a layer more."""
    file = resolve_headers(parse_model("qwen2.5-32b", "q8_0"))[0].file
    assert file is not None
    placed = on_gpu(file, 12)
    assert placed.weight_bytes is not None and placed.host_weight_bytes is not None
    assert (placed.weight_bytes - output_bytes(file)) / MIB == pytest.approx(5435.42, abs=0.006)
    assert placed.first_gpu_layer == 64 - 11
    assert placed.weight_bytes + placed.host_weight_bytes == file.weight_bytes


def test_a_tied_table_lies_on_both() -> None:
    untied, tied = drawn(TINY), drawn(msgspec.structs.replace(TINY, tied_embeddings=True))
    assert tied.weight_bytes is not None
    assert untied.weight_bytes is not None
    assert tied.weight_bytes < untied.weight_bytes
    assert on_gpu(tied, -1).weight_bytes == on_gpu(untied, -1).weight_bytes
    assert on_gpu(tied, -1).host_weight_bytes == on_gpu(untied, -1).host_weight_bytes
    assert on_gpu(tied, 0).host_weight_bytes == tied.weight_bytes


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        (LlamaConfig(override_tensor=(r"ffn_up=CPU", r"ffn_uq=CPU")), "matches --override-tensor 'ffn_uq=CPU'"),
        (LlamaConfig(n_cpu_moe=2), "drawn q8_0 has no expert tensors for --n-cpu-moe"),
        (LlamaConfig(cpu_moe=True, n_cpu_moe=2), "drawn q8_0 has no expert tensors for --cpu-moe"),
    ],
    ids=["pattern", "n-cpu-moe", "cpu-moe"],
)
def test_an_override_that_matches_no_tensor_is_an_error(setup: LlamaConfig, message: str) -> None:
    """llama.cpp ignores it, so that a measurement would have the name of something that was not done."""
    with pytest.raises(UsageError, match=re.escape(message)):
        check_overrides(drawn(TINY), setup)


def test_lfm2s_output_norm_is_on_the_device_despite_its_name() -> None:
    """Llama.cpp reads it as `token_embd_norm`, and puts it with the output."""
    file = drawn(load_catalog().model("lfm2-1.2b").hyper)
    on_host = [tensor.name for tensor in file.tensors if not is_on_device(tensor, 0, output_on_device=True)]
    assert on_host == ["token_embd.weight"]
    assert any(tensor.name == "token_embd_norm.weight" for tensor in file.tensors)


def test_the_first_layer_offloaded_is_the_output() -> None:
    """One layer is the output, none is nothing, and too many are all."""
    file = drawn(TINY)
    found = [on_gpu(file, n).weight_bytes for n in (0, 1, 99)]
    assert found == [0, output_bytes(file), on_gpu(file, -1).weight_bytes]
