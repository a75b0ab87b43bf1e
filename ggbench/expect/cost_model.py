"""Predict times on devices that need not be here, from coefficients fitted to what others measured.

A time is a sum of costs: bytes over a bandwidth, layers, links, operations over a rate. Each cost is its least time
multiplied by the exponential of the sum of its terms' coefficients. The terms of a group (`read:device`) are normal
with mean zero and one spread, so a device with rows leans on its own, and one without them on its generation, with a
wider interval. `scripts/fit_speeds` fits the coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from ggbench.record import Record
from ggbench.stats.intervals import Z_95, Estimate

COVARIANCE_UNIT = 1e-5
_READS = ("read", "kv", "host")
"""First terms of the costs of reading a memory, which take at least their time at its full bandwidth."""
_LAYER_MS = 0.01
"""Unit of the cost of a layer, of the size that it has on a GPU."""
_LINK_MS = 0.1
"""Unit of the cost of each device after the first, and of each layer whose experts the CPU computes."""
_PARAMETER_MS = 5e-9
"""Unit of the cost of a parameter that one thread of a CPU computes with."""
_KV_BYTES_PER_MS = 1.8e6
"""Cache that one thread of a CPU computes with: Qwen3 14B from 8,192 to 32,768 tokens with two threads of an EPYC, by a
forecast of 30 November 2026. No published row has a CPU at depth."""


_HALF_WIDTH, _OF_CPU = 2.3, 2.7
"""Half-width of a 95 % interval in standard deviations, and that of a time of which a CPU has all parts.

Published rows are further off than a normal distribution has them. So 96 % of them are in the interval of a fit without
their device, and 90 % in one without their model; see scripts/EVIDENCE.md.
"""


class Cost(NamedTuple):
    """A part of a time."""

    least_ms: float
    """Time at the full bandwidth or rate, or the unit of a cost that has none."""
    terms: tuple[str, ...]
    """`read`, `read:device=rtx-3090/CUDA`: names of the coefficients, each with its group before the `=`."""


class SpeedModel(Record, dict=True):
    """Fitted coefficients with their covariance."""

    terms: tuple[str, ...]
    values: tuple[float, ...]
    covariance: tuple[tuple[int, ...], ...]
    """The lower triangle in the order of the terms, in units of 10^-5."""
    spreads: dict[str, float]
    """Standard deviation of the terms of a group; for those that are not among the terms."""
    residual: float
    """Standard deviation of the logarithm of a time, with what differs between two machines with the same device."""

    @cached_property
    def _index(self) -> dict[str, int]:
        return {term: index for index, term in enumerate(self.terms)}

    def predict(self, costs: Sequence[Cost]) -> Estimate:
        """Return the time [ms] of these costs with a 95 % interval, of which none is below their least time."""
        total, ms_by_term = 0.0, dict[str, float]()
        for cost in costs:
            slower = sum(self.values[self._index[term]] for term in cost.terms if term in self._index)
            if cost.terms[0] in _READS:
                slower = max(0.0, slower)
            ms = cost.least_ms * math.exp(slower)
            total += ms
            for term in cost.terms:
                ms_by_term[term] = ms_by_term.get(term, 0.0) + ms
        variance = self.residual**2 + self._variance({term: ms / total for term, ms in ms_by_term.items()})
        factor, least = math.exp(half_width(costs) * math.sqrt(variance)), least_ms(costs)
        return Estimate(*(max(least, ms) for ms in (total, total / factor, total * factor)))

    def _variance(self, shares: Mapping[str, float]) -> float:
        """Return the variance of the logarithm of a time by its terms' coefficients, given the share of each in it."""
        known = [(self._index[term], share) for term, share in shares.items() if term in self._index]
        fitted = sum(a * b * self.covariance[max(i, j)][min(i, j)] for i, a in known for j, b in known)
        unknown = sum(
            _deviation(share, self.spreads.get(group_of(term), 0.0)) ** 2
            for term, share in shares.items()
            if term not in self._index
        )
        return max(0.0, COVARIANCE_UNIT * fitted) + unknown


def half_width(costs: Iterable[Cost]) -> float:
    """Return half the width of the 95 % interval of a time with these costs, in standard deviations."""
    parts = {cost.terms[0] for cost in costs}
    return _OF_CPU if "host" in parts and "read" not in parts else _HALF_WIDTH


def _deviation(share: float, spread: float) -> float:
    """Return the standard deviation of a time's logarithm if only this share of the time varies, by this much.

    Both are taken from the upper end of the 95 % interval.
    """
    return math.log1p(share * math.expm1(Z_95 * spread)) / Z_95


def group_of(term: str) -> str:
    """Return `read:device` of `read:device=rtx-3090/CUDA`."""
    return term.partition("=")[0]


def least_ms(costs: Iterable[Cost]) -> float:
    """Return the time at full bandwidths: of the terms that read."""
    return sum(cost.least_ms for cost in costs if cost.terms[0] in _READS)


class DeviceKind(Record):
    """What the speed of a device depends on besides its bandwidth; empty for what is not known of it."""

    name: str
    """Name reported by drivers: `NVIDIA GeForce RTX 3090`."""
    family: str
    """Family in `known_devices.toml`: `GeForce RTX 30`."""
    vendor: str
    backend: str
    """llama.cpp's: `CUDA`, `Metal`."""
    generation: str = ""
    """Its architecture: `Ampere`, `RDNA 3`."""
    memory: str = ""
    """`HBM`, `unified` with main memory, or `GDDR`."""

    @property
    def term(self) -> str:
        return f"{self.name}/{self.backend}"


