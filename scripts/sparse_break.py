"""Decode a small twin with sparse attention, and find where its latency breaks without asking the header.

Exit code 1 if that is more than 256 positions from the header's break. The twin is thin and has few layers and many
heads, so that its cache costs more than its weights.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from coverage import decoded

from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.twin import cached_twin
from ggbench.show.run_figures import w_text
from ggbench.stats.linefit import least_squares
from ggbench.stats.samples import Samples, stair_means
from ggbench.units import KV_CELLS

TWIN = Hyperparameters(
    "deepseek4", n_layer=2, n_embd=256, n_head=24, n_head_kv=1, n_ff=256, n_vocab=512, n_ctx_train=16_384,
    head_dim=512, n_rot=64, q_lora_rank=64, sliding_window=128, n_group_out=2, o_lora_rank=64, n_layer_hash=1,
    n_expert=4, n_expert_used=1, n_ff_expert=256, n_ff_shared_expert=256, indexer_n_head=2, indexer_head_dim=128,
    indexer_top_k=512, layer_pattern="C",
)  # fmt: skip
N_GEN = 10_000


def found_break(position: np.ndarray, step_ns: np.ndarray) -> int:
    """Return the position at which two lines that meet leave least of the means of stairs."""
    samples = Samples(position, step_ns / 1e6)

    def energy(knot: int) -> float:
        rest = least_squares(*stair_means(samples, (KV_CELLS, knot, np.inf))).rest
        return float(rest @ rest)

    return min(range(3 * KV_CELLS, int(position[-1]) - 3 * KV_CELLS, 16), key=energy)


def main() -> int:
    """Print the breaks; return whether they differ."""
    with tempfile.TemporaryDirectory() as folder:
        path = cached_twin("thin", TWIN, "f16", Path(folder))
        stated = read_model_file(path).breaks[-1]
        with decoded([str(path), "-t", "1"], N_GEN) as (fit, position, step_ns):
            measured = found_break(position, step_ns)
    print(f"header: {stated}, measured: {measured}; fitted with the header's: W {w_text(fit)} tokens/ms")
    return int(abs(measured - stated) > KV_CELLS)


if __name__ == "__main__":
    sys.exit(main())
