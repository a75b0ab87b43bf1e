"""Find which GPUs to use, and what would help if a model does not fit: changes to the load, sized like the plan.

Each is the smallest of its kind that is enough or, if none is, the one that saves most. What people keep in main memory
is the experts of the first layers (`--n-cpu-moe`), or the first layers whole (`--n-gpu-layers`): the sizes of tensors
and cache give the number, and llama.cpp's allocator confirms or corrects it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from msgspec.structs import replace

from ggbench.engines.llama.config import EXPERTS, LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import layer_of
from ggbench.sizing.fit import Fit, Fitter
from ggbench.sizing.plan_record import Change, ChangeKind, PlanRow
from ggbench.sizing.theory.kv_cache import kv_cache

_COSTS: tuple[ChangeKind, ...] = get_args(ChangeKind)
LARGE_UBATCH = 2048
"""`-ub` with experts in main memory, as llama.cpp's own guides have it: a prompt copies them to a GPU once for each."""
_MOST_TRIES = 6
"""Contexts to size at most for a number; one is usual."""


def what_helps(fitter: Fitter, missed: Fit, longest: int) -> tuple[Change, ...]:
    """Return changes to the load of a quant that does not fit, the best first; `longest` is its longest context.

    The longest context is searched only for changes that are enough, or for all if none is, since that takes a while.
    Raises EngineEnded if the worker ends, but not if llama.cpp refuses a change.
    """
    tried = [*_of_context(fitter, missed.setup, longest), *placements(fitter, missed.setup)]
    found = [(kind, fit) for kind, fit in tried if fit is not None and fit.left_bytes > missed.left_bytes]
    has_enough = any(fit.is_enough for _, fit in found)
    changes = [_change(kind, fit, fitter, searches=fit.is_enough or not has_enough) for kind, fit in found]
    return _in_order(changes, longest < missed.context.n_ctx / 2)


def _change(kind: ChangeKind, fit: Fit, fitter: Fitter, *, searches: bool) -> Change:
    memories = fit.devices if kind in ("n_cpu_moe", "n_gpu_layers") else ()
    return Change(
        kind=kind,
        setup=fit.setup,
        needed_bytes=fit.needed_bytes,
        left_bytes=fit.left_bytes,
        planned_n_ctx=(fitter.longest(fit) or None) if searches else None,
        host_bytes=memories[-1].needed_bytes if memories else None,
    )


def with_other_quants(rows: Sequence[PlanRow], others: Sequence[PlanRow] = ()) -> list[PlanRow]:
    """Return the rows, adding to each that does not fit the largest smaller quant that does."""
    fitting = [row for row in (*rows, *others) if row.fits]
    return [_with_other_quant(row, fitting) if row.fits is False else row for row in rows]


def _with_other_quant(row: PlanRow, fitting: Sequence[PlanRow]) -> PlanRow:
    smaller = [each for each in fitting if (each.weight_bytes or 0) < (row.weight_bytes or 0)]
    if not smaller:
        return row
    other = max(smaller, key=lambda each: each.weight_bytes or 0)
    change = Change(
        kind="quant",
        setup=None,
        needed_bytes=other.needed_bytes or 0,
        left_bytes=other.left_bytes or 0,
        planned_n_ctx=other.planned_n_ctx,
        quant=other.quant,
    )
    is_drastic = (row.planned_n_ctx or 0) < (row.n_ctx or 0) / 2
    return replace(row, changes=_in_order([*row.changes, change], is_drastic))


def _of_context(fitter: Fitter, setup: LlamaConfig, longest: int) -> Iterator[tuple[ChangeKind, Fit | None]]:
    """Yield a smaller cache and a shorter context."""
    flash_attn = "on" if setup.flash_attn == "off" else setup.flash_attn
    smaller = replace(setup, type_k="q8_0", type_v="q8_0", flash_attn=flash_attn)
    yield "KV q8_0", fitter.sized(smaller)
    if longest:
        yield "n_ctx", fitter.sized(replace(setup, n_ctx=longest))


def on_fastest(whole: Fit) -> Iterator[LlamaConfig]:
    """Yield a setup for each of the GPUs' bandwidths but the least, with only those that have it or more.

    No other choice is faster: a layer takes as long as its GPU takes to read it. Only those that weights and cache may
    fit are yielded, and none if a bandwidth is unknown, or the user has placed the model.
    """
    setup, gpus = whole.setup, whole.budget.devices
    is_placed = setup.devices or setup.tensor_split or setup.split_mode != "layer"
    rates = {gpu.ggml_name: gpu.bandwidth.bytes_per_s for gpu in gpus if gpu.bandwidth is not None}
    if is_placed or len(rates) < len(gpus):
        return
    least_bytes = (whole.placement.weight_bytes or 0) + whole.context.cache_bytes
    for least in sorted(set(rates.values()))[:0:-1]:
        fastest = replace(setup, devices=tuple(name for name, rate in rates.items() if rate >= least))
        if least_bytes <= whole.budget.used_by(fastest).usable_bytes:
            yield fastest


def smallest_split(fitter: Fitter, whole: Fit) -> Fit | None:
    """Return the fit that keeps least in main memory so that the GPUs have enough; None if no number is enough, or if
    the setup says itself what lies there.

    Experts come first. Main memory may still be too small for its part. `whole` has everything on the GPUs, which does
    not fit. Raises EngineEnded if the worker ends, but not if llama.cpp refuses a context.
    """
    if whole.setup.places_tensors:
        return None
    return next((fit for _, fit in placements(fitter, whole.setup) if fit and _on_gpus(fit) >= 0), None)


