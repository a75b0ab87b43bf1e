"""A machine described by the user: its GPUs and main memory, which this machine need not have.

`--gpu rtx-3090x2`, `--gpu "2x 3090"`, `--gpu rtx-3060,rtx-4090`, `--gpu 24GiB@936GB/s`, `--ram 64GiB@60GB/s`,
`--ram 64GiB@ddr5-6000x2`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.errors import GgbenchError, UsageError
from ggbench.machine.known_devices import find_device
from ggbench.record import Record
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, format_bytes, parse_bandwidth, parse_size

_COUNTED = (
    re.compile(r"(?P<what>.+?)\s*[x*×]\s*(?P<count>\d{1,2})", re.IGNORECASE),
    re.compile(r"(?P<count>\d{1,2})\s*[x*×]\s*(?P<what>.+)", re.IGNORECASE),
)
_BETWEEN = re.compile(r",|(?<!max)\+", re.IGNORECASE)
"""Between two GPUs; AMD sells a `Ryzen AI Max+ 395`."""
_SIZE = re.compile(r"[\d.]+\s*[kmgt]i?b", re.IGNORECASE)
"""The start of a size; without a B, `780m` is a GPU."""
_MODULES = re.compile(
    r"(?:lp)?ddr[3-5]x?-(?P<rate>\d{3,5})(?:\s*[x*×]\s*(?P<channels>\d{1,2}))?", re.IGNORECASE
)
_CHANNEL_BYTES = 8
"""Width of a channel of memory modules, 64 bits; DDR5 splits it into two of 32."""
_MOST_GPUS = 16
"""GGML_CUDA_MAX_DEVICES of llama.cpp."""
_METAL = "MTL"
"""ggml's name of Apple's GPUs."""
_EXAMPLES = "rtx-3060, rtx-3090x2 for two, or 24GiB@936GB/s"
GIVEN_GPU = "a GPU with the given memory"
"""Name of a GPU described only by its memory."""


class Device(Record):
    """A GPU and its memory."""

    name: str
    memory_bytes: int
    memory_source: str
    bandwidth: Bandwidth | None = None
    """None if unknown."""
    backend: str = "CUDA"
    """ggml's name of the backend with which llama.cpp uses it."""
    is_headless: bool = False
    """Whether a screen is usually on another GPU."""
    shared_bytes: int | None = None
    """Total main memory, of which the GPU can use `memory_bytes`; None for a GPU with memory of its own."""


class MainMemory(Record):
    memory_bytes: int | None
    """None if its size is unknown."""
    bandwidth: Bandwidth | None


class Machine(Record):
    devices: tuple[Device, ...] = ()
    """In llama.cpp's order; empty if only the CPU computes."""
    host: MainMemory | None = None
    """None if nothing is known about it."""


def describe_machine(
    gpus: Sequence[str], ram: str | None, *, vram: str | None = None, rate: str | None = None
) -> Machine:
    """Return the machine given by these options; `vram` is the memory of each GPU, or of an unnamed one.

    `rate` is the bandwidth of its GPUs or, without any, of main memory. A GPU without memory of its own shares main
    memory, which is then one with that bandwidth. Raises UsageError.
    """
    host = None if ram is None else parse_host(ram)
    devices = [device for text in gpus for device in parse_gpus(text, host)]
    if vram is not None:
        devices = _with_memory(devices or [Device(GIVEN_GPU, 0, "")], parse_size(vram))
    _check(devices)
    if rate is not None:
        given = Bandwidth(parse_bandwidth(rate), "given")
        devices = [replace(each, bandwidth=given) for each in devices]
        if host is not None and not devices:
            host = replace(host, bandwidth=given)
    return Machine(tuple(devices), _shared_memory(devices) or host)


def _shared_memory(devices: Sequence[Device]) -> MainMemory | None:
    """Return the main memory that a GPU shares; None if each has memory of its own."""
    for each in devices:
        if each.shared_bytes is not None:
            return MainMemory(each.shared_bytes, each.bandwidth)
    return None


def _check(devices: Sequence[Device]) -> None:
    """Raise UsageError for GPUs that no machine has together."""
    if len(devices) > _MOST_GPUS:
        raise UsageError(
            f"{len(devices)} GPUs are described, but llama.cpp supports {_MOST_GPUS}", "name fewer"
        )


def _with_memory(devices: Sequence[Device], memory_bytes: int) -> list[Device]:
    """Return the GPUs with this much memory, or this share of main memory. Raises UsageError if it is more."""
    for each in devices:
        if each.shared_bytes is not None and memory_bytes > each.shared_bytes:
            raise UsageError(
                f"the {each.name} cannot use {format_bytes(memory_bytes)} of {format_bytes(each.shared_bytes)}",
                "--vram is its share of the memory, which --ram or its name gives",
            )
    return [replace(each, memory_bytes=memory_bytes, memory_source="given") for each in devices]


