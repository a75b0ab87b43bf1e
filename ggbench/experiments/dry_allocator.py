"""llama.cpp's own allocator, run dry: what a context of any length would take, in milliseconds and no memory.

The cache and the compute buffers depend on a model's graph and not on the types of its weights, so quants of one shape
share what was asked; their headers are loaded all the same, since llama.cpp may refuse one and take another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Crashed, Ending, TimedOut
from ggbench.engine.logs import parse_allocations
from ggbench.engine.process import Engine
from ggbench.gguf_file.model_file import ModelFile
from ggbench.plan_records import Budget
from ggbench.records import DeviceBuffers, LoadConfig


class DryRunEnded(Exception):
    """llama.cpp refused, or its worker ended; `ending` says how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


@dataclass(frozen=True, slots=True)
class DryContext:
    """What one context would take."""

    n_ctx: int
    """As llama.cpp rounded it."""
    cache_bytes: int
    """KV cache, or what stands in its place, over all devices; within 5 KiB for each cache."""
    device_compute_bytes: int
    """Compute buffers that are not in main memory; 0 where llama.cpp uses no GPU."""
    host_compute_bytes: int
    """Compute buffers in main memory."""
    output_bytes: int
    """Of the logits, in main memory."""
    flash_attn: bool | None
    """What `auto` became; None when the log does not say."""


def config_to_load(config: LoadConfig, budget: Budget) -> LoadConfig:
    """How the allocator of a plan loads its headers: no layer on a GPU where main memory is planned for."""
    return config if budget.on_gpu else replace(config, n_gpu_layers=0)


class DryAllocator:
    """One worker that loads headers and makes contexts of them, dry. A context manager; leaving it ends the worker."""

    def __init__(self, launch: Callable[[], Engine], config: LoadConfig, threads: int) -> None:
        """Starts the worker at once, since it takes a while to be ready; `config.n_ctx` is not looked at."""
        self._launch = launch
        self._engine: Engine | None = launch()
        self._config, self._threads = config, threads
        self._known: dict[tuple[object, int], DryContext] = {}
        self._shape: object = None
        self.build = ""
        """llama.cpp's version line; empty before the first load."""
        self.compute_devices: tuple[str, ...] = ()
        """Names of the buffers that the last context would compute in."""
        self.has_gpu = False
        """Whether one of them is not in main memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._engine is not None:
            self._engine.close()

    def load(self, file: ModelFile, path: Path) -> tuple[str, ...]:
        """Load the header at `path`, that of `file`; the names of the buffers that its weights would lie in.

        Raises DryRunEnded.
        """
        self._shape = None
        buffers, _, _ = self._ask(
            protocol.LoadModel(
                path=str(path), n_gpu_layers=self._config.n_gpu_layers, main_gpu=self._config.main_gpu or 0, dry=True
            )
        )
        self._shape = _shape(file)
        return tuple(device.device for device in buffers)

    def context(self, n_ctx: int) -> DryContext:
        """What a context of so many tokens would take with the loaded model. Raises DryRunEnded."""
        key = self._shape, n_ctx
        if key not in self._known:
            self._known[key] = self._make(n_ctx)
        return self._known[key]

    def _make(self, n_ctx: int) -> DryContext:
        config = self._config
        request = protocol.MakeContext(
            n_ctx=n_ctx,
            n_batch=config.n_batch,
            n_ubatch=config.n_ubatch,
            type_k=config.type_k,
            type_v=config.type_v,
            flash_attn=config.flash_attn,
            threads=self._threads,
        )
        buffers, (cache_bytes, flash_attn), made = self._ask(request)
        self.compute_devices = tuple(device.device for device in buffers if device.compute_bytes)
        self.has_gpu = any(device.compute_bytes for device in buffers if not device.is_host)
        return DryContext(
            n_ctx=made or n_ctx,
            cache_bytes=cache_bytes or 0,
            device_compute_bytes=sum(device.compute_bytes for device in buffers if not device.is_host),
            host_compute_bytes=sum(device.compute_bytes for device in buffers if device.is_host),
            output_bytes=sum(device.output_bytes for device in buffers),
            flash_attn=flash_attn,
        )

    def _ask(
        self, request: protocol.Request
    ) -> tuple[tuple[DeviceBuffers, ...], tuple[int | None, bool | None], int | None]:
        """Buffers, cache bytes with flash attention, and n_ctx, as the log and the answer tell. Raises DryRunEnded."""
        if self._engine is None:
            self._engine = self._launch()
        log: list[str] = []
        n_ctx = None
        for item in self._engine.call(request):
            if isinstance(item, protocol.Ready):
                self.build = item.llama_cpp
            elif isinstance(item, protocol.Log):
                log.append(item.text)
            elif isinstance(item, protocol.ContextMade):
                n_ctx = item.n_ctx
            elif isinstance(item, Ending) and not isinstance(item, Completed):
                if isinstance(item, Crashed | TimedOut):
                    self._engine.close()
                    self._engine = None
                raise DryRunEnded(item)
        allocations = parse_allocations(log)
        return allocations.buffers, (allocations.cache_bytes, allocations.flash_attn), n_ctx


def _shape(file: ModelFile) -> object:
    """Equal for models whose graphs are: metadata but for names, tokens and quantization, and the tensors' shapes."""
    told = {
        key: repr(value)
        for key, value in file.metadata.items()
        if not key.startswith(("general.", "tokenizer.", "ggbench.", "split.")) or key == "general.architecture"
    }
    return file.n_vocab, tuple(sorted(told.items())), tuple((tensor.name, tensor.shape) for tensor in file.tensors)
