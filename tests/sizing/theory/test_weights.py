"""Parameters by role, against what the models' makers state."""

import msgspec.structs
import pytest

from ggbench.errors import Unsupported
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.catalog import load_catalog
from ggbench.sizing.theory.weights import count_parameters


def drawn(model_id: str, *, tied: bool = False) -> ModelFile:
    """A model of the catalog, with one table for input and output where asked for."""
    hyper = load_catalog().model(model_id).hyper
    return build_model(msgspec.structs.replace(hyper, tied_embeddings=tied), model_id)


@pytest.mark.parametrize(
    ("model_id", "total", "non_embedding"),
    [
        ("qwen2.5-0.5b", 0.49, 0.36), ("qwen2.5-1.5b", 1.54, 1.31), ("qwen2.5-3b", 3.09, 2.77),
        ("qwen2.5-7b", 7.61, 6.53), ("qwen2.5-14b", 14.7, 13.1), ("qwen2.5-32b", 32.5, 31.0),
        ("qwen2.5-72b", 72.7, 70.0),
    ],
)  # fmt: skip
def test_totals_are_those_of_the_model_cards(model_id: str, total: float, non_embedding: float) -> None:
    parameters = count_parameters(drawn(model_id, tied=total < 4))
    assert parameters.total / 1e9 == pytest.approx(total, rel=0.01)
    assert parameters.layers / 1e9 == pytest.approx(non_embedding, rel=0.01)


@pytest.mark.parametrize(
    ("model_id", "total", "active"), [("qwen1.5-moe-a2.7b", 14.3, 2.7), ("qwen2-57b-a14b", 57, 14)]
)
def test_experts_count_whole_in_memory_and_by_share_when_active(model_id: str, total: float, active: float) -> None:
    parameters = count_parameters(drawn(model_id))
    assert parameters.total / 1e9 == pytest.approx(total, rel=0.01)
    assert (parameters.active + parameters.embedding) / 1e9 == pytest.approx(active, rel=0.03)
    assert parameters.layers_active < parameters.layers + parameters.experts


@pytest.mark.parametrize(
    ("model_id", "tied"), [("qwen1.5-7b", False), ("qwen2-57b-a14b", False), ("qwen2.5-0.5b", True)]
)
def test_nothing_but_norms_is_left_out(model_id: str, tied: bool) -> None:
    file = drawn(model_id, tied=tied)
    norms = sum(tensor.n_elements for tensor in file.tensors if "norm" in tensor.name)
    assert count_parameters(file).total == file.n_params - norms


@pytest.mark.parametrize(
    ("kept", "missing"), [("token_embd", "blk.0"), ("blk.", "output.weight and token_embd.weight")]
)
def test_a_file_that_is_not_a_whole_model_is_refused(kept: str, missing: str) -> None:
    """A draft head or a projector has no output or no layers; the error says which."""
    file = drawn("qwen2.5-0.5b")
    part = msgspec.structs.replace(file, tensors=tuple(t for t in file.tensors if t.name.startswith(kept)))
    with pytest.raises(Unsupported, match=missing):
        count_parameters(part)
