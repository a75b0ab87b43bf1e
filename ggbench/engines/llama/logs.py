"""Parse llama.cpp's log for its allocations.

Only the log reports allocations: `llama_get_memory_breakdown` returns a C++ map without a binding. Sizes are in MiB
with two decimals. Caches and the output are computed exactly from the model's data in the log: a KV cache is cells x
rows of K and V, the output buffer the logits of one token of each sequence. Compute buffers and the states of recurrent
layers stay rounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ggbench.engines.events import Allocated, DeviceBuffers, MemoryKind
from ggbench.engines.llama.ggml_devices import place_of
from ggbench.errors import GgbenchError
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.units import MIB

_BUFFER = re.compile(
    r"(?:^|:)\s*(?P<device>\S+)\s+(?:DSV4 \w+ )?(?P<kind>model|KV|RS|state|compute|output) buffer size"
    r"\s*=\s*(?P<mib>[\d.]+) MiB"
)
_FIELD_OF_KIND = {
    "model": "weight_bytes",
    "KV": "kv_bytes",
    "RS": "kv_bytes",  # recurrent layers have a state instead of KV
    "state": "kv_bytes",  # DeepSeek V4's compressors, in addition to its caches
    "compute": "compute_bytes",
    "output": "output_bytes",
}
_CACHE_SIZE = re.compile(
    r"^llama_(?:kv_cache|memory|dsv4_comp_state)\w*: (?:.*, )?size\s*=\s*(?P<mib>[\d.]+) MiB"
)
_CACHE = re.compile(
    r"\(\s*(?P<cells>\d+) cells,\s*\d+ layers,\s*\d+/(?P<streams>\d+) seqs\), "
    r"K \((?P<type_k>\w+)\):\s*(?P<k>[\d.]+) MiB, V \((?P<type_v>\w+)\):\s*(?P<v>[\d.]+) MiB"
)
_DEVICE = re.compile(r"using device (?P<device>\S+) \(.*\) \((?!unknown id)(?P<id>[^()]+)\) - \d+ MiB free")
_ROWS = re.compile(r"\b(?P<name>n_embd_[kv]_gqa|n_vocab|n_seq_max)\s*=\s*(?P<counts>\d+|\[[\d, ]+\])\s*$")
"""Counts of the model and the context, one for each layer where they differ."""
_VALUES: Mapping[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    "swa_cells": (re.compile(r"creating\s+SWA KV cache, size = (\d+) cells"), int),
    "is_all_offloaded": (re.compile(r"offloaded (\d+)/\1 layers to GPU"), bool),
    "n_copies": (re.compile(r"sched copies = (\d+)"), int),
    "flash_attn": (
        re.compile(
            r"(?:Flash Attention (?:was auto, set to |not supported, set to )?|flash_attn\s*=\s*)"
            r"(enabled|disabled|1\b|0\b)"
        ),
        ("enabled", "1").__contains__,
    ),
}
"""Other fields of `Allocated`: the last line that matches counts."""
_HALF_DIGIT_BYTES = MIB // 200 + 1
"""Largest error of a size in MiB with two decimals."""
_LOGIT_BYTES = 4


def parse_allocations(lines: Iterable[str], places: Mapping[str, MemoryKind]) -> Allocated:
    """Read the log of a load and of one context; `places` are `GgmlDevices.places`.

    KV caches and outputs are exact, everything else within 5 KiB. Several caches of a model (sliding window, recurrent)
    print a line each and are summed. In a dry run the weights and KV of each device are 0 (except DeepSeek V4's
    states), while `cache_bytes` and the compute and output buffers have their real sizes.
    """
    read = _Allocations()
    for line in lines:
        read.line(line)
    buffers = (DeviceBuffers(name, place_of(name, places), **sizes) for name, sizes in read.by_device.items())
    return Allocated(
        tuple(buffers), cache_bytes=read.cache_bytes, device_ids=tuple(read.device_ids), **read.values
    )


class _Allocations:
    """What the lines of a log have said so far."""

    def __init__(self) -> None:
        self.by_device: dict[str, dict[str, int]] = {}
        """Sizes of each device by the fields of `DeviceBuffers`."""
        self.cache_bytes: int | None = None
        self.device_ids: list[tuple[str, str]] = []
        self.values: dict[str, Any] = {}
        self._counts: dict[str, list[int]] = {}
        self._pending: list[tuple[str, int]] = []
        """Each device's rounded part of the cache whose line follows."""

    def line(self, line: str) -> None:
        if match := _BUFFER.search(line):
            self._buffer(match["device"], match["kind"], _bytes(match["mib"]))
        elif match := _CACHE_SIZE.search(line):
            self._cache(_bytes(match["mib"]), _CACHE.search(line))
        elif match := _DEVICE.search(line):
            self.device_ids.append((match["device"], match["id"]))
        elif match := _ROWS.search(line):
            self._counts[match["name"]] = [int(count) for count in re.findall(r"\d+", match["counts"])]
        for name, (pattern, read) in _VALUES.items():
            if match := pattern.search(line):
                self.values[name] = read(match[1])

    def _buffer(self, device: str, kind: str, n_bytes: int) -> None:
        sizes, field = self.by_device.setdefault(device, {}), _FIELD_OF_KIND[kind]
        if kind == "output":
            n_vocab, n_seqs = (self._counts.get(name, [0])[0] for name in ("n_vocab", "n_seq_max"))
            exact = n_vocab * n_seqs * _LOGIT_BYTES
            n_bytes = exact if abs(exact - n_bytes) <= _HALF_DIGIT_BYTES else n_bytes
        elif kind == "KV":
            self._pending.append((device, n_bytes))
        before = 0 if kind == "compute" else sizes.get(field, 0)  # reserving again replaces the buffer
        sizes[field] = before + n_bytes

    def _cache(self, rounded: int, match: re.Match[str] | None) -> None:
        """Add the size of a cache, exactly if its line says what it is made of, and correct the devices' parts."""
        pending, self._pending = self._pending, []
        exact, unit = (rounded, 0) if match is None else self._exact_cache(match) or (rounded, 0)
        self.cache_bytes = (self.cache_bytes or 0) + exact
        parts = {device: _nearest(n_bytes, unit) for device, n_bytes in pending}
        if sum(parts.values()) == exact:
            for device, n_bytes in pending:
                self.by_device[device]["kv_bytes"] += parts[device] - n_bytes

    def _exact_cache(self, match: re.Match[str]) -> tuple[int, int] | None:
        """Return the bytes of a cache, and of its smallest part; None if they disagree with the rounded ones."""
        exact, unit = 0, 0
        for part in "kv":
            try:
                widths = self._counts.get(f"n_embd_{part}_gqa", ())
                rows = [row_bytes(match[f"type_{part}"], width) for width in widths]
            except GgbenchError:
                return None
            of_part = int(match["cells"]) * int(match["streams"]) * math.gcd(*rows)
            given = _bytes(match[part])
            n_bytes = _nearest(given, of_part)
            if abs(n_bytes - given) > _HALF_DIGIT_BYTES:
                return None
            exact, unit = exact + n_bytes, math.gcd(unit, of_part)
        return exact, unit


def _bytes(mib: str) -> int:
    return round(float(mib) * MIB)


def _nearest(n_bytes: int, unit: int) -> int:
    """Return the multiple of a unit that is closest to a size; 0 for a unit of 0."""
    return round(n_bytes / unit) * unit if unit else 0