CPU = DeviceKind("", "", "", "CPU")
"""Any CPU: its bandwidth and threads are known, else its machine's spread applies."""


class ModelKind(Record):
    """What the speed of a model depends on besides its bytes."""

    architecture: str
    quant: str
    """Result of `quant_class`."""
    is_moe: bool
    is_recurrent: bool
    """Whether some layers keep a recurrent state."""


class DeviceRead(Record):
    """What a step reads from the memory of one device."""

    device: DeviceKind
    bandwidth_bytes_per_s: float
    weight_bytes: float
    kv_bytes: float
    n_layers: int


class HostRead(Record):
    """What a step reads from main memory, and the CPU computes."""

    bandwidth_bytes_per_s: float
    weight_bytes: float
    kv_bytes: float
    n_layers: int
    """Layers that the CPU computes with all their tensors."""
    n_params: float
    """Parameters that a token uses."""
    n_threads: int
    machine: str = ""


def quant_class(name: str) -> str:
    """Return the class of a tensor type or quant by its kernels: `q4_k` of `q4_k_m` and `q4_K`."""
    lower = name.lower()
    if lower in ("f16", "bf16", "f32"):
        return lower
    if lower.startswith("iq"):
        return lower[:3]
    if lower in ("q4_1", "q5_1"):
        return "q5_0"
    return lower[:4] if lower.startswith("q") else lower.partition("_")[0]


def decode_costs(
    reads: Sequence[DeviceRead],
    model: ModelKind,
    *,
    host: HostRead | None = None,
    n_crossed: int = 0,
    has_flash_attn: bool = True,
) -> list[Cost]:
    """Return the costs of decoding one token: one device computes after the other.

    `n_crossed` is the number of layers of devices with experts in main memory: activations cross to the CPU and back in
    each.
    """
    costs = []
    for read in reads:
        costs += _read_costs("read", read, read.device, model, has_flash_attn=has_flash_attn)
    if len(reads) > 1:
        costs.append(Cost((len(reads) - 1) * _LINK_MS, ("link", f"link:backend={reads[0].device.backend}")))
    if host is not None:
        of_cpu = _read_costs("host", host, CPU, model, has_flash_attn=has_flash_attn)
        per_thread = host.n_params / host.n_threads * _PARAMETER_MS
        of_cpu.append(Cost(per_thread, ("cpu", f"cpu:quant={model.quant}")))
        of_cpu.append(Cost(host.kv_bytes / host.n_threads / _KV_BYTES_PER_MS, ("cpu kv",)))
        of_cpu.append(Cost(n_crossed * _LINK_MS, ("crossing",)))
        costs += [Cost(ms, (*terms, f"machine={host.machine}")) for ms, terms in of_cpu]
    return [each for each in costs if each.least_ms]


def _read_costs(
    part: str, read: DeviceRead | HostRead, device: DeviceKind, model: ModelKind, *, has_flash_attn: bool
) -> list[Cost]:
    """Return the costs of reading weights and cache from one memory, and of the layers computed there."""
    bytes_per_ms = read.bandwidth_bytes_per_s / 1e3
    kv = terms_of("kv", device, model)
    if not has_flash_attn:
        kv += ("kv:without flash attention",)
    return [
        Cost(read.weight_bytes / bytes_per_ms, terms_of(part, device, model)),
        Cost(read.kv_bytes / bytes_per_ms, kv),
        Cost(read.n_layers * _LAYER_MS, terms_of("layer", device, model)),
    ]


def prompt_costs(
    device: DeviceKind, model: ModelKind, *, compute_ms: float, attention_ms: float, read_ms: float
) -> list[Cost]:
    """Return the costs of a prompt: its operations with weights and with the cache, at the device's rate of
    `prompt_rate`, and reading the weights for each batch.
    """
    costs = [
        Cost(compute_ms, terms_of("compute", device, model)),
        Cost(attention_ms, terms_of("attention", device, model)),
        Cost(read_ms, ("prompt read",)),
    ]
    return [each for each in costs if each.least_ms]


_OF_BOTH = ("architecture", "kind", "backend", "generation", "device")
_TERMS = {
    "read": (*_OF_BOTH, "memory", "quant", "backend quant"),
    "kv": ("backend", "device"),
    "layer": _OF_BOTH,
    "compute": (*_OF_BOTH, "quant", "backend quant"),
    "attention": ("architecture", "backend", "generation", "device"),
    "host": ("kind",),
}
"""Groups of the terms of a cost."""


def terms_of(part: str, device: DeviceKind, model: ModelKind) -> tuple[str, ...]:
    """Return the terms of one kind of cost; none for what is not known of a device."""
    kind = "experts" if model.is_moe else "dense"
    values = {
        "architecture": model.architecture,
        "kind": f"{kind}{' recurrent' * model.is_recurrent}/{device.backend}",
        "backend": device.backend,
        "generation": device.generation and f"{device.generation}/{device.backend}",
        "device": device.name and device.term,
        "memory": device.memory,
        "quant": model.quant,
        "backend quant": f"{device.backend}/{model.quant}",
    }
    return (part, *(f"{part}:{group}={values[group]}" for group in _TERMS[part] if values[group]))
