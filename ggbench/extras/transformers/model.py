"""A checkpoint loaded by Transformers, and its KV cache; runs in the worker, the only process to import torch."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggbench.engines.events import Allocated, DeviceBuffers, MemoryKind
from ggbench.engines.failure_lines import is_out_of_memory
from ggbench.engines.llama import memory_limits
from ggbench.engines.llama.memory_limits import beside_the_limit
from ggbench.engines.protocol import Refusal
from ggbench.extras.transformers.checkpoint import read_checkpoint
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.text import sanitize, shorten
from ggbench.units import format_bytes

_PROMPT_SEED = 1
_WARM_UP = 512
"""Side of matrices whose product starts torch's threads before a memory limit would count their stacks."""
_PIECES = 64
"""Maximum number of pieces, of at least `_LEAST_PIECE`, to fill a growing cache: each one copies all before it."""
_LEAST_PIECE = 512
_REMARKS = (".weight_format", ".quant_state.bitsandbytes__nf4")
"""Suffixes of names that bitsandbytes adds to a model's state in files."""


class TransformersModel:
    """At most one model, with at most one cache. Exceptions of torch and Transformers pass through."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        torch.set_grad_enabled(False)
        self._setup = TransformersConfig()
        self._device = "cpu"
        self._model: Any = None
        self.cache: Any = None
        self.n_cells = 0
        """Cells per sequence in the cache."""
        self.is_limited = False
        self._weight_bytes = self._kv_bytes = 0

    @property
    def versions(self) -> dict[str, str]:
        import transformers

        torch = self._torch
        gpu = f", CUDA {torch.version.cuda}" if torch.cuda.is_available() else ""
        return {
            "transformers": f"{transformers.__version__}, torch {torch.__version__}",
            "system_info": f"{torch.backends.cpu.get_cpu_capability()}{gpu}",
        }

    @property
    def n_vocab(self) -> int:
        return int(self._model.config.get_text_config(decoder=True).vocab_size)

    @property
    def left_bytes(self) -> int | None:
        """Free bytes of a limit or of the GPU's memory; None if nothing is limited."""
        torch = self._torch
        if self._device == "cpu":
            return memory_limits.left_bytes()
        free, _ = torch.cuda.mem_get_info()
        free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        limit = self._setup.memory_limit_bytes
        return int(free if limit is None else min(free, max(0, limit - torch.cuda.memory_allocated())))

    @property
    def allocated(self) -> Allocated:
        """Weights and cache by their tensors; on a GPU also the peak of torch's allocator beyond them."""
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
        """Load a checkpoint, only once per worker. Raises Refusal."""
        torch = self._torch
        has_cuda = torch.cuda.is_available()
        if setup.device == "cuda" and not has_cuda:
            raise Refusal("load", "torch sees no CUDA GPU")
        self._setup, self._device = setup, "cuda" if has_cuda and setup.device != "cpu" else "cpu"
        if setup.threads is not None:
            torch.set_num_threads(setup.threads)
        config = read_config(folder, setup)
        if setup.memory_limit_bytes is not None:
            self._limit(setup.memory_limit_bytes)
        self._model = load_model(folder, config, setup, self._device)
        state = self._model.state_dict().items()
        self._weight_bytes = _tensor_bytes([tensor for name, tensor in state if not name.endswith(_REMARKS)])
        if self.is_limited and self.left_bytes == 0:
            size = format_bytes(self._weight_bytes)
            limit = format_bytes(setup.memory_limit_bytes)
            raise Refusal("load", f"weights of {size} exceed the limit of {limit}", out_of_memory=True)

    def make_cache(self, setup: TransformersConfig) -> None:
        """Create a cache, fill it once with the setup's n_ctx to measure it, and empty it again."""
        self.cache = None
        self.release()
        if self._model is None or setup.n_ctx is None:
            raise Refusal("context", "no model is loaded")
        self._setup, self.n_cells = setup, setup.n_ctx // setup.n_seq_max
        self.clear()
        for _ in self.fill(self.n_cells):
            pass
        self._kv_bytes = _tensor_bytes(
            [each for layer in self._layers() for each in (layer.keys, layer.values)]
        )
        self.clear()
        self.release()

    def clear(self) -> None:
        """Replace the cache by an empty one, after the old one's memory is free."""
        from transformers import DynamicCache

        self.cache = None
        self.cache = DynamicCache(config=self._model.config.get_text_config(decoder=True))

    def release(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.empty_cache()

    def fill(self, n_tokens: int) -> Iterator[float]:
        """Fill this many cells of an empty cache with copies of the first token's; yields the filled share.

        Contents change neither time nor memory. A dynamic cache grows piece by piece, as in a decode.
        """
        self.timed_step(self.random_tokens(self._setup.n_seq_max, 1))
        piece = max(_LEAST_PIECE, -(-n_tokens // _PIECES))
        first = [
            (layer, layer.keys[:, :, :1].clone(), layer.values[:, :, :1].clone()) for layer in self._layers()
        ]
        filled = 1
        while filled < n_tokens:
            count = min(piece, n_tokens - filled)
            for layer, keys, values in first:
                layer.update(keys.expand(-1, -1, count, -1), values.expand(-1, -1, count, -1))
            filled += count
            yield filled / n_tokens

    def timed_step(self, tokens: Any) -> tuple[Any, int]:  # noqa: ANN401 - tensors
        """Return the logits of each sequence's last token, given the contents of the cache, and the nanoseconds."""
        before = time.perf_counter_ns()
        logits = self._model.forward(
            input_ids=tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1
        ).logits
        self.synchronize()
        return logits, time.perf_counter_ns() - before

    def synchronize(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def read_prompts(self, n_prompt: int) -> tuple[Any, int]:
        """Read a prompt of random tokens for each sequence into an empty cache; return logits and nanoseconds."""
        self.clear()
        tokens = self.random_tokens(self._setup.n_seq_max, n_prompt)
        self.synchronize()
        return self.timed_step(tokens)

    def random_tokens(self, n_seqs: int, n_tokens: int) -> Any:  # noqa: ANN401
        """Return ids on the device, the same in every run: a row for each sequence."""
        torch = self._torch
        generator = torch.Generator().manual_seed(_PROMPT_SEED)
        return torch.randint(self.n_vocab, (n_seqs, n_tokens), generator=generator).to(self._device)

    def _limit(self, limit_bytes: int) -> None:
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
        return [layer for layer in self.cache.layers if getattr(layer, "keys", None) is not None]


def _tensor_bytes(tensors: list[Any]) -> int:
    sizes = {each.data_ptr(): each.numel() * each.element_size() for each in tensors if hasattr(each, "numel")}
    return sum(sizes.values())


_CONVERTED = frozenset({"int8", "nf4", "nf4-dq"})
"""Methods of bitsandbytes, which convert at load."""
_NEEDS_CUDA = frozenset({"gptq-int4", "gptq-int8", "awq-int4"})


def read_config(folder: Path, setup: TransformersConfig) -> Any:  # noqa: ANN401 - torch is not imported here
    """Return Transformers' config of a checkpoint, and import everything for loading it. Raises ValueError."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(
        folder, trust_remote_code=setup.trust_remote_code, local_files_only=True
    )
    if type(config) in AutoModelForCausalLM._model_mapping:
        AutoModelForCausalLM._model_mapping[type(config)]
    if setup.method in _CONVERTED:
        importlib.import_module("bitsandbytes")
    return config


def load_model(folder: Path, config: Any, setup: TransformersConfig, device: str) -> Any:  # noqa: ANN401
    """Return the model, in evaluation mode, on one device. Raises Refusal and Transformers' errors."""
    from transformers import AutoModelForCausalLM

    if setup.method in _NEEDS_CUDA and device == "cpu":
        raise Refusal("load", f"{setup.method} needs a CUDA GPU, but torch sees none")
    with beside_the_limit(read_checkpoint(folder).file_bytes):  # mapped while they are read
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            use_safetensors=True,
            device_map={"": device},
            dtype=torch_dtype(setup.dtype),
            attn_implementation=setup.attention,
            trust_remote_code=setup.trust_remote_code,
            **_quantization(config, setup),
        )
    model.eval()
    return model


def torch_dtype(name: str) -> Any:  # noqa: ANN401
    import torch

    return {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[name]


def _quantization(config: Any, setup: TransformersConfig) -> dict[str, Any]:  # noqa: ANN401
    """Return the option that converts at load; empty if nothing is converted or the files already are."""
    stored = getattr(config, "quantization_config", None)
    if stored is not None or setup.method not in _CONVERTED:
        return {}
    from transformers import BitsAndBytesConfig

    if setup.method == "int8":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=setup.method == "nf4-dq",
            bnb_4bit_compute_dtype=torch_dtype(setup.dtype),
        )
    }


_CPU_ALLOCATOR = re.compile(r"can't allocate memory|not enough memory|cannot allocate memory", re.I)
"""Messages of c10's `alloc_cpu.cpp`; torch has no class for them."""
_UNCLEAR = re.compile(
    r"could not create a (?:primitive|memory)|issues during automatic conversion of the weights"
)
"""Errors of oneDNN if its own buffers do not fit, and of Transformers if bitsandbytes' do not; both may have other
causes, so they count only under a limit.
"""


def is_memory_error(error: BaseException, *, is_limited: bool) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or is_out_of_memory(text)
        or bool(_CPU_ALLOCATOR.search(text))
        or (is_limited and bool(_UNCLEAR.search(text)))
    )


def one_line(error: BaseException) -> str:
    """Return the first non-empty line of an exception, printable and shortened."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if text.startswith("[enforce fail"):  # c10 prints its source location before the message
        text = text.partition("] ")[2].lstrip(". ") or text
    return shorten(sanitize(text or type(error).__name__), 300)
