"""Devices known by name, from `known_devices.toml`."""

from __future__ import annotations

import difflib
import functools
import re
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.errors import UsageError
from ggbench.record import Record
from ggbench.units import GIB, MIB

_WORD = re.compile(r"[a-z]+|[0-9]+")
_SIZE = re.compile(r"(?<![\d.])(\d+)[-_ ]*gi?b\b", re.IGNORECASE)
_BARE_SIZE = re.compile(r"(?<=[-_ a-z])(\d+)\s*\Z", re.IGNORECASE)
_CHIP = re.compile(r"\([^)]*\)")
"""Suffixes added by drivers, `(RADV NAVI31)`, `(DG2)`, and the marks `(R)` and `(TM)`."""
_IGNORED_WORDS = {
    "nvidia", "geforce", "tesla", "jetson", "amd", "radeon", "instinct", "intel", "apple", "gpu", "graphics",
    "generation", "with", "design", "edition",
}  # fmt: skip
_OPTIONAL_WORDS = {"rtx", "gtx", "rx", "arc"}
"""Optional words of a name, so `4090` and `a770` are enough; devices that differ in other words are ambiguous."""
_SAME_WORDS = {"mobile": "laptop", "notebook": "laptop"}
_SOURCES = ("memory_from", "bandwidth_source", "fp16_matrix_source", "fp16_source", "share_source")
"""Members that the file gives by the key of a text, which may hold fields of the device."""
_MOST_NAMED = 8
"""Number of candidates that an error lists."""


class KnownDevice(Record, kw_only=True):
    """A GPU of `known_devices.toml` with one memory size, and a source for each value."""

    id: str
    """`rtx-4090`, `m3-max-64gb`; `--gpu` also accepts other spellings."""
    name: str
    """The name that drivers report, without the chip; NVML's for NVIDIA."""
    also: tuple[str, ...] = ()
    """Other names, of drivers and products: `strix-halo`."""
    family: str
    vendor: str
    """`nvidia`, `amd`, `intel` or `apple`."""
    generation: str
    """Its architecture by the vendor's name: `Ampere`, `RDNA 3`, `M2`."""
    backend: str
    """llama.cpp's backend for it: `CUDA`, `ROCm`, `Vulkan`, `SYCL` or `Metal`."""
    memory_gib: float
    """Main memory if unified."""
    memory_from: str
    """The source of `memory_gib`."""
    bandwidth_gb_s: float
    """10^9 bytes/s."""
    bandwidth_source: str
    assumed_memory: str = ""
    """The memory that this is the bandwidth of, `LPDDR5X-8000`, if a machine may have another; else empty."""
    fp16_matrix_tflops: float | None = None
    """Rate with tensor cores, matrix cores, WMMA or XMX: dense, FP16 accumulation; 10^12 flop/s; None if not stated."""
    fp16_matrix_source: str = ""
    fp16_tflops: float | None = None
    """Rate without them; None if not stated."""
    fp16_source: str = ""
    gpu_cores: int | None = None
    """Cores of Apple's GPUs; None if not stated."""
    is_unified: bool = False
    """Whether it shares main memory, so that only one of them counts."""
    is_stacked: bool = False
    """Whether its memory is HBM, with thousands of pins."""
    is_headless: bool = False
    """Whether a screen is usually on another GPU, as in data centres and laptops."""
    gpu_share: float = 1.0
    """Share of the memory that the GPU may use by default: 1 unless a limit is documented."""
    kept_mib: int = 0
    """MiB that the driver does not show."""
    share_source: str = ""
    """The source of either; empty without both."""

    @property
    def shown_bytes(self) -> int:
        """Its memory, or all of a unified one, as the driver shows it."""
        return round(self.memory_gib * GIB) - self.kept_mib * MIB

    @property
    def gpu_bytes(self) -> int:
        """Memory that the GPU may use."""
        return round(self.shown_bytes * self.gpu_share)

    @property
    def memory_source(self) -> str:
        """The source of `gpu_bytes`."""
        if not self.share_source:
            return self.memory_from
        shown = f"{self.gpu_bytes / GIB:.4g} of {self.memory_gib:g} GiB"
        return f"{shown}, {self.share_source}; {self.memory_from}"


@functools.cache
def known_devices() -> tuple[KnownDevice, ...]:
    """Return all known devices by vendor and family; one for each memory size."""
    import tomllib
    from importlib.resources import files

    document = tomllib.loads((files("ggbench.machine") / "known_devices.toml").read_text(encoding="utf-8"))
    sources = document["sources"]

    def device(values: dict[str, Any]) -> KnownDevice:
        texts = {key: sources[values[key]].format_map(values) for key in _SOURCES if values.get(key)}
        return msgspec.convert(values | texts, KnownDevice)

    return tuple(device(family | entry) for family in document["family"] for entry in family["devices"])


