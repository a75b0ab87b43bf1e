"""The models of the catalog as llama.cpp loads, sizes and decodes them: whole ones dry, ones cut to a few layers."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec.structs
import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import layer_kinds
from ggbench.gguf_file.twin import plan_twin, write_cached
from ggbench.models.catalog import load_catalog
from ggbench.models.targets import Target
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import Planners, PlanRequest
from tests.gguf_file.test_modern_twins import decoded
from tests.sizing.test_plan import budget_of, real

SMALLEST = {
    model.hyper.architecture: model.id
    for model in sorted(load_catalog(), key=lambda model: (-model.hyper.n_embd, -model.hyper.n_layer))
}
"""The narrowest model of each architecture."""
SETUP = LlamaConfig(threads=1, n_ctx=8192, flash_attn="on")
_ENOUGH_GIB = 4096
_LOGGED = 0.011 * 2**20
"""llama.cpp logs each part of a cache to 0.01 MiB."""


@pytest.fixture(scope="module")
def allocator() -> Iterator[DryAllocator]:
    with DryAllocator(real(), SETUP) as allocator:
        yield allocator


@pytest.mark.llama
@pytest.mark.parametrize("architecture", SMALLEST)
def test_every_model_keeps_what_its_shape_says(architecture: str, allocator: DryAllocator) -> None:
    """llama.cpp keeps of each whole model what its shape says, and reserves compute buffers for it."""
    hypers = {each.id: each.hyper for each in load_catalog() if each.hyper.architecture == architecture}
    targets = [Target(name, "f16", "file", file=build_model(hyper, name)) for name, hyper in hypers.items()]
    with Planners(allocator, PlanRequest(budget_of(_ENOUGH_GIB), SETUP)) as planners:
        rows = [planners.row_of(each, planners.fitter(each).fit(SETUP)) for each in targets]
    for row in rows:
        assert row.kv_bytes and row.compute_bytes, row
        assert row.theory_kv_bytes == pytest.approx(row.kv_bytes, abs=2 * _LOGGED), row.model


def cut(hyper: Hyperparameters) -> Hyperparameters:
    """Return the model with the first layers that are of every kind, few experts and narrow layers."""
    kinds = layer_kinds(build_model(hyper, "whole"))
    n_layer = max(kind.layers[0] for kind in kinds) + 1
    changes: dict[str, int] = {"n_layer": n_layer, "n_vocab": 512, "n_ff": 256}
    if hyper.n_embd > 4096:
        changes |= {"n_embd": 1024, "head_dim": hyper.n_embd_head}
    changes |= {name: 256 for name in ("n_ff_expert", "n_ff_shared_expert") if getattr(hyper, name)}
    if hyper.n_expert:
        changes["n_expert"] = max(4, hyper.n_expert_used)
    if hyper.n_row_ngram:
        changes["n_row_ngram"] = 16_384
    if hyper.n_layer_shared_kv:
        changes["n_layer_shared_kv"] = max(0, n_layer - hyper.n_layer + hyper.n_layer_shared_kv)
    return msgspec.structs.replace(hyper, **changes)


@pytest.mark.llama
@pytest.mark.parametrize("name", SMALLEST.values())
def test_a_few_layers_of_each_kind_decode(name: str, tmp_path: Path) -> None:
    twin = plan_twin(cut(load_catalog().model(name).hyper), ["q4_0"], name=name)["q4_0"]
    logits = decoded(write_cached(twin, name, tmp_path))
    assert all(map(math.isfinite, logits))
    assert max(logits) - min(logits) > 0.001
