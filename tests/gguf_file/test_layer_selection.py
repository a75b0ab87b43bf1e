"""Some layers of a model: still the same layers, also for llama.cpp."""

import math
from pathlib import Path
from typing import Any

import msgspec.structs
import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import ModelFile, layer_kinds
from ggbench.gguf_file.twin import plan_twin, select_layers, twin_of, write_cached
from ggbench.models.targets import Target
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from tests.gguf_file.test_architecture import BASE, model_of
from tests.gguf_file.test_layer_states import RECURRENT, WINDOWED
from tests.gguf_file.test_twin import _logits as logits
from tests.sizing.test_plan import budget_of, real

SIZE: dict[str, Any] = {"n_layer": 8, "n_embd": 256, "n_head": 4, "n_head_kv": 2, "n_ff": 512, "n_vocab": 512}
ROUTED: dict[str, Any] = {"n_expert": 8, "n_expert_used": 2, "n_ff_expert": 256}
MLA: dict[str, Any] = {"n_rot": 64, "kv_lora_rank": 512, "v_head_dim": 128, "n_head_kv": 4, "head_dim": 192}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with experts": {"n_expert": 8, "n_expert_used": 2},
    "llama with other heads": {"head_dim": 32, "rope_freqs": True},
    "qwen3": {"head_dim": 128, "tied_embeddings": True},
    "qwen3moe": {"head_dim": 128, **ROUTED},
    "phi3": {"n_rot": 48},
    "gemma3": {"head_dim": 128, "sliding_window": 256, "tied_embeddings": True},
    "gpt-oss": {"head_dim": 64, "n_head": 8, "sliding_window": 128, **ROUTED},
    "deepseek2": {"n_layer_dense": 1, "n_ff_shared_expert": 512, **MLA, **ROUTED},
    "deepseek2 with a latent of Q": {
        "n_layer_dense": 1,
        "n_ff_shared_expert": 512,
        "q_lora_rank": 256,
        **MLA,
        **ROUTED,
    },
}


def whole(architecture: str) -> ModelFile:
    hyper = Hyperparameters(architecture.split()[0], n_ctx_train=4096, **(SIZE | SHAPES[architecture]))
    return plan_twin(hyper, ["q4_k_m"], name=architecture)["q4_k_m"]


@pytest.mark.llama
@pytest.mark.parametrize("architecture", SHAPES)
def test_selected_layers_are_of_the_kinds_they_were(architecture: str, tmp_path: Path) -> None:
    model = whole(architecture)
    kinds = layer_kinds(model)
    assert len(kinds) > 1
    selected = sorted([kind.layers[0] for kind in kinds] + [kinds[0].layers[0]] * 2)
    path = write_cached(twin_of(model, "x", selected), architecture, tmp_path)
    found = layer_kinds(read_model_file(path))
    assert [len(kind.layers) for kind in found] == [3] + [1] * (len(kinds) - 1)
    assert [msgspec.structs.replace(kind, layers=()) for kind in found] == [
        msgspec.structs.replace(kind, layers=()) for kind in kinds
    ]
    assert all(math.isfinite(value) for value in logits(path, [1, 2, 3]))


@pytest.mark.llama
def test_llama_cpp_gives_selected_layers_their_caches() -> None:
    selections = {"gemma3": [0, 2, 5], "gpt-oss": [0, 1, 1, 1], "deepseek2": [0, 1, 2]}
    variants = [
        Target(name, "q4_k_m", "file", file=twin_of(whole(name), "x", layers)) for name, layers in selections.items()
    ]
    setup = LlamaConfig(threads=1, n_ctx=4096, flash_attn="on")
    with DryAllocator(real(), setup) as allocator:
        rows = list(plan(variants, PlanRequest(budget_of(8), setup), allocator))
    assert [row.kv_bytes for row in rows] == [row.theory_kv_bytes for row in rows] == [
        2 * 128 * 2 * 2 * (4096 + 2 * 768),
        2 * 64 * 2 * 2 * (3 * 4096 + 768),
        3 * (512 + 64) * 2 * 4096,
    ]  # fmt: skip


def test_values_by_layer_follow_the_selection() -> None:
    hybrid = model_of("granitehybrid", BASE | RECURRENT["granitehybrid"])
    metadata, _ = select_layers(hybrid, hybrid.metadata, [1, 2, 5])
    assert metadata["granitehybrid.attention.head_count_kv"] == [0, 2, 4]
    assert metadata["granitehybrid.block_count"] == 3
    qwen = model_of("qwen3next", BASE | RECURRENT["qwen3next"])
    metadata, _ = select_layers(qwen, qwen.metadata, [2, 3])
    assert metadata["qwen3next.attention.recurrent_layers"] == [True, False]
    sections = model_of("qwen35", BASE | RECURRENT["qwen35"] | {"block_count": 4})
    metadata, _ = select_layers(sections, sections.metadata, [0])
    assert metadata["qwen35.rope.dimension_sections"] == [8, 8, 8, 8]


@pytest.mark.parametrize(
    ("architecture", "keys", "layers", "reason"),
    [
        ("gpt-oss", WINDOWED["gpt-oss"], [1, 3], "in which no layer has a window"),
        ("exaone4", WINDOWED["exaone4"], [0, 3], "exaone4 of 2 layers has no windows"),
        ("gemma3n", WINDOWED["gemma3n"], [0], "a table with a part for each layer"),
        ("llama4", WINDOWED["llama4"], [0, 3], "according to its index"),
    ],
)
def test_what_a_header_cannot_say_is_refused(
    architecture: str, keys: dict[str, object], layers: list[int], reason: str
) -> None:
    model = model_of(architecture, BASE | keys)
    with pytest.raises(Unsupported, match=reason):
        select_layers(model, model.metadata, layers)
