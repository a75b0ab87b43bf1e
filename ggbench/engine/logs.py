"""llama.cpp's log, read for what it allocated where.

The log is the only place where llama.cpp says so: `llama_get_memory_breakdown` returns a C++ map that has no binding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ggbench.records import DeviceBuffers
from ggbench.units import MIB

_BUFFER = re.compile(
    r"(?:^|:)\s*(?P<device>[\w()\[\]-]+)\s+(?P<kind>model|KV|RS|compute|output) buffer size\s*=\s*(?P<mib>[\d.]+) MiB"
)
_DEVICE = re.compile(r"using device (?P<device>\S+) \(.*\) \((?P<id>[^()]+)\) - \d+ MiB free")
_NO_ID = "unknown id"
_OFFLOADED = re.compile(r"offloaded (?P<on_gpu>\d+)/(?P<all>\d+) layers to GPU")
_CACHE_SIZE = re.compile(r"^llama_(?:kv_cache|memory)\w*: size\s*=\s*(?P<mib>[\d.]+) MiB \(")
_FLASH_ATTN_AUTO = re.compile(r"Flash Attention (?:was auto, set to )?(enabled|disabled)")
_FLASH_ATTN_SET = re.compile(r"flash_attn\s*=\s*(auto|enabled|disabled|1|0)\b")
_OUT_OF_MEMORY = re.compile(
    r"out of memory|insufficient memory|failed to allocate|cannot allocate memory|unable to allocate|bad_alloc", re.I
)

_FIELD_OF_KIND = {
    "model": "weight_bytes",
    "KV": "kv_bytes",
    "RS": "kv_bytes",  # the state of recurrent layers takes the place of their KV
    "compute": "compute_bytes",
    "output": "output_bytes",
}


@dataclass(frozen=True, slots=True)
class Allocations:
    """What one load and one context took, by device in the order of the log."""

    buffers: tuple[DeviceBuffers, ...]
    flash_attn: bool | None
    """What was used in the end; None when the log does not say."""
    cache_bytes: int | None = None
    """All caches of the context over all devices, told also by a dry run, whose KV buffers are empty; None when not."""
    device_ids: tuple[tuple[str, str], ...] = ()
    """PCI bus id or UUID of each GPU in use, by llama.cpp's name of it: (`CUDA0`, `0000:01:00.0`). One that llama.cpp
    has no id of is left out."""
    is_all_offloaded: bool = False
    """Whether every layer went to GPUs."""

    @property
    def gpu_devices(self) -> tuple[tuple[str, str | None], ...]:
        """llama.cpp's names of the GPUs that hold any buffer, each with its id; None where llama.cpp told none.

        Before the first buffer was told: all that have an id.
        """
        ids = dict(self.device_ids)
        holding = [each.device for each in self.buffers if not each.is_host]
        return tuple((device, ids.get(device)) for device in (holding if self.buffers else ids))

    def total(self, field: str) -> int:
        """Sum over the devices of one field of DeviceBuffers; bytes."""
        return sum(getattr(device, field) for device in self.buffers)


def parse_allocations(lines: Iterable[str]) -> Allocations:
    """Read the log of a load and of one context. Lines that say nothing of memory are passed over.

    llama.cpp prints MiB to two decimals, so each figure is within 5 KiB. Caches that a model holds side by side
    (sliding window, recurrent) print a line each and are added up. In a dry run the weights and KV of each device are
    0, while `cache_bytes` and the compute and output buffers are what they would be.
    """
    by_device: dict[str, dict[str, int]] = {}
    flash_attn: bool | None = None
    cache_bytes: int | None = None
    device_ids: list[tuple[str, str]] = []
    is_all_offloaded = False
    for line in lines:
        if match := _BUFFER.search(line):
            fields = by_device.setdefault(match["device"], {})
            field = _FIELD_OF_KIND[match["kind"]]
            before = 0 if field == "compute_bytes" else fields.get(field, 0)  # reserving again replaces the buffer
            fields[field] = before + round(float(match["mib"]) * MIB)
        elif match := _DEVICE.search(line):
            if match["id"] != _NO_ID:
                device_ids.append((match["device"], match["id"]))
        elif match := _OFFLOADED.search(line):
            is_all_offloaded = match["on_gpu"] == match["all"]
        elif match := _CACHE_SIZE.search(line):
            cache_bytes = (cache_bytes or 0) + round(float(match["mib"]) * MIB)
        elif match := _FLASH_ATTN_AUTO.search(line):
            flash_attn = match[1] == "enabled"
        elif (match := _FLASH_ATTN_SET.search(line)) and match[1] != "auto":
            flash_attn = match[1] in ("enabled", "1")
    buffers = tuple(DeviceBuffers(device, **fields) for device, fields in by_device.items())
    return Allocations(buffers, flash_attn, cache_bytes, tuple(device_ids), is_all_offloaded)


def tells_out_of_memory(lines: Iterable[str]) -> str:
    """The first line that blames memory, without white space around it; empty when none does."""
    return next((line.strip() for line in lines if _OUT_OF_MEMORY.search(line)), "")
