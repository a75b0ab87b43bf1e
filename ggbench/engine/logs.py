"""llama.cpp's log, read for what it allocated where.

The log is the only place where llama.cpp says so: `llama_get_memory_breakdown` returns a C++ map that has no binding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ggbench.records import DeviceBuffers
from ggbench.units import MIB

_BUFFER = re.compile(
    r"(?:^|:)\s*(?P<device>\S+)\s+(?:DSV4 \w+ )?(?P<kind>model|KV|RS|state|compute|output) buffer size"
    r"\s*=\s*(?P<mib>[\d.]+) MiB"
)
_DEVICE = re.compile(r"using device (?P<device>\S+) \(.*\) \((?P<id>[^()]+)\) - \d+ MiB free")
_NO_ID = "unknown id"
_OFFLOADED = re.compile(r"offloaded (?P<on_gpu>\d+)/(?P<all>\d+) layers to GPU")
_CACHE_SIZE = re.compile(r"^llama_(?:kv_cache|memory|dsv4_comp_state)\w*: (?:.*, )?size\s*=\s*(?P<mib>[\d.]+) MiB")
_FLASH_ATTN_AUTO = re.compile(r"Flash Attention (?:was auto, set to |not supported, set to )?(enabled|disabled)")
_FLASH_ATTN_SET = re.compile(r"flash_attn\s*=\s*(auto|enabled|disabled|1|0)\b")
_OUT_OF_MEMORY = re.compile(
    r"out of memory|insufficient memory|failed to allocate|cannot allocate memory|unable to allocate|bad_alloc"
    r"|OutOf(?:Device|Host)Memory",
    re.I,
)
_GOES_ON = re.compile(r"pinned memory|failed to mlock|failed to allocate graph, reserving")
"""llama.cpp does without: with memory that can be paged out, or by reserving again."""
_CAUSE = re.compile(r"\b(?:CUDA|ROCm|MUSA|SYCL|Vulkan) error: |GGML_ASSERT|GGML_ABORT|terminate called|what\(\):")
_RETRIES = "retrying without pipeline parallelism"

_FIELD_OF_KIND = {
    "model": "weight_bytes",
    "KV": "kv_bytes",
    "RS": "kv_bytes",  # the state of recurrent layers takes the place of their KV
    "state": "kv_bytes",  # of DeepSeek V4's compressors, beside its caches
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
    """Whether every layer went to GPUs, those included whose experts are kept in main memory."""

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
    0 (DeepSeek V4's states are made all the same), while `cache_bytes` and the compute and output buffers are what
    they would be.
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
    """The first line that blames memory, without white space around it; empty when none does.

    What llama.cpp recovered from does not count.
    """
    blame = ""
    for line in lines:
        if _RETRIES in line:
            blame = ""
        elif not blame and _OUT_OF_MEMORY.search(line) and not _GOES_ON.search(line):
            blame = line.strip()
    return blame


def tells_cause(last_words: Sequence[str]) -> str:
    """The line of a process that died which says why, without white space around it; empty where it said nothing.

    Behind the cause llama.cpp prints where in its source it was, and often a backtrace.
    """
    said = [line.strip() for line in last_words if line.strip()]
    return next((line for line in said if _CAUSE.search(line)), said[-1] if said else "")
