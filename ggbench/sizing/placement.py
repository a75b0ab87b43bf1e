"""Place a model: what lies on each device and in main memory, and what decoding reads there.

A plan and the search for the largest context count the same way, also if only some layers are on a GPU.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ggbench.engines.llama.backend_rules import decodes_cache
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import LOADS_MTP_IF_ASKED, ROLLS_BACK
from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import ModelFile, TensorInfo, layer_of
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES
from ggbench.sizing.dry_allocator import DraftContext, DryContext
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory, PlannedDevice
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.offload import (
    HOST,
    are_parallel,
    device_layers,
    is_on_device,
    overriding_buffers,
    split_shares,
)
from ggbench.sizing.theory.tensor_split import Shares, TensorSplit
from ggbench.sizing.theory.weights import Weights, is_tied, weights_by_place
from ggbench.units import KV_CELLS

ONE_GPU = DeviceMemory("GPU", 0)
"""A GPU of unknown size, for what its size does not change."""

_Placed = tuple[TensorInfo, Shares]


class Placement:
    """One model under one configuration: its parts on each device and in main memory."""

    def __init__(
        self,
        file: ModelFile,
        setup: LlamaConfig,
        devices: Sequence[DeviceMemory] = (),
        host: DeviceMemory | None = None,
    ) -> None:
        """`devices` are GPUs, `host` the main memory of their machine, if known; without GPUs all lies there."""
        self.file, self.setup = file, setup
        shared = next((each.bandwidth for each in devices if each.is_shared), None)
        file = self._file = _as_loaded(file, setup)
        self.devices, self.host = tuple(devices), host
        self.memories = (
            *enumerate(self.devices),
            (HOST, host or DeviceMemory(HOST_DEVICE, 0, name="main memory", bandwidth=shared)),
        )
        """Each memory with its place, main memory last."""
        self.bandwidths = {place: each.bandwidth for place, each in self.memories if each.bandwidth is not None}
        self.planned_places = tuple(range(len(self.devices))) or (HOST,)
        """The memories that are planned for: the GPUs, or main memory without any."""
        self.n_ctx_step = KV_CELLS * setup.n_streams
        """llama.cpp rounds n_ctx up to its multiples."""
        self.layers = device_layers(file.n_layer, setup, devices) if devices else (HOST,) * (file.n_layer + 1)
        """The location of each layer, the output last."""
        self.n_gpu_layers = sum(place != HOST for place in self.layers)
        """Number of layers on devices, including the output."""
        self.first_gpu_layer = len(self.layers) - self.n_gpu_layers
        self._buffers = overriding_buffers(file, setup.tensor_overrides)
        self.is_parallel = are_parallel(setup, devices)
        """Whether llama.cpp makes one device of all, which compute a part of each layer at once."""
        self._split = TensorSplit(file, split_shares(setup, devices)) if self.is_parallel else None
        self._read, self._held = self._place_tensors()
        self._weights = self._weights_by_place()
        self.weight_bytes: int | None = None
        """Weights in the planned memory; None if a tensor's type, hence its size, is unknown."""
        self.host_weight_bytes: int | None = None
        """Weights that stay in main memory in a plan of GPUs, likewise."""
        if not file.unknown_types:
            self.weight_bytes = sum(self._weights[place] for place in self.planned_places)
            self.host_weight_bytes = self._weights[HOST] if devices else 0
        self._draft: Placement | None = None
        self._by_cache = {(setup.type_k, setup.type_v): self}
        self._place_cache()

    @classmethod
    def of(cls, file: ModelFile, setup: LlamaConfig, budget: Budget) -> Placement:
        """Return a file's placement in a budget."""
        return cls(file, setup, budget.devices, budget.host)

    def with_cache(self, type_k: str, type_v: str) -> Placement:
        """Return the placement with a cache of these types; the same one each time."""
        if (type_k, type_v) not in self._by_cache:
            found = self._by_cache[type_k, type_v] = copy.copy(self)
            found.setup = replace(self.setup, type_k=type_k, type_v=type_v)
            found._place_cache()
        return self._by_cache[type_k, type_v]

    @property
    def decodes_cache(self) -> bool:
        """Whether the first GPU has a kernel to decode with the types of the cache."""
        setup = self.setup
        is_used = setup.flash_attn != "off" and self.devices
        return not is_used or decodes_cache(self.devices[0].ggml_backend, setup.type_k, setup.type_v)

    def _place_cache(self) -> None:
        file, setup = self._file, self.setup
        self.theory: KvCache | None = None
        """The whole cache by the theory's formula; None if there is none, with the reason in `no_theory_reason`."""
        self.no_theory_reason = ""
        first = file.n_layer - file.n_layer_nextn if setup.ctx_type == "mtp" else 0
        self._cache_places = self.layers[first:-1] if setup.kv_offload else (HOST,) * (file.n_layer - first)
        self.is_cache_on_devices = HOST not in self._cache_places
        self.caches: dict[int, KvCache] = {}
        """The cache in each memory, by formula."""
        self._cached_layers: dict[int, float] = {}
        """Number of layers with their cache in each memory."""
        by_place: dict[int, list[int]] = {}
        for layer, place in enumerate(self._cache_places):
            by_place.setdefault(place, []).append(layer)
        counts = {place: self._layers_by_device(place, layers) for place, layers in by_place.items()}
        for count in counts.values():
            self._cached_layers |= count
        try:
            self.theory = kv_cache(file, setup.type_k, setup.type_v)
            for place, layers in by_place.items():
                cache = kv_cache(file, setup.type_k, setup.type_v, layers)
                for device, n_layers in counts[place].items():
                    self.caches[device] = cache.part(n_layers / len(layers))
        except Unsupported as error:
            self.no_theory_reason = error.message

    def _layers_by_device(self, place: int, layers: Sequence[int]) -> dict[int, float]:
        """Return of how many of these layers each device has the cache; with `-sm tensor` each has a part of all."""
        if place == HOST or self._split is None:
            return {place: float(len(layers))}
        found: dict[int, float] = {}
        for layer in layers:
            for device, share in self._split.of_cache(layer).items():
                found[device] = found.get(device, 0.0) + share
        return found

    @functools.cached_property
    def is_split(self) -> bool:
        """Whether some tensors that could be offloaded are in main memory."""
        return bool(self.devices) and (self.first_gpu_layer > 0 or self.is_overridden)

    @functools.cached_property
    def is_overridden(self) -> bool:
        """Whether only an override keeps a tensor in main memory."""
        return any(
            buffer is not None and buffer.startswith("CPU") and self._place_of(tensor, None) != HOST
            for tensor, buffer in zip(self._file.tensors, self._buffers, strict=True)
        )

    @functools.cached_property
    def n_crossed(self) -> int:
        """Number of layers of devices with tensors in main memory: each token crosses to the CPU and back in them."""
        kept = {layer_of(tensor.name) for tensor, shares in self._read if HOST in shares}
        return sum(place != HOST and layer in kept for layer, place in enumerate(self.layers[:-1]))

    def _place_tensors(self) -> tuple[list[_Placed], list[_Placed]]:
        """Return the tensors that decoding reads, and all, with the share of each in each memory.

        A tied embedding table is read with the output, and held in main memory too if that is on a device.
        """
        placed = [
            (tensor, self._divided(tensor, self._place_of(tensor, buffer)))
            for tensor, buffer in zip(self._file.tensors, self._buffers, strict=True)
        ]
        if not is_tied(self._file.tensors) or self.layers[-1] == HOST:
            return placed, placed
        output = {
            tensor.name: self._divided(tensor, self.layers[-1])
            for tensor in self._file.tensors
            if tensor.name == "token_embd.weight"
        }
        read = [(tensor, output.get(tensor.name, shares)) for tensor, shares in placed]
        return read, [*read, *(each for each in placed if each[0].name in output)]

    def _divided(self, tensor: TensorInfo, place: int) -> Shares:
        return {place: 1.0} if place == HOST or self._split is None else self._split.of_tensor(tensor)

    def _place_of(self, tensor: TensorInfo, buffer: str | None) -> int:
        """Return the location of a tensor in llama.cpp: given by an override, or else its layer's device."""
        if not self.devices:
            return HOST
        if buffer is not None:
            return self._place_of_buffer(buffer)
        if not is_on_device(tensor, self.first_gpu_layer, output_on_device=self.layers[-1] != HOST):
            return HOST
        layer = layer_of(tensor.name)
        return self.layers[-1 if layer is None else min(layer, len(self.layers) - 1)]

    def _place_of_buffer(self, buffer: str) -> int:
        if buffer.startswith("CPU"):
            return HOST
        names = [each.device for each in self.devices]
        return names.index(buffer) if buffer in names else 0

    def _weights_by_place(self) -> dict[int, int]:
        """Return the bytes in each memory."""
        held = dict.fromkeys((*range(len(self.devices)), HOST), 0)
        for tensor, shares in self._held:
            for place, share in shares.items():
                held[place] += round(share * (tensor.n_bytes or 0))
        return held

    def device_tensors(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the bytes of each tensor that no part of lies in main memory."""
        for tensor, shares in self._held:
            if HOST not in shares:
                yield tensor.name, tensor.n_bytes or 0

    def planned(self, context: DryContext) -> tuple[PlannedDevice, ...]:
        """Return the contents of each memory, main memory last; of one, if the first device may take all of it."""
        *found, host = self._contents(context)
        if self.host is not None:
            return (*found, host)
        if self.devices and self.devices[0].is_shared:
            return (_together(found[0], host), *found[1:])
        return (*found, replace(host, memory_bytes=None))

    def _contents(self, context: DryContext) -> list[PlannedDevice]:
        """Return the contents of each place, in the order of `memories`."""
        caches, drafts = self._cache_by_place(context), self._draft_by_place(context)
        found = [
            PlannedDevice(
                device=memory.device,
                name=memory.name,
                n_layers=self.layers.count(0 if self.is_parallel and place != HOST else place),
                memory_bytes=memory.free_bytes,
                weight_bytes=self._weights[place],
                kv_bytes=caches.get(place, 0),
                compute_bytes=self._compute_at(place, context),
                draft_bytes=drafts.get(place, 0),
                projector_bytes=memory.projector_bytes,
                process_bytes=self.unreserved_bytes(context),
                reserve_bytes=memory.reserve_bytes,
            )
            for place, memory in self.memories
        ]
        found[-1] = replace(found[-1], compute_bytes=found[-1].compute_bytes + context.output_bytes)
        return found

    def needed_bytes(self, context: DryContext) -> int:
        """Return what lies in the planned memory; logits are in main memory."""
        planned = self.planned(context)
        return sum(each.needed_bytes for each in planned[: len(self.planned_places)])

    def left_bytes(self, context: DryContext) -> int:
        """Return the least memory left on any device, or the shortage of main memory; negative if one lacks memory."""
        left = self.left_by_memory(context)
        if self.devices and self.host is not None and left[-1] >= 0:
            left.pop()
        return min(left)

    def left_by_memory(self, context: DryContext) -> list[int]:
        """Return what is left of each device, and last of main memory if its size is known."""
        return [each.left_bytes for each in self.planned(context) if each.left_bytes is not None]

    def _compute_at(self, place: int, context: DryContext) -> int:
        """Return the compute buffers in a memory; if llama.cpp has no GPU here, the CPU's stand in for a GPU's."""
        of_devices, of_host = context.device_compute_bytes, context.host_compute_bytes
        if not self.devices:
            return of_devices + of_host
        if place == HOST:
            return of_host if of_devices else 0
        if self.is_parallel:
            return of_devices + self._reduced_bytes(context)
        if len(self.devices) > 1:
            return dict(context.device_compute).get(self.devices[place].device, 0)
        return of_devices or of_host

    def _reduced_bytes(self, context: DryContext) -> int:
        """Return the buffers for the sums over all devices: of the largest result, one for each step.

        Source: `n_reduce_steps` and `max_tmp_size` in ggml-backend-meta.cpp of llama-cpp-python 0.3.36.
        """
        n_rows = min(self.setup.n_ubatch, context.n_ctx) * max(1, self._file.n_expert_used)
        return _FLOAT_BYTES * n_rows * self._file.n_embd * (len(self.devices) - 1).bit_length()

    def _cache_by_place(self, context: DryContext) -> dict[int, int]:
        """Return the cache in each memory, weighted by the theory, or else by layers."""
        counts, total = self._cached_layers, float(len(self._cache_places))
        if self.theory is not None:
            counts = {place: self._cached_bytes(each, context) for place, each in self.caches.items()}
            total = sum(counts.values())
        return {place: round(context.cache_bytes * count / (total or 1.0)) for place, count in counts.items()}

    def cache_bytes(self, context: DryContext) -> int:
        """Return the cache in the planned memory."""
        by_place = self._cache_by_place(context)
        return sum(by_place.get(place, 0) for place in self.planned_places)

    def compute_bytes(self, context: DryContext) -> int:
        """Return the compute buffers there."""
        return sum(self._compute_at(place, context) for place in self.planned_places)

    def draft_bytes(self, context: DryContext) -> int | None:
        """Return the memory of the draft there; None without one."""
        if context.draft is None:
            return None
        by_place = self._draft_by_place(context)
        return sum(by_place[place] for place in self.planned_places)

    def draft_weight_bytes(self, context: DryContext) -> int:
        """Return the weights of a draft model in the planned memory; 0 without one."""
        return 0 if context.draft is None else self._draft_placement(context.draft).weight_bytes or 0

    def _draft_by_place(self, context: DryContext) -> dict[int, int]:
        """Return what a draft takes of each memory."""
        if context.draft is None:
            return {}
        contents = self._draft_placement(context.draft)._contents(context.draft.context)
        return {place: each.needed_bytes for (place, _), each in zip(self.memories, contents, strict=True)}

    def _draft_placement(self, draft: DraftContext) -> Placement:
        """Return where a draft lies; it is the same for contexts of any length."""
        if self._draft is None:
            self._draft = Placement(draft.file, draft.setup, self.devices, self.host)
        return self._draft

    def unreserved_bytes(self, context: DryContext) -> int:
        """Return the main memory that decoding to the end of a context takes outside buffers and beyond the reserve."""
        if self.devices:
            return 0
        of_draft = 0 if context.draft is None else context.draft.context.process_bytes(context.draft.file)
        return max(0, context.process_bytes(self._file) + of_draft - BESIDE_BUFFERS_BYTES)

    def theory_bytes(self, context: DryContext) -> int | None:
        """Return the whole cache by the theory's formula, with llama.cpp's number of cells for windowed layers."""
        if self.theory is None:
            return None
        return round(self._cached_bytes(self.theory, context))

    def _cached_bytes(self, cache: KvCache, context: DryContext) -> float:
        """Return what a cache takes in a context: KV for each slot unless they share it, and all states."""
        setup, n_streams = self.setup, self.setup.n_streams
        n = context.n_ctx / n_streams
        n_states = setup.n_seq_max
        if setup.mtp and self._file.architecture in ROLLS_BACK:
            n_states *= 1 + setup.spec_draft_n_max
        kv_bytes = cache.cached_bytes(n, context.swa_cells) - cache.state_bytes
        return n_streams * kv_bytes + n_states * cache.state_bytes

    @functools.cached_property
    def weights_read(self) -> dict[int, Weights]:
        """The weights that decoding reads from each memory; a tied embedding table is read with the output.

        Raises Unsupported if a tensor's size is unknown.
        """
        return weights_by_place(self._file, self._read)

    def read_bytes(self, n: float, n_tokens: float = 1) -> dict[int, float]:
        """Return the bytes that decoding `n_tokens` at position n in one batch reads from each memory.

        Raises Unsupported if the cache or a tensor's size is unknown.
        """
        if self.theory is None:
            raise Unsupported(self.no_theory_reason, "")
        read = {place: weights.read_bytes(n_tokens) for place, weights in self.weights_read.items()}
        for place, cache in self.caches.items():
            read[place] = read.get(place, 0.0) + cache.read_bytes(n)
        return {place: n_bytes for place, n_bytes in read.items() if n_bytes}


def _together(device: PlannedDevice, host: PlannedDevice) -> PlannedDevice:
    """Return what lies in the memory of a device that shares all of main memory."""
    return replace(
        device,
        n_layers=device.n_layers + host.n_layers,
        weight_bytes=device.weight_bytes + host.weight_bytes,
        kv_bytes=device.kv_bytes + host.kv_bytes,
        compute_bytes=device.compute_bytes + host.compute_bytes,
        draft_bytes=device.draft_bytes + host.draft_bytes,
    )


def _as_loaded(file: ModelFile, setup: LlamaConfig) -> ModelFile:
    """Return the model without the layers that llama.cpp does not load, as it does not draft with them."""
    if setup.mtp or not file.n_layer_nextn or file.architecture not in LOADS_MTP_IF_ASKED:
        return file
    first = file.n_layer - file.n_layer_nextn
    return replace(file, tensors=tuple(each for each in file.tensors if (layer_of(each.name) or 0) < first))


_FLOAT_BYTES = 4
"""Bytes of an element of a computed tensor."""