def find_device(text: str, ram_gib: float | None = None) -> KnownDevice:
    """Return the device with this name in any spelling: `rtx-4090`, `4090`, `7900xtx`, `Apple M2 Ultra 192GB`.

    A name without a size means the most common size, if there is one, as for `rtx-3060`; a last number that is no part
    of a name is a size, as in `m4max48`. A GPU that shares main memory has `ram_gib` of it or, without, what its name
    says; a Mac only what it is sold with. Raises UsageError, which explains how to describe an unknown card or lists
    the candidates for an ambiguous name.
    """
    found = _candidates(text, ram_gib) or _candidates(_BARE_SIZE.sub(r"\1gb", text), ram_gib)
    if not found:
        raise _unknown(text)
    if len(found) > 1:
        names = [device.id for device in found][:_MOST_NAMED]
        more = f" or {len(found) - len(names)} more" if len(found) > len(names) else ""
        if found[0].assumed_memory:
            more += ", or say how much memory there is: --ram 54GiB@ddr5-5600x2"
        raise UsageError(f"{text!r} matches {len(found)} GPUs", f"choose one: {', '.join(names)}{more}")
    return found[0]


def _candidates(text: str, ram_gib: float | None) -> list[KnownDevice]:
    gib = _size_gib(text) if ram_gib is None else ram_gib
    return (_sharing(text, gib) if gib else []) or _matching(text)


def _unknown(text: str) -> UsageError:
    """Return what is nearest to an unknown name; a number alone is a size."""
    ids = [device.id for device in known_devices()]
    size = f"{text}GiB" if text.isdecimal() else "24GiB@960GB/s"
    other_sizes = [device.id for device in _named(text, None)][:_MOST_NAMED]
    near = other_sizes or difflib.get_close_matches("-".join(text.lower().split()), ids, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}? Otherwise describe" if near else "describe"
    return UsageError(
        f"{text!r} is none of the {len(ids)} GPUs that ggbench knows", f"{hint} the card: --gpu {size}"
    )


def recognize_device(name: str, memory_bytes: int | None) -> KnownDevice | None:
    """Return the device that a driver reports by this name (NVML, CUDA, Vulkan, ROCm, Metal); None if uncertain.

    Sizes with the same name are distinguished by the memory that the GPU reports.
    """
    words, gib = _words(name), _size_gib(name)
    found = [device for device in known_devices() if words and words in _driver_names(device)]
    if memory_bytes is not None:
        sizes = {device.gpu_bytes for device in found}
        nearest = min(sorted(sizes), key=lambda size: abs(size - memory_bytes), default=0)
        found = [device for device in found if device.gpu_bytes == nearest]
    elif gib is not None:
        found = [device for device in found if device.memory_gib == gib]
    return found[0] if len(found) == 1 else None


def _matching(text: str) -> list[KnownDevice]:
    """Return the devices with all the words and the size, if there is one, or the one meant without a size."""
    gib = _size_gib(text)
    found = _named(text, gib)
    if gib is None and len({_words(device.id) for device in found}) == 1:
        common = [device for device in found if _size_gib(device.id) is None]
        return common or sorted(found, key=lambda device: device.memory_gib)
    return found


def _named(text: str, gib: float | None) -> list[KnownDevice]:
    """Return devices with all the words and the size, preferring those whose other words are all optional."""
    asked = _words(text)
    sized = [device for device in known_devices() if gib in (None, device.memory_gib)]
    found = [device for device in sized if asked and any(asked <= words for words in _names(device))]
    whole = [
        device for device in found if any(asked <= words <= asked | _OPTIONAL_WORDS for words in _names(device))
    ]
    return whole or found


def _sharing(text: str, gib: float) -> list[KnownDevice]:
    """Return the GPU of this name that shares this much main memory; none if none or several have the name."""
    named = [device for device in _named(text, None) if device.is_unified]
    if len({device.name for device in named}) != 1:
        return []
    nearest = min(named, key=lambda device: abs(device.memory_gib - gib))
    if nearest.memory_gib == gib:
        return [nearest]
    if nearest.vendor == "apple":
        return []
    return [replace(nearest, memory_gib=gib, memory_from="given", kept_mib=0)]


@functools.cache
def _names(device: KnownDevice) -> frozenset[frozenset[str]]:
    return _driver_names(device) | {_words(device.id)}


@functools.cache
def _driver_names(device: KnownDevice) -> frozenset[frozenset[str]]:
    return frozenset(map(_words, (device.name, *device.also)))


def _words(text: str) -> frozenset[str]:
    """Return the distinguishing words of a name, without its memory size: `7900xtx` -> 7900, xtx."""
    spaced = re.sub(r"sxm[0-9]", "sxm", _CHIP.sub(" ", _SIZE.sub(" ", text.lower())))
    return frozenset(_SAME_WORDS.get(word, word) for word in _WORD.findall(spaced)) - _IGNORED_WORDS


def _size_gib(text: str) -> float | None:
    size = _SIZE.search(text)
    return None if size is None else float(size[1])
