"""Kinds of layer: which layers cost the same, and that nothing of the layers is lost when they are counted by kind."""

import pytest

from ggbench.gguf_file.model_file import LayerKind, TensorInfo, layer_kinds
from ggbench.gguf_file.twin import plan_twin
from ggbench.models.catalog import load_catalog
from tests.gguf_file.test_architecture import BASE, EXPERTS, model_of
from tests.gguf_file.test_layer_states import RECURRENT, WINDOWED


def f16(name: str, *shape: int) -> TensorInfo:
    n_elements = 1
    for length in shape:
        n_elements *= length
    return TensorInfo(name, shape, "f16", 2 * n_elements)


def layers_of(kinds: tuple[LayerKind, ...]) -> list[tuple[int, ...]]:
    return [kind.layers for kind in kinds]


def kept_bytes(kind: LayerKind) -> float:
    return sum(rows.n_bytes() for rows in kind.state.kept)


def test_layers_of_a_uniform_quant_are_one_kind() -> None:
    model = plan_twin(load_catalog().model("qwen2.5-7b").hyper, ["f16"], name="x")["f16"]
    [kind] = layer_kinds(model)
    assert kind.layers == tuple(range(28))
    assert not (kind.state.recurrent_elements or kind.state.window)
    outside = sum(tensor.n_bytes or 0 for tensor in model.tensors if not tensor.name.startswith("blk."))
    assert model.weight_bytes == 28 * (kind.active_bytes or 0) + outside
    assert 28 * kept_bytes(kind) == model.kv_bytes_per_token()


@pytest.mark.llama
@pytest.mark.parametrize("model_id", ["qwen2.5-7b", "qwen1.5-moe-a2.7b"])
def test_a_mixture_of_types_makes_two_kinds_that_add_up(model_id: str) -> None:
    model = plan_twin(load_catalog().model(model_id).hyper, ["q4_k_m"], name="x")["q4_k_m"]
    kinds = layer_kinds(model)
    assert len(kinds) == 2
    assert sorted(layer for kind in kinds for layer in kind.layers) == list(range(model.n_layer))
    assert {{name: type_ for name, _, type_ in kind.tensors}["attn_v.weight"] for kind in kinds} == {"q4_K", "q6_K"}
    outside = sum(t.n_bytes or 0 for t in model.tensors if t.name.startswith("output"))
    active = sum(len(kind.layers) * (kind.active_bytes or 0) for kind in kinds)
    assert active + outside == pytest.approx(model.active_weight_bytes, abs=model.n_layer)


def test_leading_dense_layers_and_draft_layers_are_apart() -> None:
    tensors = [f16("blk.0.ffn_up.weight", 256, 512)]
    for layer in range(1, 6):
        tensors += [
            f16(f"blk.{layer}.ffn_up_exps.weight", 256, 64, 4),
            f16(f"blk.{layer}.ffn_up_shexp.weight", 256, 64),
        ]
    model = model_of("glm4moe", BASE | EXPERTS | {"nextn_predict_layers": 1}, tuple(tensors))
    dense, routed = layer_kinds(model)
    assert (dense.layers, routed.layers) == ((0,), (1, 2, 3, 4))
    assert dense.active_bytes == 2 * 256 * 512
    assert routed.active_bytes == 2 * 256 * 64 * (2 + 1)
    assert model.active_weight_bytes == dense.active_bytes + 4 * routed.active_bytes


def test_windows_and_heads_and_states_are_apart() -> None:
    gpt_oss = layer_kinds(model_of("gpt-oss", BASE | WINDOWED["gpt-oss"]))
    assert [(kind.layers, kind.state.window) for kind in gpt_oss] == [((0, 2, 4), 128), ((1, 3, 5), None)]
    heads = {"attention.head_count_kv": [2, 1, 2, 0, 4, 2], "attention.head_count": [8, 8, 8, 0, 8, 8]}
    assert layers_of(layer_kinds(model_of("deci", BASE | heads))) == [(0, 2, 5), (1,), (3,), (4,)]
    hybrid = layer_kinds(model_of("granitehybrid", BASE | RECURRENT["granitehybrid"]))
    assert layers_of(hybrid) == [(0, 1, 3, 4), (2,), (5,)]
    assert [kind.state.recurrent_elements > 0 for kind in hybrid] == [True, False, False]
    assert [kept_bytes(kind) for kind in hybrid] == [0, 2 * 2 * 64, 4 * 2 * 64]
