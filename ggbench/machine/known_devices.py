"""Devices known by name, from `known_devices.toml`."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.errors import UsageError
from ggbench.units import GIB, MIB

_WORD = re.compile(r"[a-z]+|[0-9]+")
_SIZE = re.compile(r"(?<![\d.])(\d+)[-_ ]*gi?b\b", re.IGNORECASE)
_CHIP = re.compile(r"\([^)]*\)")
"""Suffixes added by drivers, `(RADV NAVI31)`, `(DG2)`, and the marks `(R)` and `(TM)`."""
_IGNORED_WORDS = {
    "nvidia", "geforce", "tesla", "jetson", "amd", "radeon", "instinct", "intel", "apple", "gpu", "graphics",
    "generation", "with", "design", "edition",
}  # fmt: skip
_OPTIONAL_WORDS = {"rtx", "gtx", "rx", "arc"}
"""Optional words of a name, so `4090` and `a770` are enough; devices that differ in other words are ambiguous."""
_SAME_WORDS = {"mobile": "laptop", "notebook": "laptop"}
_HBM_BITS, _HBM_GB_S = 2048, 2000
"""Bus width that only HBM has, and its bandwidth where no width is stated."""
_MOST_NAMED = 8
"""Number of candidates that an error lists."""


class KnownDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU of `known_devices.toml` with one memory size, and a source for each value."""

    id: str
    """`rtx-4090`, `m3-max-64gb`; `--gpu` also accepts other spellings."""
    name: str
    """The name that drivers report, without the chip; NVML's for NVIDIA."""
    also: tuple[str, ...]
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
    assumed_memory: str
    """The memory that this is the bandwidth of, `LPDDR5X-8000`, if a machine may have another; else empty."""
    fp16_matrix_tflops: float | None
    """Rate with tensor cores, matrix cores, WMMA or XMX: dense, FP16 accumulation; 10^12 flop/s; None if not stated."""
    fp16_matrix_source: str
    fp16_tflops: float | None
    """Rate without them; None if not stated."""
    fp16_source: str
    is_unified: bool
    """Whether it shares main memory, so that only one of them counts."""
    is_stacked: bool
    """Whether its memory is HBM, with thousands of pins."""
    is_headless: bool
    """Whether a screen is usually on another GPU, as in data centres and laptops."""
    gpu_share: float
    """Share of the memory that the GPU may use by default: 1 unless a limit is documented."""
    kept_mib: int
    """MiB that the driver does not show."""
    share_source: str
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
    return tuple(
        device
        for family in document["family"]
        for entry in family["devices"]
        for device in _devices(family, entry, document["sources"])
    )


def find_device(text: str, ram_gib: float | None = None) -> KnownDevice:
    """Return the device with this name in any spelling: `rtx-4090`, `4090`, `7900xtx`, `Apple M2 Ultra 192GB`.

    A name without a size means the most common size, if there is one, as for `rtx-3060`. A GPU that shares main memory
    has `ram_gib` of it or, without, what its name says; a Mac only what it is sold with. Raises UsageError, which
    explains how to describe an unknown card or lists the candidates for an ambiguous name.
    """
    gib = _size_gib(text) if ram_gib is None else ram_gib
    found = (_sharing(text, gib) if gib else None) or _matching(text)
    if not found:
        raise _unknown(text)
    if len(found) > 1:
        names = [device.id for device in found][:_MOST_NAMED]
        more = f" or {len(found) - len(names)} more" if len(found) > len(names) else ""
        if found[0].assumed_memory:
            more += ", or say how much memory there is: --ram 54GiB@ddr5-5600x2"
        raise UsageError(f"{text!r} matches {len(found)} GPUs", f"choose one: {', '.join(names)}{more}")
    return found[0]


def _unknown(text: str) -> UsageError:
    name = _without_size(text.lower())
    known = {_without_size(device.id) for device in known_devices()}
    near = difflib.get_close_matches(name, known, n=len(known), cutoff=0.75)
    near.sort(key=lambda each: sorted(each) != sorted(name))  # swapped digits first
    ids = [device.id for device in _matching(name)] or near[:2]
    hint = "describe the card: --gpu 24GiB@960GB/s"
    return UsageError(
        f"{text!r} is not among the {len(known_devices())} known cards",
        f"did you mean {' or '.join(ids[:_MOST_NAMED])}? Otherwise {hint}" if ids else hint,
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


def _without_size(text: str) -> str:
    return _SIZE.sub("", text).strip(" -_")


def _size_gib(text: str) -> float | None:
    size = _SIZE.search(text)
    return None if size is None else float(size[1])


def _devices(family: dict[str, Any], entry: dict[str, Any], sources: dict[str, str]) -> Iterator[KnownDevice]:
    """Yield the device with each of its memory sizes."""
    values = family | entry

    def source(key: str) -> str:
        return sources[key].format_map(values)

    def rate(name: str) -> tuple[float | None, str]:
        """Return the rate stated by the entry, or its family's flop per core and cycle times cores and clock."""
        if name in entry:
            number, key = entry[name] if isinstance(entry[name], list) else (entry[name], values["source"])
            return float(number), source(key)
        if name in family and "cores" in entry:
            flop, key = family[name]
            return _rounded(flop * entry["cores"] * entry["boost_mhz"] / 1e6), source(key)
        return None, ""

    bandwidth, bandwidth_source = rate("bandwidth")
    if bandwidth is None:
        bandwidth = _rounded(entry["bus_bits"] * entry["pin_gbps"] / 8)
        bandwidth_source = source(values.get("bandwidth_source", "pins"))
    kept_mib, share_source = values.get("kept_mib", (0, family.get("share_source", "")))
    matrix, matrix_source = rate("matrix")
    vector, vector_source = rate("vector")
    sizes = entry["gib"] if isinstance(entry["gib"], list) else [entry["gib"]]
    for gib in sizes:
        is_plain = gib == entry.get("common") or not isinstance(entry["gib"], list)
        share = next((part for most_gib, part in family.get("share", ()) if gib <= most_gib), 1.0)
        yield KnownDevice(
            id=entry["id"] if is_plain else f"{entry['id']}-{gib}gb",
            name=entry["name"],
            also=tuple(entry.get("also", ())),
            family=family["name"],
            vendor=family["vendor"],
            generation=values.get("generation", ""),
            backend=values["backend"],
            memory_gib=float(gib),
            memory_from=source(values["source"]),
            bandwidth_gb_s=bandwidth,
            bandwidth_source=bandwidth_source,
            assumed_memory=entry.get("assumed", ""),
            fp16_matrix_tflops=matrix,
            fp16_matrix_source=matrix_source,
            fp16_tflops=vector,
            fp16_source=vector_source,
            is_unified=family.get("unified", False),
            is_stacked=entry.get("bus_bits", 0) >= _HBM_BITS or bandwidth >= _HBM_GB_S,
            is_headless=family.get("headless", False),
            gpu_share=share,
            kept_mib=kept_mib,
            share_source=sources.get(share_source, ""),
        )


def _rounded(number: float) -> float:
    """Round to 4 digits, like vendors' data."""
    return float(f"{number:.4g}")
