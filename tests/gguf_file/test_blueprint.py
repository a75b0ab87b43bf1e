"""Hyperparameters that make no model are refused, with the field in the message."""

from typing import Any

import msgspec.structs
import pytest

from ggbench.errors import UsageError
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_tensors, count_params

DENSE = Hyperparameters("qwen2", n_layer=2, n_embd=256, n_head=4, n_head_kv=2, n_ff=768, n_vocab=512, n_ctx_train=2048)
EXPERTS = {"n_expert": 8, "n_expert_used": 2, "n_ff_expert": 256, "n_ff_shared_expert": 512}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_head", 3), ("n_head_kv", 3), ("head_dim", 128), ("architecture", "gpt2"), ("n_expert", 8),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_model_names_its_field(field: str, value: object) -> None:
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(UsageError, match=field):
        msgspec.structs.replace(DENSE, **wrong)


@pytest.mark.parametrize(
    ("architecture", "given", "field"),
    [
        ("gemma3", {}, "sliding_window"),
        ("gpt-oss", EXPERTS | {"n_ff_shared_expert": 0}, "sliding_window"),
        ("qwen3moe", {"n_expert": 8, "n_expert_used": 2}, "n_ff_expert"),
        ("llama", {"n_expert": 8}, "n_expert_used"),
        ("llama", {"sliding_window": 4096}, "sliding_window"),
        ("qwen3", {"kv_lora_rank": 512}, "kv_lora_rank"),
        ("deepseek2", EXPERTS | {"head_dim": 64, "kv_lora_rank": 512, "v_head_dim": 128}, "n_rot"),
        ("deepseek2", EXPERTS | {"head_dim": 64, "n_rot": 64, "kv_lora_rank": 512, "v_head_dim": 128}, "n_rot"),
        ("phi3", {"head_dim": 128}, "head_dim"),
    ],
)
def test_an_architecture_names_what_it_needs_and_what_it_cannot_have(
    architecture: str, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(UsageError, match=field):
        msgspec.structs.replace(DENSE, architecture=architecture, **given)


def test_parameters_of_leading_dense_layers_are_counted_as_they_are_laid_out() -> None:
    given: dict[str, Any] = EXPERTS | {"head_dim": 192, "n_rot": 64, "kv_lora_rank": 512, "v_head_dim": 128}
    hyper = msgspec.structs.replace(DENSE, architecture="deepseek2", n_layer=5, n_layer_dense=2, **given)
    assert count_params(hyper) == sum(tensor.n_elements for tensor in build_tensors(hyper))
