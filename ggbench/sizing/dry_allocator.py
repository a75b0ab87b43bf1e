"""Run llama.cpp's own allocator dry: size a context of any length in milliseconds, without allocating memory.

The cache and the compute buffers depend on a model's graph, so quants of one shape share the results; the types of the
weights count only if a GPU reads some from main memory. Each header of a file is still loaded, since llama.cpp may
refuse one and accept another; of headers that ggbench made, one of a shape.

What drafts, a draft model or the model's own MTP layers, is sized too. llama-server gives the second context the
n_ctx, slots and batches of the first, but a cache of other types, f16 by default, all layers on the GPU and one output
for each slot (`LlamaConfig.for_draft`). MTP layers lie in the model's file, so only a context is added.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from msgspec.structs import replace

from ggbench.engines.contract import DescribedDevice, Engine, EstimateMemory, Source
from ggbench.engines.endings import Completed, Ending, EngineEnded
from ggbench.engines.events import Allocated, DeviceBuffers, Opened, Ready
from ggbench.engines.llama.config import LlamaConfig
from ggbench.files import temporary_folder
from ggbench.gguf_file.model_file import ModelFile, layer_of
from ggbench.gguf_file.twin import write_sparse
from ggbench.record import Record
from ggbench.sizing.drafts import check_drafts
from ggbench.sizing.plan_record import Budget, DeviceMemory
from ggbench.sizing.theory.offload import HOST, device_layers
from ggbench.units import MIB


class DraftContext(Record):
    """A draft model, or the MTP layers of the model itself, with a context of the same n_ctx."""

    file: ModelFile
    """The draft model; without weights for MTP layers, which are in the model's file."""
    setup: LlamaConfig
    context: DryContext


