"""In how many ways a model's layers are placed."""

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.blueprint import build_model
from ggbench.sizing.layer_sample import layer_placements
from tests.conftest import TINY

MODEL = build_model(replace(TINY, n_layer=4), "tiny")
EXPERTS = build_model(
    replace(
        TINY, architecture="qwen2moe", n_layer=4, n_expert=4, n_expert_used=2, n_ff_expert=256, n_ff_shared_expert=512
    ),
    "moe",
)


@pytest.mark.parametrize(("n_gpu_layers", "placed"), [(-1, -1), (5, -1), (99, -1), (0, 0)])
def test_a_model_in_one_memory_is_placed_as_a_whole(n_gpu_layers: int, placed: int) -> None:
    (only,) = layer_placements(MODEL, LlamaConfig(n_gpu_layers=n_gpu_layers))
    assert (only.layers, only.setup.n_gpu_layers, only.name) == ((0, 1, 2, 3), placed, "")


def test_the_last_layers_go_to_the_gpu() -> None:
    first, second = layer_placements(MODEL, LlamaConfig(n_gpu_layers=2, n_cpu_moe=1))
    assert (first.layers, first.setup.n_gpu_layers, first.name) == ((3,), -1, "1 on the GPU")
    assert (second.layers, second.setup.n_gpu_layers, second.name) == ((0, 1, 2), 0, "")


def test_experts_in_main_memory_are_a_placement_of_their_own() -> None:
    whole, kept = layer_placements(EXPERTS, LlamaConfig(n_cpu_moe=3))
    assert (whole.layers, kept.layers) == ((3,), (0, 1, 2))
    assert kept.name == "3 on the GPU with their experts in main memory"
    assert kept.setup.tensor_overrides == (
        (r"\.(ffn_down_exps\.weight|ffn_gate_exps\.weight|ffn_up_exps\.weight)$", "CPU"),
    )
    all_kept, in_main_memory = layer_placements(EXPERTS, LlamaConfig(n_gpu_layers=3, cpu_moe=True))
    assert (all_kept.layers, in_main_memory.layers) == ((2, 3), (0, 1))
