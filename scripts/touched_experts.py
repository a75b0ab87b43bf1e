"""How many experts a batch of a mixture touches: with a twin's random router, with skewed ones, and by chance.

`ggbench speculate` times the verification of k + 1 different tokens of a twin, and of one token k + 1 times, which
gives `least`. Experts decide the bytes that a batch reads, so this counts those that llama.cpp chooses in each layer. A
skewed router prefers some experts whatever the token: constants are added to its outputs, whose standard deviation is a
multiple of that of the outputs. Nothing is timed, so the machine need not be idle.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from ggbench.engines.llama.c_functions import lib
from ggbench.engines.llama.model import new_batch
from ggbench.gguf_file.twin import cached_twin
from ggbench.models.catalog import load_catalog

MODELS = ("qwen1.5-moe-a2.7b", "qwen3-30b-a3b")
SKEWS = (0.0, 0.5, 1.0, 2.0)
KS = (1, 3, 8)
_N_LAYER, _N_BATCHES = 4, 16
_OUTPUTS, _CHOSEN = "ffn_moe_logits", "ffn_moe_topk"


class _Tensor(ctypes.Structure):
    """The beginning of ggml.h's `ggml_tensor`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


def _ggml() -> ctypes.CDLL:
    found = next((Path(str(lib.__file__)).parent / "lib").glob("libggml-base.*"))
    ggml = ctypes.CDLL(str(found))
    ggml.ggml_get_name.restype, ggml.ggml_get_name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    for name in ("ggml_backend_tensor_get", "ggml_backend_tensor_set"):
        getattr(ggml, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    return ggml


class Counter:
    """A model whose router is skewed as wanted, and the experts that a batch chose in each layer."""

    def __init__(self, path: Path, n_ctx: int) -> None:
        self._ggml = _ggml()
        self._skew = 0.0
        self._touched: list[int] = []
        self.n_used = 0
        """Experts of one token."""
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = lib.llama_model_load_from_file(str(path).encode(), params)
        context = lib.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = n_ctx
        self._callback = lib.ggml_backend_sched_eval_callback(
            self._evaluated
        )  # ctypes frees it when unreferenced
        context.cb_eval = self._callback
        self._context: Any = lib.llama_init_from_model(self._model, context)
        assert self._context, "no context"

    def touched(self, tokens: list[int], skew: float) -> float:
        """Return the experts that a batch touches, mean of all layers."""
        self._skew, self._touched = skew, []
        with new_batch([(token, at, 0, True) for at, token in enumerate(tokens)]) as batch:
            lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
            assert lib.llama_decode(self._context, batch) == 0, "llama.cpp did not decode"
        return statistics.fmean(self._touched)

    def _evaluated(self, address: int, asks: bool, _: object) -> bool:
        kind, _, layer = self._ggml.ggml_get_name(address).decode().rpartition("-")
        if asks:
            return kind in (_OUTPUTS, _CHOSEN)
        tensor = _Tensor.from_address(address)
        n_row, n_tokens = tensor.ne[0], tensor.ne[1]
        rows = np.zeros((n_tokens, n_row), np.float32 if kind == _OUTPUTS else np.int32)
        for at, row in enumerate(rows):
            self._ggml.ggml_backend_tensor_get(address, row.ctypes.data, at * tensor.nb[1], row.nbytes)
        if kind == _CHOSEN:
            self.n_used = n_row
            self._touched.append(len(np.unique(rows)))
        elif self._skew:
            preferred = np.random.default_rng(int(layer)).normal(size=n_row)
            rows += np.float32(self._skew * rows.std()) * preferred.astype(np.float32)
            for at, row in enumerate(rows):
                self._ggml.ggml_backend_tensor_set(address, row.ctypes.data, at * tensor.nb[1], row.nbytes)
        return True


def by_chance(n_expert: int, n_used: int, n_tokens: int) -> float:
    """Return the experts that tokens touch on the mean if each chooses its own independently and evenly."""
    return float(n_expert * (1 - (1 - n_used / n_expert) ** n_tokens))


def main() -> int:
    """Print a table of the experts that batches touch, in multiples of one token's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, help="ids of the catalog")
    asked = parser.parse_args()
    silent = lib.llama_log_callback(lambda *_: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    print("| model | router |" + "".join(f" k {k} |" for k in KS))
    print("|---|---|" + "---:|" * len(KS), flush=True)
    for name in asked.models:
        hyper, rng = replace(load_catalog().model(name).hyper, n_layer=_N_LAYER), np.random.default_rng(41)
        with tempfile.TemporaryDirectory(prefix="ggbench-") as folder:
            counter = Counter(cached_twin(name, hyper, "q4_k_m", Path(folder)), max(KS) + 1)
        ways = [("one token k + 1 times", 0.0, True), *((f"skew {skew:g}", skew, False) for skew in SKEWS)]
        for text, skew, repeats in ways:
            cells = []
            for k in KS:
                batches = rng.integers(hyper.n_vocab, size=(_N_BATCHES, 1 if repeats else k + 1))
                batches = np.tile(batches, k + 1) if repeats else batches
                found = [counter.touched([int(token) for token in batch], skew) for batch in batches]
                cells.append(statistics.fmean(found) / counter.n_used)
            print(f"| {name} | {text} |" + "".join(f" {cell:.2f} |" for cell in cells), flush=True)
        chance = "".join(
            f" {by_chance(hyper.n_expert, counter.n_used, k + 1) / counter.n_used:.2f} |" for k in KS
        )
        print(f"| {name} | independent choices |{chance}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