class DryContext(Record):
    n_ctx: int
    cache_bytes: int
    """KV cache, or what replaces it, over all devices; the states of recurrent layers are within 5 KiB."""
    device_compute_bytes: int
    """Compute buffers that are not in main memory; 0 if llama.cpp uses no GPU."""
    host_compute_bytes: int
    output_bytes: int
    flash_attn: bool | None
    """Value that `auto` resolved to; None if the log does not say."""
    device_compute: tuple[tuple[str, int], ...] = ()
    """The compute buffer of each device except main memory, by llama.cpp's name."""
    swa_cells: int | None = None
    """Cells of the sliding-window layers' caches; None if there are no such layers, or the engine does not say."""
    draft: DraftContext | None = None

    def process_bytes(self, file: ModelFile) -> int:
        """Return the main memory that decoding to the end of a file's context takes outside buffers."""
        entries = (file.metadata.get(key) for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"))
        vocabulary = _VOCABULARY_ENTRY_BYTES * sum(n for n in entries if isinstance(n, int))
        n_cells = min(self.n_ctx, self.cache_bytes // _SMALLEST_CELL_BYTES)  # a recurrent state has no cells
        context_bytes = _CONTEXT_BYTES + _TENSOR_BYTES * max(_FEWEST_TENSORS, len(file.tensors))
        return vocabulary + context_bytes + _DECODE_BYTES + (_MADE_CELL_BYTES + _USED_CELL_BYTES) * n_cells


_CONTEXT_BYTES, _TENSOR_BYTES, _FEWEST_TENSORS = 2 * MIB, 160 << 10, 128
"""What llama.cpp's process takes outside its buffers, which no log reports: measured with llama.cpp 0.5.0 on a 64-bit
machine under address space limits.

Mostly the scheduler: ggml reserves 60 copies of each node for split inputs, and llama.cpp 8 nodes per tensor, at least
1024. Measured: 43 MiB with 272 tensors, 37 with 236.
"""
_VOCABULARY_ENTRY_BYTES = 170
"""Per token and merge: 42.4 MB with 262,144 tokens, 17.1 with 49,152 and as many merges."""
_MADE_CELL_BYTES = 50
"""Entry in the cell table before use: Gemma 3 270M under limits from 0.5 to 4 GiB."""
_DECODE_BYTES, _USED_CELL_BYTES = 5 * MIB, 100
"""Extra bytes for the first decodes, and per cell in use besides K and V: measured 4.6 MiB and 90 bytes."""

_SMALLEST_CELL_BYTES = 64
"""K and V of one layer."""


class LoadedHeader(NamedTuple):
    """A header that the worker has loaded."""

    file: ModelFile
    source: Source
    shape: object
    """Key of its graph; equal for quants of one shape."""


def setup_to_load(setup: LlamaConfig, budget: Budget) -> LlamaConfig:
    """Return the load configuration for planning: one GPU, or main memory if no layers are offloaded."""
    if not budget.on_gpu:
        return replace(setup, n_gpu_layers=0)
    if len(budget.devices) > 1:
        return setup
    is_here = budget.devices and not budget.devices[0].backend
    return replace(setup, main_gpu=setup.main_gpu if is_here else 0, tensor_split=())


class DryAllocator:
    """A worker that loads headers and creates contexts dry. A context manager that stops the worker."""

    def __init__(
        self,
        engine: Engine,
        setup: LlamaConfig,
        devices: Sequence[DeviceMemory] = (),
        draft: ModelFile | None = None,
        launch: Callable[[], Engine] | None = None,
    ) -> None:
        """`setup.n_ctx` is ignored; `setup.threads` must be set. `devices` are those of the budget.

        Without a `draft`, the MTP layers of the model draft if `setup.mtp` says so. A draft is sized by a worker of its
        own, which `launch` starts when it is needed.
        """
        self._draft, self._launch, self._opened = draft, launch, contextlib.ExitStack()
        self._engine, self._devices = engine, devices
        self._setup = replace(setup, n_ctx=None, memory_limit_bytes=None)
        self._loaded: LoadedHeader
        self._known: dict[tuple[object, tuple[str, ...], LlamaConfig], DryContext] = {}
        self.versions: Mapping[str, str] | None = None
        """Versions that the engine reports; None before the first load."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._opened:
            self._engine.close()

    def load(self, file: ModelFile, path: Path) -> LoadedHeader:
        """Load the header of `file` at `path`, of which contexts are from now on. Raises EngineEnded, and like
        `check_drafts`.
        """
        if self._draft is not None or self._setup.mtp:
            check_drafts(self._draft, file)
        self._loaded = LoadedHeader(file, Source(path), _shape(file))
        if not (file.is_twin and any(shape == self._loaded.shape for shape, *_ in self._known)):
            self._open(self._setup)
        return self._loaded

    def resume(self, loaded: LoadedHeader) -> None:
        """Go back to a header that was loaded before."""
        self._loaded = loaded

    def context(self, n_ctx: int, setup: LlamaConfig | None = None) -> DryContext:
        """Return the size of a context of `n_ctx` tokens with the loaded model, and of what drafts for it, unless
        `setup` turns MTP layers off. Raises EngineEnded.

        `setup` replaces the allocator's own, except the threads and, for a single device, its choice.
        """
        asked = setup or self._setup
        if self._draft is None and not asked.mtp:
            return self._context(n_ctx, setup)
        context, alike = self._context(n_ctx, asked.of_target()), asked.for_draft()
        if self._draft is not None:
            file, drafting = self._draft, self._of_draft.context(context.n_ctx, alike)
        else:
            # a second context: without weights and vocabulary, its cache unknown to the theory
            file = replace(self._loaded.file, tensors=(), metadata={}, no_kv_reason="runs only the MTP layers")
            drafting = self._context(context.n_ctx, alike)
        return replace(context, draft=DraftContext(file, alike, drafting))

    @functools.cached_property
    def _of_draft(self) -> DryAllocator:
        """The draft's allocator, with its header loaded. Raises EngineEnded."""
        assert self._draft is not None and self._launch is not None
        with contextlib.ExitStack() as opened:
            folder = opened.enter_context(temporary_folder())
            path = write_sparse(self._draft, folder)
            found = opened.enter_context(DryAllocator(self._launch(), self._setup.for_draft(), self._devices))
            found.load(self._draft, path)
            self._opened = opened.pop_all()
        return found

    def _context(self, n_ctx: int, setup: LlamaConfig | None) -> DryContext:
        wanted = self._setup
        if setup is not None:
            n_gpu_layers = setup.n_gpu_layers if self._setup.n_gpu_layers else 0
            kept = {name: getattr(self._setup, name) for name in ("main_gpu", "threads")}
            split = setup.tensor_split if len(self._used(setup)) > 1 else self._setup.tensor_split
            wanted = replace(
                setup, n_gpu_layers=n_gpu_layers, memory_limit_bytes=None, tensor_split=split, **kept
            )
        wanted = replace(wanted, n_ctx=n_ctx)
        key = self._loaded.shape, self._copied_types(wanted), wanted
        if key not in self._known:
            self._known[key] = self._make(wanted)
        return self._known[key]

    def _used(self, setup: LlamaConfig) -> list[DeviceMemory]:
        return [each for each in self._devices if each.is_used(setup)]

    def _copied_types(self, setup: LlamaConfig) -> tuple[str, ...]:
        """Return the types of the weights if some stay in main memory, since a GPU copies these for large batches."""
        is_whole = setup.n_gpu_layers < 0 and not setup.tensor_overrides
        if not self._devices or is_whole:
            return ()
        return tuple(tensor.type_name for tensor in self._loaded.file.tensors)

    def _make(self, setup: LlamaConfig) -> DryContext:
        allocated, opened = self._open(setup)
        n_ctx = (opened.n_ctx if opened else None) or setup.n_ctx or 0
        buffers = allocated.buffers
        if allocated.n_copies > 1:
            buffers = self._without_copied_norms(buffers, setup, n_ctx, allocated.n_copies)
        return DryContext(
            n_ctx=n_ctx,
            cache_bytes=allocated.cache_bytes or 0,
            device_compute_bytes=sum(device.compute_bytes for device in buffers if not device.is_host),
            host_compute_bytes=sum(device.compute_bytes for device in buffers if device.is_host),
            output_bytes=sum(device.output_bytes for device in buffers),
            flash_attn=allocated.flash_attn,
            device_compute=tuple((each.device, each.compute_bytes) for each in buffers if not each.is_host),
            swa_cells=allocated.swa_cells,
        )

    def _without_copied_norms(
        self, buffers: Sequence[DeviceBuffers], setup: LlamaConfig, n_ctx: int, n_copies: int
    ) -> tuple[DeviceBuffers, ...]:
        """Return the buffers without the bytes that only a dry run counts, on each device with layers except the first.

        llama.cpp assigns a layer's norms to the layer's device. `ggml_backend_sched_reserve_size`, which sizes a dry
        graph, starts with a reset that loses this, so the previous device computes the first norm and sends it with the
        layer's input, with room for every copy. Models whose layers start differently have no such norm.
        """
        file, devices = self._loaded.file, self._used(setup)
        layers = device_layers(file.n_layer, setup, devices)[:-1] if devices else ()
        firsts = {place: layer for layer, place in reversed(list(enumerate(layers))) if place != HOST}
        begin_with_norm = {
            layer_of(each.name) for each in file.tensors if each.name.endswith(".attn_norm.weight")
        }
        norm_bytes = n_copies * 4 * file.n_embd * min(n_ctx, setup.n_ubatch)
        counted = {
            devices[place].device: norm_bytes
            for place, layer in firsts.items()
            if place > min(firsts) and layer in begin_with_norm
        }
        return tuple(
            replace(each, compute_bytes=max(0, each.compute_bytes - counted.get(each.device, 0)))
            for each in buffers
        )

    def _open(self, setup: LlamaConfig) -> tuple[Allocated, Opened | None]:
        """Return llama.cpp's report of the load, and of a context if there is an n_ctx.

        Raises EngineEnded, or BindingFailed if no model can be sized so.
        """
        allocated, opened = Allocated(()), None
        described = tuple(
            DescribedDevice(device.device, device.backend, device.usable_bytes)
            for device in self._used(setup)
            if device.backend
        )
        for event in self._engine.run(EstimateMemory(self._loaded.source, setup, described)):
            match event:
                case Ready():
                    self.versions = event.versions
                case Allocated():
                    allocated = event
                case Opened():
                    opened = event
                case Ending() if not isinstance(event, Completed):
                    raise event.cause or EngineEnded(event)
        return allocated, opened


def _shape(file: ModelFile) -> object:
    """Return a key of the model's graph: metadata except names, tokens and quantization, and the tensors' shapes."""
    graph = {
        key: repr(value)
        for key, value in file.metadata.items()
        if not key.startswith(("general.", "tokenizer.", "ggbench.", "split.")) or key == "general.architecture"
    }
    return (
        file.n_vocab,
        tuple(sorted(graph.items())),
        tuple((tensor.name, tensor.shape) for tensor in file.tensors),
    )
