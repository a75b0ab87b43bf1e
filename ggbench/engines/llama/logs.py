"""Parse llama.cpp's log for its allocations.

Only the log reports allocations: `llama_get_memory_breakdown` returns a C++ map without a binding. Sizes are in MiB
with two decimals. Caches and the output are computed exactly from the model's data in the log: a KV cache is cells x
rows of K and V, the output buffer the logits of one token of each sequence. Compute buffers and the states of recurrent
layers stay rounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from ggbench.engines.events import Allocated, DeviceBuffers, MemoryKind
from ggbench.engines.llama.ggml_devices import place_of
from ggbench.errors import GgbenchError
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.units import MIB

_BUFFER = re.compile(
    r"(?:^|:)\s*(?P<device>\S+)\s+(?:DSV4 \w+ )?(?P<kind>model|KV|RS|state|compute|output) buffer size"
    r"\s*=\s*(?P<mib>[\d.]+) MiB"
)
_DEVICE = re.compile(r"using device (?P<device>\S+) \(.*\) \((?P<id>[^()]+)\) - \d+ MiB free")
_NO_ID = "unknown id"
_OFFLOADED = re.compile(r"offloaded (?P<on_gpu>\d+)/(?P<all>\d+) layers to GPU")
_COPIES = re.compile(r"sched copies = (?P<copies>\d+)")
_CACHE_SIZE = re.compile(
    r"^llama_(?:kv_cache|memory|dsv4_comp_state)\w*: (?:.*, )?size\s*=\s*(?P<mib>[\d.]+) MiB"
)
_SWA_CACHE = re.compile(r"creating\s+SWA KV cache, size = (?P<cells>\d+) cells")
_FLASH_ATTN = re.compile(
    r"(?:Flash Attention (?:was auto, set to |not supported, set to )?|flash_attn\s*=\s*)(enabled|disabled|1\b|0\b)"
)
_FIELD_OF_KIND = {
    "model": "weight_bytes",
    "KV": "kv_bytes",
    "RS": "kv_bytes",  # recurrent layers have a state instead of KV
    "state": "kv_bytes",  # DeepSeek V4's compressors, in addition to its caches
    "compute": "compute_bytes",
    "output": "output_bytes",
}


def parse_allocations(lines: Iterable[str], places: Mapping[str, MemoryKind]) -> Allocated:
    """Read the log of a load and of one context; `places` are `GgmlDevices.places`.

    KV caches and outputs are exact, everything else within 5 KiB. Several caches of a model (sliding window, recurrent)
    print a line each and are summed. In a dry run the weights and KV of each device are 0 (except DeepSeek V4's
    states), while `cache_bytes` and the compute and output buffers have their real sizes.
    """
    read = _Allocations()
    for line in lines:
        read.line(line)
    return Allocated(
        tuple(DeviceBuffers(name, place_of(name, places), **sizes) for name, sizes in read.by_device.items()),
        read.flash_attn,
        read.cache_bytes,
        tuple(read.device_ids),
        read.is_all_offloaded,
        swa_cells=read.swa_cells,
        n_copies=read.n_copies,
    )


_HALF_DIGIT_BYTES = MIB // 200 + 1
"""Largest error of a size in MiB with two decimals."""
_WIDTHS = re.compile(r"\bn_embd_(?P<part>[kv])_gqa\s*=\s*(?P<widths>\d+|\[[\d, ]+\])\s*$")
_COUNT = re.compile(r"\b(?P<name>n_vocab|n_seq_max)\s*=\s*(?P<count>\d+)\s*$")
_CACHE = re.compile(
    r"\(\s*(?P<cells>\d+) cells,\s*\d+ layers,\s*\d+/(?P<streams>\d+) seqs\), "
    r"K \((?P<type_k>\w+)\):\s*(?P<k>[\d.]+) MiB, V \((?P<type_v>\w+)\):\s*(?P<v>[\d.]+) MiB"
)
_LOGIT_BYTES = 4


class _ExactSizes:
    """Computes exact sizes from the preceding lines; it must read every line."""

    def __init__(self) -> None:
        self._widths: dict[str, list[int]] = {}
        self._counts: dict[str, int] = {}
        self.pending: list[tuple[str, int]] = []
        """Each device's rounded part of the cache whose line follows."""

    def read(self, line: str) -> None:
        if match := _WIDTHS.search(line):
            self._widths[match["part"]] = [int(width) for width in re.findall(r"\d+", match["widths"])]
        elif match := _COUNT.search(line):
            self._counts[match["name"]] = int(match["count"])

    def output_bytes(self, rounded: int) -> int:
        exact = self._counts.get("n_vocab", 0) * self._counts.get("n_seq_max", 0) * _LOGIT_BYTES
        return exact if abs(exact - rounded) <= _HALF_DIGIT_BYTES else rounded

    def cache(self, line: str, rounded: int) -> tuple[int, dict[str, int]]:
        """Return the exact size of a cache from its line, and the correction for each device."""
        pending, self.pending = self.pending, []
        match = _CACHE.search(line)
        if match is None:
            return rounded, {}
        exact, unit = 0, 0
        for part in "kv":
            try:
                rows = [row_bytes(match[f"type_{part}"], width) for width in self._widths.get(part, ())]
            except GgbenchError:
                return rounded, {}
            of_part = int(match["cells"]) * int(match["streams"]) * math.gcd(*rows)
            given = round(float(match[part]) * MIB)
            n_bytes = _nearest(given, of_part)
            if abs(n_bytes - given) > _HALF_DIGIT_BYTES:
                return rounded, {}
            exact, unit = exact + n_bytes, math.gcd(unit, of_part)
        parts = {device: _nearest(n_bytes, unit) for device, n_bytes in pending}
        if sum(parts.values()) != exact:
            return exact, {}
        return exact, {device: parts[device] - n_bytes for device, n_bytes in pending}


