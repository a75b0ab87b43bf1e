"""Sizes of llama.cpp's log are exact where the log has what they are made of, else they keep its digits."""

from pathlib import Path

import pytest

from ggbench.engines.contract import EstimateMemory, Source
from ggbench.engines.endings import Completed
from ggbench.engines.events import Allocated, MemoryKind
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.llama.logs import parse_allocations
from ggbench.gguf_file.header import read_model_file
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.units import MIB

PLACES = {"CPU": MemoryKind.HOST, "CUDA0": MemoryKind.GPU, "CUDA1": MemoryKind.GPU}

# Of llama.cpp 0.5.0-dev: SmolLM2-135M at n_ctx 256.
SMOLLM2 = [
    "print_info: n_embd_k_gqa          = 192",
    "print_info: n_embd_v_gqa          = 192",
    "print_info: n_vocab               = 49152",
    "llama_context: n_seq_max             = 1",
    "llama_context:        CPU  output buffer size =     0.19 MiB",
    "llama_kv_cache:        CPU KV buffer size =     5.62 MiB",
    "llama_kv_cache: size =    5.62 MiB ( 256 cells, 30 layers, 1/1 seqs), K (f16):    2.81 MiB, V (f16):    2.81 MiB",
]


def test_a_cache_is_cells_times_rows_and_an_output_buffer_the_logits() -> None:
    allocated = parse_allocations(SMOLLM2, PLACES)
    assert allocated.cache_bytes == 256 * 30 * (192 + 192) * 2 == 5_898_240
    assert allocated.total("kv_bytes") == 5_898_240
    assert allocated.total("output_bytes") == 49152 * 4


@pytest.mark.parametrize("left_out", ["n_embd_k_gqa", "n_embd_v_gqa", "K (f16)"])
def test_without_what_it_is_made_of_a_cache_keeps_its_digits(left_out: str) -> None:
    lines = [line.replace(left_out, "?") for line in SMOLLM2]
    allocated = parse_allocations(lines, PLACES)
    assert allocated.cache_bytes == allocated.total("kv_bytes") == round(5.62 * MIB)


def test_types_widths_and_streams() -> None:
    lines = [
        "print_info: n_embd_k_gqa          = [256, 512, 256, 0]",
        "print_info: n_embd_v_gqa          = [128, 128, 128, 0]",
        "llama_kv_cache:        CPU KV buffer size =     1.27 MiB",
        "llama_kv_cache: size = 1.27 MiB ( 256 cells, 3 layers, 4/4 seqs), K (q8_0): 1.06 MiB, V (q4_0): 0.21 MiB",
    ]
    k, v = 256 * 4 * 1024 // 32 * 34, 256 * 4 * 3 * 128 // 32 * 18
    allocated = parse_allocations(lines, PLACES)
    assert allocated.cache_bytes == allocated.total("kv_bytes") == k + v


def test_two_devices_share_a_cache() -> None:
    """Each has whole layers, so each part is a multiple of a layer's rows; a dry run has no part anywhere."""
    shared = [
        *SMOLLM2[:2], "llama_kv_cache:      CUDA0 KV buffer size =     3.38 MiB",
        "llama_kv_cache:      CUDA1 KV buffer size =     2.25 MiB", SMOLLM2[-1],
    ]  # fmt: skip
    parts = {each.device: each.kv_bytes for each in parse_allocations(shared, PLACES).buffers}
    layer = 256 * (192 + 192) * 2
    assert parts == {"CUDA0": 18 * layer, "CUDA1": 12 * layer}
    dry = [*SMOLLM2[:-2], SMOLLM2[-2].replace("5.62", "0.00"), SMOLLM2[-1]]
    allocated = parse_allocations(dry, PLACES)
    assert (allocated.cache_bytes, allocated.total("kv_bytes")) == (5_898_240, 0)


@pytest.mark.llama
@pytest.mark.parametrize("dry", [True, False], ids=["dry", "real"])
@pytest.mark.parametrize("types", [("f16", "f16"), ("q8_0", "q4_0")], ids=lambda types: "/".join(types))
def test_the_cache_of_a_real_context_is_the_theorys_to_the_byte(
    llama: LlamaEngine, tiny_twin: Path, types: tuple[str, str], dry: bool
) -> None:
    setup = LlamaConfig(n_ctx=1280, type_k=types[0], type_v=types[1], n_gpu_layers=0, threads=1)
    source = Source(tiny_twin)
    *events, ending = llama.run(EstimateMemory(source, setup)) if dry else llama.open(source, setup)
    assert ending == Completed()
    allocated = [event for event in events if isinstance(event, Allocated)][-1]
    file = read_model_file(tiny_twin)
    assert allocated.cache_bytes == kv_cache(file, *types).cached_bytes(1280)
    assert allocated.total("output_bytes") == (file.n_vocab or 0) * 4
