"""Planned against probed: what a plan says of weights, KV and compute is what llama.cpp then allocates, to 1 MiB."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.events import Allocated
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import launch
from ggbench.experiments.maxctx.prober import ContextProber
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import cached_twin
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_headers
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.units import GIB, MIB

SETUP = LlamaConfig(n_ctx=4096, threads=1)


def shallow_twins(size: str, folder: Path) -> list[Path]:
    """Three quants with two of the model's own layers, their embeddings being for fewer tokens."""
    hyper = replace(load_catalog().model(size).hyper, n_vocab=8192)
    return [cached_twin(size, hyper, quant, folder, n_layer=2) for quant in ("q8_0", "q4_k_m", "q2_k")]


def planned(path: Path) -> PlanRow:
    budget = Budget("main memory", False, 4 * GIB, "made up", 0, "")
    with DryAllocator(launch(threading.Event(), timeout_s=60), SETUP) as allocator:
        [row] = plan(resolve_headers(parse_model(str(path))), PlanRequest(budget, SETUP), allocator)
    return row


def probed(path: Path) -> Allocated:
    engine = launch(threading.Event(), timeout_s=60)
    prober = ContextProber(engine, read_model_file(path), replace(SETUP, memory_limit_bytes=4 * GIB))
    try:
        for _ in prober.allocate(4096):
            pass
        return prober.allocated
    finally:
        prober.close()


@pytest.mark.llama
@pytest.mark.parametrize("size", ["qwen1.5-0.5b", "qwen1.5-1.8b"])
def test_the_plan_is_within_a_mebibyte_of_real_buffers(size: str, tmp_path: Path) -> None:
    """Three quants of two sizes, loaded under a limit, so that llama.cpp maps no file.

    Then every tensor lies in one buffer alone, CPU or CPU_REPACK, and their sum is the planned weights. In a mapped
    file the repacked tensors would lie in both, and the mapped buffer would be the span of the others, gaps included.
    """
    for path in shallow_twins(size, tmp_path):
        row, real = planned(path), probed(path)
        pairs = {
            "weights": (row.weight_bytes, real.total("weight_bytes")),
            "KV": (row.kv_bytes, real.total("kv_bytes")),
            "compute": (row.compute_bytes, real.total("compute_bytes")),
        }
        for what, (planned_bytes, real_bytes) in pairs.items():
            assert real_bytes > 0, (path.name, what)
            assert planned_bytes == pytest.approx(real_bytes, abs=MIB), (path.name, what)