class _Allocations:
    """What the lines of a log have said so far."""

    def __init__(self) -> None:
        self.by_device: dict[str, dict[str, int]] = {}
        """Sizes of each device by the fields of `DeviceBuffers`."""
        self.flash_attn: bool | None = None
        self.cache_bytes: int | None = None
        self.device_ids: list[tuple[str, str]] = []
        self.is_all_offloaded = False
        self.swa_cells: int | None = None
        self.n_copies = 1
        self._sizes = _ExactSizes()

    def line(self, line: str) -> None:
        self._sizes.read(line)
        for pattern, read in _READERS.items():
            if match := pattern.search(line):
                read(self, match)
                return

    def _buffer(self, match: re.Match[str]) -> None:
        sizes = self.by_device.setdefault(match["device"], {})
        field = _FIELD_OF_KIND[match["kind"]]
        before = 0 if field == "compute_bytes" else sizes.get(field, 0)  # reserving again replaces the buffer
        n_bytes = round(float(match["mib"]) * MIB)
        if match["kind"] == "output":
            n_bytes = self._sizes.output_bytes(n_bytes)
        elif match["kind"] == "KV":
            self._sizes.pending.append((match["device"], n_bytes))
        sizes[field] = before + n_bytes

    def _device(self, match: re.Match[str]) -> None:
        if match["id"] != _NO_ID:
            self.device_ids.append((match["device"], match["id"]))

    def _offloaded(self, match: re.Match[str]) -> None:
        self.is_all_offloaded = match["on_gpu"] == match["all"]

    def _cache(self, match: re.Match[str]) -> None:
        exact_bytes, corrections = self._sizes.cache(match.string, round(float(match["mib"]) * MIB))
        self.cache_bytes = (self.cache_bytes or 0) + exact_bytes
        for device, n_bytes in corrections.items():
            self.by_device[device]["kv_bytes"] += n_bytes

    def _swa_cache(self, match: re.Match[str]) -> None:
        self.swa_cells = int(match["cells"])

    def _copies(self, match: re.Match[str]) -> None:
        self.n_copies = int(match["copies"])

    def _flash_attn(self, match: re.Match[str]) -> None:
        self.flash_attn = match[1] in ("enabled", "1")


_READERS = {
    _BUFFER: _Allocations._buffer,
    _DEVICE: _Allocations._device,
    _OFFLOADED: _Allocations._offloaded,
    _CACHE_SIZE: _Allocations._cache,
    _SWA_CACHE: _Allocations._swa_cache,
    _COPIES: _Allocations._copies,
    _FLASH_ATTN: _Allocations._flash_attn,
}
"""The reader of each kind of line; the first that matches is called."""


def _nearest(n_bytes: int, unit: int) -> int:
    """Return the multiple of a unit that is closest to a size; 0 for a unit of 0."""
    return round(n_bytes / unit) * unit if unit else 0