def placements(fitter: Fitter, setup: LlamaConfig) -> Iterator[tuple[ChangeKind, Fit | None]]:
    """Yield, for GPUs with memory of their own, the fits with the fewest experts or whole layers in main memory with
    which the GPUs have enough, else with the most; None if llama.cpp refuses it.
    """
    if fitter.budget.on_gpu and not fitter.budget.is_unified:
        if fitter.file.n_expert and setup.n_gpu_layers < 0 and not setup.cpu_moe:
            yield "n_cpu_moe", _Search(fitter, replace(setup, n_cpu_moe=0), "n_cpu_moe").least()
        yield "n_gpu_layers", _Search(fitter, replace(setup, n_gpu_layers=-1), "n_gpu_layers").least()


def _on_gpus(fit: Fit) -> int:
    """Return what is left of the GPU with the least; negative if one lacks memory."""
    return min(fit.placement.left_by_memory(fit.context)[: len(fit.placement.devices)])


class _Layer(NamedTuple):
    """Bytes of one layer on GPUs, the output's as the last."""

    experts: int
    rest: int
    """Its other tensors, and its part of the cache."""


class _Search:
    """Searches the least number of layers that stay in main memory, whole or with their experts."""

    def __init__(self, fitter: Fitter, setup: LlamaConfig, kind: ChangeKind) -> None:
        """`setup` has none there."""
        self._fitter, self._setup, self._kind = fitter, setup, kind
        self._devices, self._n_layer = fitter.budget.used_by(setup).devices, fitter.file.n_layer
        self._layers: Sequence[_Layer] = ()

    def least(self) -> Fit | None:
        """Return the fit of the smallest number with which every GPU has enough, or else of the largest."""
        whole = self._fitter.sized(self._setup)
        if whole is None or _on_gpus(whole) >= 0:
            return self._fitter.sized(self._with(0, ()))
        self._layers = _layers(self._fitter, whole)
        # to read a prompt, a GPU copies what stays in main memory, a tensor at a time
        tensors = whole.placement.device_tensors()
        copied = max((n_bytes for name, n_bytes in tensors if layer_of(name) is not None), default=0)
        beside = {each.device: each.compute_bytes + each.draft_bytes + copied for each in whole.devices}
        fits, low, most = None, 1, self._n_layer + (self._kind != "n_cpu_moe")
        for _ in range(_MOST_TRIES):
            number, counts = self._next(low, most, beside)
            if not counts:
                break
            found = self._fitter.sized(self._with(number, counts))
            if found is None:
                return fits
            left = list(self._kept(number))
            for device, count in zip(found.devices, counts, strict=False):
                beside[device.device] = device.needed_bytes - sum(left[:count])
                del left[:count]
            if _on_gpus(found) < 0:
                low = number + 1
            else:
                fits, most = found, number - 1
        return fits or self._fitter.sized(self._with(most, ()))

    def _next(self, low: int, most: int, beside: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
        """Return the number to size next, with how many layers lie on each GPU; with none, the search ends.

        GPUs that split each layer have no layers of their own: the interval is halved.
        """
        if self._setup.split_mode == "tensor":
            return (low + most) // 2, (1,) * (low <= most)
        sized = ((number, self._counts(number, beside)) for number in range(low, most + 1))
        return next(((number, counts) for number, counts in sized if counts), (0, ()))

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


def _layers(fitter: Fitter, whole: Fit) -> list[_Layer]:
    """Return what of each layer lies on GPUs."""
    file, setup, context = fitter.file, whole.setup, whole.context
    experts, rest = [0] * (file.n_layer + 1), [0] * (file.n_layer + 1)
    for name, n_bytes in whole.placement.device_tensors():
        layer = layer_of(name)
        if layer is not None and re.search(EXPERTS, name):
            experts[layer] += n_bytes
        else:
            rest[-1 if layer is None else layer] += n_bytes
    cached = [_cached(fitter, setup, context.swa_cells, context.n_ctx, layer) for layer in range(file.n_layer)]
    total = sum(cached) or 1.0
    for layer, share in enumerate(cached):
        rest[layer] += round(whole.placement.cache_bytes(context) * share / total)
    return [_Layer(*each) for each in zip(experts, rest, strict=True)]


def _cached(fitter: Fitter, setup: LlamaConfig, swa_cells: int | None, n_ctx: int, layer: int) -> float:
    """Return the bytes of a layer's cache by the formula; equal ones without a formula."""
    try:
        cache = kv_cache(fitter.file, setup.type_k, setup.type_v, {layer})
    except Unsupported:
        return 1.0
    return cache.cached_bytes(n_ctx, swa_cells)


def _in_order(changes: Sequence[Change], is_drastic: bool) -> tuple[Change, ...]:
    """Sort sufficient changes first, by cost, then the others by missing memory; a drastic cut of the context last."""

    def cost(change: Change) -> int:
        return len(_COSTS) if change.kind == "n_ctx" and is_drastic else _COSTS.index(change.kind)

    return tuple(
        sorted(changes, key=lambda each: (not each.fits, 0 if each.fits else -each.left_bytes, cost(each)))
    )
