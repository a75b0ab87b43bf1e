"""One checkpoint that Transformers has loaded, and its KV cache; runs in the worker, which alone imports torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggbench.engines.events import Allocated, DeviceBuffers, MemoryKind
from ggbench.engines.llama import memory_limits
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.engines.transformers.weights import TransformersRefused, load_model, read_config, torch_dtype
from ggbench.units import format_bytes

_PROMPT_SEED = 1
_WARM_UP = 512
"""Side of the matrices whose product starts torch's threads before a limit of memory counts their stacks."""
_COMPILING_STEPS = 3
"""Steps until torch.compile has seen that positions differ; made with the cache, so that no decode times them."""
_PIECES = 64
"""Limit on the pieces in which a growing cache is filled, of at least `_LEAST_PIECE`: each one copies all before it."""
_LEAST_PIECE = 512


class TransformersModel:
    """At most one model, with at most one cache. Exceptions of torch and Transformers pass through."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        torch.set_grad_enabled(False)
        self._setup = TransformersConfig()
        self._device = "cpu"
        self._model: Any = None
        self._step: Any = None
        """The model's forward, compiled where the setup asks for it."""
        self.cache: Any = None
        self.n_cells = 0
        """Of each sequence in the cache."""
        self.is_limited = False
        self._weight_bytes = self._kv_bytes = 0

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of Transformers and torch, with what torch computes on."""
        import transformers

        torch = self._torch
        gpu = f", CUDA {torch.version.cuda}" if torch.cuda.is_available() else ""
        info = f"{torch.backends.cpu.get_cpu_capability()}{gpu}"
        return {
            "transformers": f"{transformers.__version__}, torch {torch.__version__}",
            "system_info": info,
        }

    @property
    def n_vocab(self) -> int:
        """Return how many tokens the model knows."""
        return int(self._model.config.get_text_config(decoder=True).vocab_size)

    @property
    def n_seqs(self) -> int:
        """Return how many sequences the cache has."""
        return self._setup.n_seq_max

    @property
    def left_bytes(self) -> int | None:
        """Return what may still be taken, of a limit or of the GPU; None where nothing is limited."""
        torch = self._torch
        if self._device == "cpu":
            return memory_limits.left_bytes()
        free, _ = torch.cuda.mem_get_info()
        free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        limit = self._setup.memory_limit_bytes
        return int(free if limit is None else min(free, max(0, limit - torch.cuda.memory_allocated())))

    @property
    def allocated(self) -> Allocated:
        """Return weights and cache by their tensors, and on a GPU the most that torch's allocator held beside them."""
        torch = self._torch
        if self._device == "cpu":
            buffers = DeviceBuffers("CPU", MemoryKind.HOST, self._weight_bytes, self._kv_bytes)
            return Allocated((buffers,), tensor_bytes=self._weight_bytes)
        beside = torch.cuda.max_memory_allocated() - self._weight_bytes - self._kv_bytes
        buffers = DeviceBuffers("CUDA0", MemoryKind.GPU, self._weight_bytes, self._kv_bytes, max(0, beside))
        gpu = torch.cuda.get_device_properties(0)
        bus_id = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
        return Allocated(
            (buffers,), device_ids=(("CUDA0", bus_id),), is_all_offloaded=True, tensor_bytes=self._weight_bytes
        )

    def load(self, folder: Path, setup: TransformersConfig) -> None:
        """Load a checkpoint; a worker loads one. Raises TransformersRefused."""
        torch = self._torch
        has_cuda = torch.cuda.is_available()
        if setup.device == "cuda" and not has_cuda:
            raise TransformersRefused("load", "torch sees no CUDA GPU")
        self._setup, self._device = setup, "cuda" if has_cuda and setup.device != "cpu" else "cpu"
        if setup.threads is not None:
            torch.set_num_threads(setup.threads)
        config = read_config(folder, setup)
        if setup.memory_limit_bytes is not None:
            self._limit(setup.memory_limit_bytes)
        self._model = load_model(folder, config, setup, self._device)
        self._step = torch.compile(self._model.forward) if setup.torch_compile else self._model.forward
        self._weight_bytes = _tensor_bytes(_held(self._model))
        if self.is_limited and self.left_bytes == 0:
            size = format_bytes(self._weight_bytes)
            limit = format_bytes(setup.memory_limit_bytes)
            raise TransformersRefused("load", f"weights of {size} exceed the limit of {limit}", out_of_memory=True)

    def make_cache(self, setup: TransformersConfig) -> None:
        """Make a cache for the setup's n_ctx. A dynamic one is filled once, to see what it takes, and emptied again."""
        self.cache = None
        self.release()
        if self._model is None or setup.n_ctx is None:
            raise TransformersRefused("context", "no model is loaded")
        self._setup, self.n_cells = setup, setup.n_ctx // setup.n_seq_max
        self.clear()
        for _ in self.fill(self.n_cells if setup.cache == "dynamic" else 1):
            pass
        for _ in range(min(_COMPILING_STEPS, self.n_cells - 1) if setup.torch_compile else 0):
            self.timed_step(self.random_tokens(self.n_seqs, 1))
        self._kv_bytes = _tensor_bytes(self._cached())
        self.clear()
        self.release()

    def clear(self) -> None:
        """Empty the cache; a static one keeps its memory."""
        from transformers import DynamicCache, StaticCache

        config = self._model.config.get_text_config(decoder=True)
        if self._setup.cache == "dynamic":
            self.cache = None
            self.cache = DynamicCache(config=config)
        elif self.cache is None:
            self.cache = StaticCache(config=config, max_cache_len=self.n_cells)
        else:
            self.cache.reset()

    def release(self) -> None:
        """Give back what torch's allocator keeps of a GPU's memory."""
        if self._device == "cuda":
            self._torch.cuda.empty_cache()

    def fill(self, n_tokens: int) -> Iterator[float]:
        """Use this many cells of an empty cache with copies of a first token's; yields the share that is filled.

        What they hold changes neither time nor memory. A dynamic cache grows piece by piece, as it does in a decode.
        """
        self.forward(self.random_tokens(self.n_seqs, 1))
        piece = max(_LEAST_PIECE, -(-n_tokens // _PIECES))
        first = [(layer, layer.keys[:, :, :1].clone(), layer.values[:, :, :1].clone()) for layer in self._layers()]
        filled = 1
        while filled < n_tokens:
            count = min(piece, n_tokens - filled)
            for layer, keys, values in first:
                layer.update(keys.expand(-1, -1, count, -1), values.expand(-1, -1, count, -1))
            filled += count
            yield filled / n_tokens

    def forward(self, tokens: Any, *, compiled: bool = False) -> Any:  # noqa: ANN401 - tensors
        """Return the logits of the last token of each sequence, behind what the cache holds."""
        run = self._step if compiled else self._model.forward
        return run(input_ids=tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits

    def timed_step(self, tokens: Any, *, compiled: bool = True) -> tuple[Any, int]:  # noqa: ANN401
        """Return the logits and the nanoseconds until they were computed."""
        before = time.perf_counter_ns()
        logits = self.forward(tokens, compiled=compiled)
        self.synchronize()
        return logits, time.perf_counter_ns() - before

    def synchronize(self) -> None:
        """Return once the device has computed all that was asked."""
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def read_prompts(self, n_prompt: int) -> tuple[Any, int]:
        """Read a prompt of random tokens for each sequence into an empty cache; return logits and nanoseconds."""
        self.clear()
        tokens = self.random_tokens(self.n_seqs, n_prompt)
        self.synchronize()
        before = time.perf_counter_ns()
        logits = self.forward(tokens)
        self.synchronize()
        return logits, time.perf_counter_ns() - before

    def random_tokens(self, n_seqs: int, n_tokens: int) -> Any:  # noqa: ANN401
        """Return ids on the device, the same in every run: a row for each sequence."""
        torch = self._torch
        generator = torch.Generator().manual_seed(_PROMPT_SEED)
        return torch.randint(self.n_vocab, (n_seqs, n_tokens), generator=generator).to(self._device)

    def _limit(self, limit_bytes: int) -> None:
        """Limit what is allocated from here on. Raises LimitFailed."""
        torch = self._torch
        if self._device == "cuda":
            _, total = torch.cuda.mem_get_info()
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total))
        else:
            warm = torch.ones(_WARM_UP, _WARM_UP, dtype=torch_dtype(self._setup.dtype))
            torch.matmul(warm, warm)
            memory_limits.limit_memory(limit_bytes)
        self.is_limited = True

    def _layers(self) -> list[Any]:
        """Return the layers of the cache that hold keys and values."""
        return [layer for layer in self.cache.layers if getattr(layer, "keys", None) is not None]

    def _cached(self) -> Iterator[Any]:
        for layer in self._layers():
            yield layer.keys
            yield layer.values


def _held(model: Any) -> list[Any]:  # noqa: ANN401
    """Return the tensors of a model: those of its state but for bitsandbytes' remarks, which only a file has."""
    remarks = (".weight_format", ".quant_state.bitsandbytes__nf4")
    return [tensor for name, tensor in model.state_dict().items() if not name.endswith(remarks)]


def _tensor_bytes(tensors: Any) -> int:  # noqa: ANN401
    """Return the sum of the tensors' own bytes, each memory once."""
    found = {
        tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors if hasattr(tensor, "numel")
    }
    return sum(found.values())
