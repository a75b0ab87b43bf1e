"""What a model holds of its buffers: each tensor once, whether its file was mapped or read."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import Source
from ggbench.engines.events import Allocated, DeviceBuffers, Memory, MemoryKind
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import cached_twin
from ggbench.units import MIB

REPACKED = DeviceBuffers("CPU_REPACK", weight_bytes=140 * MIB)


@pytest.mark.parametrize(
    "buffers",
    [
        (DeviceBuffers("MTL0_Mapped", MemoryKind.GPU, weight_bytes=382 * MIB), REPACKED),
        (DeviceBuffers("CPU_Mapped", weight_bytes=382 * MIB), DeviceBuffers("CPU", weight_bytes=140 * MIB)),
        (DeviceBuffers("CUDA0", MemoryKind.GPU, weight_bytes=382 * MIB), REPACKED),
    ],
    ids=["on a GPU", "not repacked", "not mapped"],
)
def test_what_is_not_repacked_from_a_mapped_file_counts_whole(buffers: tuple[DeviceBuffers, ...]) -> None:
    assert Memory(buffers=buffers).weight_bytes == 522 * MIB


@pytest.mark.llama
@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("quant", ["q4_k_m", "q8_0", "q4_0"])
def test_the_weights_of_a_real_load_are_its_tensors(llama: LlamaEngine, quant: str, mmap: bool, tmp_path: Path) -> None:
    from ggbench.models.catalog import load_catalog

    hyper = replace(load_catalog().model("qwen1.5-0.5b").hyper, n_layer=2, n_vocab=8192)
    twin = cached_twin("small", hyper, quant, tmp_path)
    setup = LlamaConfig(n_gpu_layers=0, mmap=mmap, threads=1)
    allocated = [event for event in llama.open(Source(twin), setup) if isinstance(event, Allocated)][-1]
    memory = Memory(buffers=allocated.buffers, tensor_bytes=allocated.tensor_bytes)
    assert memory.weight_bytes == read_model_file(twin).weight_bytes
