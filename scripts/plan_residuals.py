"""The table behind scripts/plan_residuals; exit code 1 where a residual is above 1 MiB.

Plans come from headers drawn for the catalog, real buffers from the log of a worker that loads the twin of the same
model and makes the context. It loads under a memory limit, so that llama.cpp maps no file: in a mapped one a repacked
tensor lies in two buffers, without a map in one alone, CPU or CPU_REPACK, and their sum is compared with the plan. On a
GPU build it offloads nothing, so that everything lies in main memory. Both reserve the logits of one token, as
llama-server has llama.cpp do, and not those of a whole n_ubatch, which are most of a small model's compute buffer.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.engines.contract import Source
from ggbench.engines.events import Allocated
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import launch
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, materialize, resolve, resolve_headers
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory, PlanRow
from ggbench.units import GIB, MIB

MODELS = ("qwen1.5-0.5b", "qwen1.5-1.8b")
QUANTS = ("q8_0", "q4_k_m", "q2_k")
PARTS = {"weights": "weight_bytes", "KV": "kv_bytes", "compute": "compute_bytes"}


def main() -> int:
    """Plan and load each quant, and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, help="catalog ids (default: two of Qwen1.5)")
    parser.add_argument("--n-ctx", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    setup = LlamaConfig(n_ctx=asked.n_ctx, n_gpu_layers=0, threads=asked.threads)
    print(f"MiB at n_ctx {asked.n_ctx}: planned, less what was allocated")
    print("| model | quant |" + "".join(f" {part} | residual |" for part in PARTS))
    print("|---|---|" + "---:|---:|" * len(PARTS), flush=True)
    within = True
    for model in asked.models:
        for row, target in zip(
            planned(model, setup), resolve(parse_model(f"twin:{model}", *QUANTS)), strict=True
        ):
            real = probed(target, setup, asked.n_ctx)
            cells = [(getattr(row, field), getattr(row, field) - real.total(field)) for field in PARTS.values()]
            within &= all(abs(residual) <= MIB for _, residual in cells)
            texts = "".join(f" {n_bytes / MIB:.2f} | {residual / MIB:+.3f} |" for n_bytes, residual in cells)
            print(f"| {model} | {row.quant} |{texts}", flush=True)
    return 0 if within else 1


def planned(model: str, setup: LlamaConfig) -> Sequence[PlanRow]:
    """From headers alone."""
    budget = Budget(host=DeviceMemory(HOST_DEVICE, 64 * GIB))
    with DryAllocator(launch(threading.Event()), setup) as allocator:
        return list(plan(resolve_headers(parse_model(model, *QUANTS)), PlanRequest(budget, setup), allocator))


def probed(target: Target, setup: LlamaConfig, n_ctx: int) -> Allocated:
    """From a real load and a real context."""
    file = materialize(target)
    limited = replace(setup, memory_limit_bytes=file.file_bytes + 8 * GIB)
    engine = launch(threading.Event())
    opened = list(engine.open(Source(file.paths[0]), replace(limited, n_ctx=n_ctx)))
    engine.close()
    return [event for event in opened if isinstance(event, Allocated)][-1]


if __name__ == "__main__":
    sys.exit(main())
