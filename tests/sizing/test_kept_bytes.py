"""What a context keeps of a sequence: the theory against llama.cpp's own allocator, to the byte."""

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.layout import build_model
from ggbench.models.catalog import load_catalog
from ggbench.models.targets import Target
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.limits import decode_limit
from ggbench.stats.decode_timing import Bandwidth
from tests.sizing.test_plan import budget_of, real

MODELS = (
    "llama-3.1-8b", "qwen3-4b", "qwen3-30b-a3b", "gemma-3-1b", "gemma-3-27b", "mistral-nemo-12b", "mixtral-8x7b",
    "phi-4", "gpt-oss-20b", "deepseek-v2-lite",
)  # fmt: skip


@pytest.mark.llama
@pytest.mark.parametrize("type_k", ["f16", "q8_0"])
@pytest.mark.parametrize("n_ctx", [512, 40_000])
def test_every_kind_of_cache_has_the_bytes_that_llama_cpp_allocates(n_ctx: int, type_k: str) -> None:
    catalog = load_catalog()
    setup = LlamaConfig(threads=1, n_ctx=n_ctx, type_k=type_k, flash_attn="on")
    variants = [Target(name, "f16", "file", file=build_model(catalog.model(name).hyper, name)) for name in MODELS]
    with DryAllocator(real(), setup) as allocator:
        rows = list(plan(variants, PlanRequest(budget_of(512), setup), allocator))
    assert [row.model for row in rows] == list(MODELS)
    assert [row.theory_kv_bytes for row in rows] == [row.kv_bytes for row in rows]
    assert {row.model: row.swa_cells for row in rows if row.swa_cells} == {
        name: min(-(-n_ctx // 256) * 256, cells)
        for name, cells in {"gemma-3-1b": 1024, "gemma-3-27b": 1536, "gpt-oss-20b": 768}.items()
    }


@pytest.mark.parametrize(
    ("model_id", "full_layers", "windowed_layers", "per_layer"),
    [
        ("gemma-3-12b", 8, 40, 8 * 2 * 256 * 2),
        ("gpt-oss-120b", 18, 18, 8 * 2 * 64 * 2),
        ("qwen3-8b", 36, 0, 8 * 2 * 128 * 2),
    ],
)
def test_a_step_beyond_the_window_reads_more_of_full_layers_alone(
    model_id: str, full_layers: int, windowed_layers: int, per_layer: int
) -> None:
    model = build_model(load_catalog().model(model_id).hyper, model_id)
    kv = kv_cache(model)
    far = float(kv.read_bytes(20_001) - kv.read_bytes(20_000))
    assert far == full_layers * per_layer
    assert float(kv.read_bytes(1)) == (full_layers + windowed_layers) * per_layer
    limit = decode_limit(model, Bandwidth(1e12, "given"))
    assert limit.w_tokens_per_ms == pytest.approx(1e9 / (full_layers * per_layer))