def brings_memory(text: str) -> bool:
    """Return whether main memory is soldered to a GPU given so, and hence is not that of another machine."""
    try:
        devices = parse_gpus(text)
    except UsageError:  # of a GPU that shares any memory: its size is to be given
        return False
    rates = [each.bandwidth for each in devices if each.shared_bytes is not None]
    return any(rate is not None and not rate.assumed for rate in rates)


def parse_gpus(text: str, host: MainMemory | None = None) -> tuple[Device, ...]:
    """Parse GPUs separated by `,` or `+`, each a name or SIZE[@BANDWIDTH], with `x2` or `2x` for two.

    Raises UsageError.

    `host` is the main memory shared by GPUs without memory of their own.
    """
    found: list[Device] = []
    for part in _BETWEEN.split(text):
        what, count = part.strip(), 1
        if not what:
            raise UsageError(f"--gpu {text!r} has an empty name", f"write {_EXAMPLES}")
        try:
            device = _gpu(what, host)
        except GgbenchError:
            match = next(filter(None, (pattern.fullmatch(what) for pattern in _COUNTED)), None)
            if match is None:
                raise
            device, count = _gpu(match["what"], host), int(match["count"])
            if not count:
                raise UsageError(f"{what!r} is 0 GPUs", f"write {_EXAMPLES}") from None
        found += [device] * count
    return tuple(found)


def _gpu(text: str, host: MainMemory | None) -> Device:
    if _SIZE.match(text) and (size := _sized(text)):
        return Device(GIVEN_GPU, size[0], "given", size[1])
    ram_bytes = None if host is None else host.memory_bytes
    known = find_device(text, None if ram_bytes is None else ram_bytes / GIB)
    bandwidth = Bandwidth(known.bandwidth_gb_s * 1e9, known.bandwidth_source, known.assumed_memory)
    if known.is_unified and ram_bytes not in (None, round(known.memory_gib * GIB)):
        raise UsageError(
            f"the {known.name} is not sold with {format_bytes(ram_bytes)}",
            "omit --ram: its memory is part of the chip",
        )
    if known.is_unified and host is not None and host.bandwidth is not None:
        bandwidth = host.bandwidth
    return Device(
        known.name,
        known.gpu_bytes,
        known.memory_source,
        bandwidth,
        _METAL if known.backend == "Metal" else known.backend,
        known.is_headless,
        known.shown_bytes if known.is_unified else None,
    )


def _sized(text: str) -> tuple[int, Bandwidth | None] | None:
    """Parse SIZE[@BANDWIDTH]; None if it does not start with a size. Raises UsageError for an invalid bandwidth."""
    size, at, rate = text.partition("@")
    try:
        memory_bytes = parse_size(size.strip())
    except UsageError:
        if at:
            raise
        return None
    return memory_bytes, _bandwidth(rate.strip()) if at else None


def _bandwidth(text: str) -> Bandwidth:
    """Parse a bandwidth, or memory modules and their channels: `60GB/s`, `ddr5-6000x2`."""
    match = _MODULES.fullmatch(text)
    if match is None:
        if text[:1].isalpha():
            raise UsageError(
                f"{text!r} is not a bandwidth or memory", "write 60GB/s, or modules as ddr5-6000x2"
            )
        return Bandwidth(parse_bandwidth(text), "given")
    rate, channels = int(match["rate"]), int(match["channels"] or 2)
    if not channels:
        raise UsageError(f"{text!r} has no channels", "write ddr5-6000x2 for two channels")
    source = f"{channels} channels x {_CHANNEL_BYTES} bytes x {rate} MT/s"
    return Bandwidth(channels * _CHANNEL_BYTES * rate * 1e6, source)


def parse_host(text: str) -> MainMemory:
    """Parse main memory: SIZE, SIZE@BANDWIDTH, SIZE@ddr5-6000x2, or only the modules. Raises UsageError."""
    if _MODULES.fullmatch(text.strip()):
        return MainMemory(None, _bandwidth(text.strip()))
    if re.match(r"0+(?![\d.])", text.strip()):
        hint = "write 2GiB if a card holds the model, or all that there is if the GPU shares it"
        raise UsageError("llama.cpp needs some main memory", hint)
    sized = _sized(text)
    if sized is None:
        raise UsageError(f"--ram {text!r} is not a size", "write 64GiB, 64GiB@60GB/s or 64GiB@ddr5-6000x2")
    return MainMemory(*sized)
