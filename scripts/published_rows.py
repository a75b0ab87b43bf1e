"""Checks of others' rows of llama-bench before they are published: whether a row is new, and whether it is possible."""

from __future__ import annotations

import functools
import re

from msgspec.structs import replace

from ggbench.gguf_file.quants import known_quants
from ggbench.machine.known_devices import KnownDevice, known_devices
from ggbench.models.published.benches import BenchedRow

_BACKENDS = ("CUDA", "ROCm", "Vulkan", "SYCL", "Metal", "CPU")
_ACTIVE = re.compile(r"[ .]A(\d+(?:\.\d+)?)B")
_ACTIVE_BILLIONS = {
    "gpt-oss 20B": 3.6, "gpt-oss 120B": 5.1, "llama 8x7B": 12.9, "llama 8x22B": 39, "deepseek2 16B": 2.4,
    "deepseek2 236B": 21, "deepseek2 671B": 37, "dots1 142B": 14, "qwen2moe 57B.A14B": 14,
}  # fmt: skip
"""Parameters used by one token, from the model cards, if the name does not state them."""
_DENSE_SHARE = 0.9
"""Least share of a dense model's bytes read by a token: all except the token embeddings."""
_EXPERTS_SHARE = 0.75
"""The same for a mixture of experts, relative to `active / all` of its parameters."""
_PER_LAYER_SHARE = 0.4
"""The same for models with embeddings per layer, whose names state the effective size: `E4B`."""
_FASTEST_BYTES_S = 1e13
"""Higher than any device's memory bandwidth, for devices with unknown bandwidth."""


def measurement(row: BenchedRow) -> BenchedRow:
    """Return the row without its source and date: equal rows are one measurement."""
    return replace(row, source="", date="")


def problem_of(row: BenchedRow) -> str:
    """Return why a row is impossible, e.g. because the device would exceed its bandwidth; empty if it is possible.

    The bound is deliberately weak: the minimum bytes of a token, read at the datasheet's bandwidth. Weights on the host
    are slower, so rows with some there satisfy it too. A model split by layers reads from one device at a time. Prompts
    are checked against four times the FP16 rate of the matrix cores, as 8-bit and 4-bit types are faster.
    """
    if row.backend not in _BACKENDS:
        return f"backend {row.backend} is none of {', '.join(_BACKENDS)}"
    if known_quants().keys().isdisjoint((row.quant, f"{row.quant}_m", row.quant.removesuffix("_m"))):
        return f"{row.quant} is no quant of llama.cpp"
    device = _known(row.device)
    together = row.count if row.split_mode in ("row", "tensor") else 1
    if row.test.startswith("tg") and row.weight_bytes:
        least = row.weight_bytes * _least_share(row) * row.tok_s
        limit = device.bandwidth_gb_s * 1e9 * together if device else _FASTEST_BYTES_S * together
        if least > limit:
            return f"{row.tok_s:g} tok/s would read at least {least / 1e9:,.0f} GB/s of {limit / 1e9:,.0f} GB/s"
    if not row.test.startswith("tg") and row.n_params and device and device.fp16_matrix_tflops:
        flops = 2 * row.n_params * _active_share(row) * row.tok_s
        limit = 4e12 * device.fp16_matrix_tflops * row.count
        if flops > limit:
            return f"{row.tok_s:g} tok/s would take {flops / 1e12:,.0f} TFLOPS of {limit / 1e12:,.0f} TFLOPS"
    return ""


@functools.cache
def _known(device: str) -> KnownDevice | None:
    return next((known for known in known_devices() if known.id == device), None)


def _least_share(row: BenchedRow) -> float:
    if re.search(r"\bE\dB", row.model):
        return _PER_LAYER_SHARE
    active = _active_share(row)
    return _DENSE_SHARE if active == 1 else active * _EXPERTS_SHARE


def _active_share(row: BenchedRow) -> float:
    """Return the share of the parameters used by a token; 0 for a mixture of experts that does not state it."""
    found = _ACTIVE.search(f" {row.model}")
    billions = float(found[1]) if found else _ACTIVE_BILLIONS.get(row.model)
    if billions is None:
        return 0.0 if re.search(r"moe|\dx\d|mixtral|grok|llama4|deepseek|\?B", row.model) else 1.0
    return min(1.0, billions * 1e9 / row.n_params) if row.n_params else 0.0
