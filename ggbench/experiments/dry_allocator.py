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
from ggbench.engine.logs import Allocations, parse_allocations
from ggbench.engine.process import Engine
from ggbench.gguf_file.model_file import ModelFile
from ggbench.plan_records import Budget
from ggbench.records import LoadConfig


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
    """How the allocator of a plan loads its headers: for one GPU, or for main memory with no layer on any."""
    if not budget.on_gpu:
        return replace(config, n_gpu_layers=0)
    return replace(config, main_gpu=0, tensor_split=())  # the card that is planned for need not be here


class DryAllocator:
    """One worker that loads headers and makes contexts of them, dry. A context manager; leaving it ends the worker."""

    def __init__(self, launch: Callable[[], Engine], config: LoadConfig, threads: int) -> None:
        """Starts the worker at once, since it takes a while to be ready; `config.n_ctx` is not looked at."""
        self._launch = launch
        self._engine: Engine | None = launch()
        self._config, self._threads = config, threads
        self._known: dict[tuple[object, int], DryContext] = {}
        self._shape: object = None
        self.ready: tuple[str, str, str] | None = None
        """llama-cpp-python's version, llama.cpp's version line and its system info; None before the first load."""
        self.compute_devices: tuple[str, ...] = ()
        """Names of the buffers that the last context would compute in."""
        self.has_gpu = False
        """Whether one of them is not in main memory."""
        self.gpu_devices: tuple[tuple[str, str | None], ...] = ()
        """llama.cpp's names of the GPUs that the last load would use, each with its PCI bus id or UUID; of a load that
        was refused those with an id."""
        self.free_bytes: int = 0
        """What llama.cpp finds free on all of them, each taken for the fullest; 0 where it uses none."""

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
        config = self._config
        allocations, answer = self._ask(
            protocol.LoadModel(
                path=str(path),
                n_gpu_layers=config.n_gpu_layers,
                main_gpu=config.main_gpu,
                tensor_split=config.tensor_split,
                dry=True,
            )
        )
        self._shape = _shape(file)
        self.gpu_devices = allocations.gpu_devices
        self.free_bytes = (answer.left_bytes or 0) if isinstance(answer, protocol.ModelLoaded) else 0
        return tuple(device.device for device in allocations.buffers)

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
        allocations, answer = self._ask(request)
        buffers = allocations.buffers
        self.compute_devices = tuple(device.device for device in buffers if device.compute_bytes)
        self.has_gpu = any(device.compute_bytes for device in buffers if not device.is_host)
        return DryContext(
            n_ctx=answer.n_ctx if isinstance(answer, protocol.ContextMade) else n_ctx,
            cache_bytes=allocations.cache_bytes or 0,
            device_compute_bytes=sum(device.compute_bytes for device in buffers if not device.is_host),
            host_compute_bytes=sum(device.compute_bytes for device in buffers if device.is_host),
            output_bytes=sum(device.output_bytes for device in buffers),
            flash_attn=allocations.flash_attn,
        )

    def _ask(self, request: protocol.Request) -> tuple[Allocations, protocol.ModelLoaded | protocol.ContextMade | None]:
        """What the log tells of memory, and the answer. Raises DryRunEnded."""
        if self._engine is None:
            self._engine = self._launch()
        log: list[str] = []
        answer: protocol.ModelLoaded | protocol.ContextMade | None = None
        for item in self._engine.call(request):
            if isinstance(item, protocol.Ready):
                self.ready = item.llama_cpp_python, item.llama_cpp, item.system_info
            elif isinstance(item, protocol.Log):
                log.append(item.text)
            elif isinstance(item, protocol.ModelLoaded | protocol.ContextMade):
                answer = item
            elif isinstance(item, Ending) and not isinstance(item, Completed):
                if isinstance(item, Crashed | TimedOut):
                    self._engine.close()
                    self._engine = None
                if isinstance(request, protocol.LoadModel):
                    self.gpu_devices = parse_allocations(log).gpu_devices
                raise DryRunEnded(item)
        return parse_allocations(log), answer


def _shape(file: ModelFile) -> object:
    """Equal for models whose graphs are: metadata but for names, tokens and quantization, and the tensors' shapes."""
    told = {
        key: repr(value)
        for key, value in file.metadata.items()
        if not key.startswith(("general.", "tokenizer.", "ggbench.", "split.")) or key == "general.architecture"
    }
    return file.n_vocab, tuple(sorted(told.items())), tuple((tensor.name, tensor.shape) for tensor in file.tensors)
