"""Find which GPUs to use, the least of a model that has to stay in main memory, and how to divide the rest.

What people run: the experts of the first layers (`--n-cpu-moe`), or the first layers whole (`--n-gpu-layers`). The
sizes of the tensors and the cache give the number; llama.cpp's allocator confirms or corrects it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ggbench.engines.llama.config import EXPERTS, LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import ModelFile, layer_of
from ggbench.sizing.dry_allocator import DryContext
from ggbench.sizing.fit import Fit, Fitter
from ggbench.sizing.plan_record import PlannedDevice
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.offload import are_parallel
from ggbench.sizing.theory.weights import is_tied

LARGE_UBATCH = 2048
"""`-ub` with experts in main memory, as llama.cpp's own guides have it: a prompt copies them to a GPU once for each."""
_MOST_TRIES = 6
"""Contexts to size at most; two are usual."""


class _Layer(NamedTuple):
    """Bytes of one layer, the output's as the last."""

    experts: int
    rest: int
    """Its other tensors, and its part of the cache."""


def on_fastest(whole: Fit) -> Iterator[LlamaConfig]:
    """Yield a setup for each of the GPUs' bandwidths but the least, with only those that have it or more.

    No other choice is faster: a layer takes as long as its GPU takes to read it. Only those that weights and cache may
    fit are yielded, and none if a bandwidth is unknown, or the user has placed the model.
    """
    setup, gpus = whole.setup, whole.budget.devices
    is_placed = setup.devices or setup.tensor_split or setup.split_mode != "layer"
    rates = {gpu.bandwidth.bytes_per_s for gpu in gpus if gpu.bandwidth is not None}
    if is_placed or any(gpu.bandwidth is None for gpu in gpus):
        return
    least_bytes = (whole.placement.weight_bytes or 0) + whole.context.cache_bytes
    for rate in sorted(rates)[:0:-1]:
        names = [
            gpu.ggml_name for gpu in gpus if gpu.bandwidth is not None and gpu.bandwidth.bytes_per_s >= rate
        ]
        fastest = replace(setup, devices=tuple(names))
        if least_bytes <= whole.budget.used_by(fastest).usable_bytes:
            yield fastest


def smallest_split(fitter: Fitter, whole: Fit) -> Fit | None:
    """Return the fit that keeps least in main memory so that the GPUs have enough; None if no number is enough.

    Experts come first. Main memory may still be too small for its part. `whole` has everything on the GPUs, which does
    not fit. Raises EngineEnded if the worker ends, but not if llama.cpp refuses a context.
    """
    setup = whole.setup
    if (
        setup.cpu_moe
        or setup.n_cpu_moe
        or setup.override_tensor
        or setup.n_gpu_layers >= 0
        or not setup.kv_offload
    ):
        return None  # the user has placed it
    if fitter.budget.is_unified:
        return None  # main memory is the GPU's
    layers = _layers(fitter.file, setup, whole.context)
    kinds = ("n_cpu_moe", "n_gpu_layers") if any(layer.experts for layer in layers) else ("n_gpu_layers",)
    for kind in kinds:
        found = _Search(fitter, setup, layers, kind).least(whole)
        if found is not None:
            return found
    return None


class _Search:
    def __init__(self, fitter: Fitter, setup: LlamaConfig, layers: Sequence[_Layer], kind: str) -> None:
        self._fitter, self._setup = fitter, setup
        self._devices, self._n_layer = fitter.budget.devices, fitter.file.n_layer
        self._layers, self._kind = layers, kind

    def least(self, whole: Fit) -> Fit | None:
        """Return the fit of the smallest number with which every GPU has enough; None if none does."""
        low, most = 1, self._n_layer + (self._kind != "n_cpu_moe")
        beside = {each.device: each.compute_bytes + each.draft_bytes for each in self._gpus(whole)}
        fits: Fit | None = None
        for _ in range(_MOST_TRIES):
            number, counts = self._next(low, most, beside)
            if not counts:
                break
            found = self._fitter.sized(self._with(number, counts))
            if found is None:
                return fits
            planned, left = self._gpus(found), list(self._kept(number))
            for device, count in zip(planned, counts, strict=False):
                beside[device.device] = device.needed_bytes - sum(left[:count])
                del left[:count]
            if any((device.left_bytes or 0) < 0 for device in planned):
                low = number + 1
            else:
                fits, most = found, number - 1
        return fits

    def _next(self, low: int, most: int, beside: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
        """Return the number to size next, with how many layers lie on each GPU; with none, the search ends.

        GPUs that split each layer have no layers of their own: the interval is halved.
        """
        if are_parallel(self._setup, self._devices):
            return (low + most) // 2, (1,) * (low <= most)
        sized = ((number, self._counts(number, beside)) for number in range(low, most + 1))
        return next(((number, counts) for number, counts in sized if counts), (0, ()))

    def _gpus(self, fit: Fit) -> tuple[PlannedDevice, ...]:
        """Return the contents of the GPUs."""
        return fit.devices[: len(self._devices)]

    def _kept(self, number: int) -> list[int]:
        """Return the bytes on GPUs of each layer with a part there, the output's as the last."""
        if self._kind != "n_cpu_moe":
            return [layer.rest + layer.experts for layer in self._layers[number:]]
        return [
            layer.rest + (0 if index < number else layer.experts) for index, layer in enumerate(self._layers)
        ]

    def _counts(self, number: int, beside: Mapping[str, int]) -> tuple[int, ...]:
        """Return how many layers lie on each GPU, the output's included; empty if they do not all fit.

        `beside` has the other bytes on each.
        """
        counts, left = [], self._kept(number)
        for device in self._devices:
            room, count = device.usable_bytes - beside.get(device.device, 0), 0
            while left and left[0] <= room:
                room -= left.pop(0)
                count += 1
            counts.append(count)
        return () if left else tuple(counts)

    def _with(self, number: int, counts: tuple[int, ...]) -> LlamaConfig:
        value = number if self._kind == "n_cpu_moe" else self._n_layer + 1 - number
        setup = replace(self._setup, **{self._kind: value})
        return replace(setup, tensor_split=tuple(map(float, counts))) if len(counts) > 1 else setup


def _layers(file: ModelFile, setup: LlamaConfig, context: DryContext) -> list[_Layer]:
    experts, rest = [0] * (file.n_layer + 1), [0] * (file.n_layer + 1)
    tied = is_tied(file.tensors)
    for tensor in file.tensors:
        layer, n_bytes = layer_of(tensor.name), tensor.n_bytes or 0
        if layer is not None and re.search(EXPERTS, tensor.name):
            experts[layer] += n_bytes
        elif layer is not None:
            rest[layer] += n_bytes
        elif not tensor.name.startswith("token_embd") or tied:
            rest[-1] += n_bytes
    cached = list(_cached(file, setup, context))
    total = sum(cached) or 1.0
    for layer, share in enumerate(cached):
        rest[layer] += round(context.cache_bytes * share / total)
    return [_Layer(*each) for each in zip(experts, rest, strict=True)]


def _cached(file: ModelFile, setup: LlamaConfig, context: DryContext) -> Iterator[float]:
    """Yield the bytes of each layer's cache by the formula; equal ones without a formula."""
    for layer in range(file.n_layer):
        try:
            cache = kv_cache(file, setup.type_k, setup.type_v, {layer})
        except Unsupported:
            yield 1.0
        else:
            yield replace(cache, window=context.swa_cells or cache.window).cached_bytes(context.n_ctx)
