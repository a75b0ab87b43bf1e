"""A device profile: what twins took on a machine, so that the speed of any model there can be told anywhere.

A profile is a document about a machine, 10 kB of JSON that `ggbench profile` writes. It has no path, name of a host or
serial number. Those in the folder `profiles` are found by their name. A profile from elsewhere is untrusted: it is read
strictly, and refused if a timing is faster than the bandwidth allows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from ggbench.errors import BadFile, UnknownName, UsageError
from ggbench.machine.description import Device, Machine, MainMemory
from ggbench.machine.known_devices import find_device
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.profile_speed import Rates
from ggbench.units import GIB, format_bandwidth

SCHEMA: Final = "ggbench.profile/1"
_FOLDER = Path(__file__).parent / "profiles"
_MOST_BYTES = 1 << 20
_FASTER = 1.1
"""A timing may reach this multiple of the bandwidth, which is known no better."""
_TAKE_AGAIN = "take it again: ggbench profile"

_Text = Annotated[str, msgspec.Meta(max_length=2000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
_Bytes = Annotated[int, msgspec.Meta(gt=0, le=1 << 50)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
_Batch = Annotated[int, msgspec.Meta(gt=0, le=1 << 20)]


class ProfiledDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A GPU, or main memory with the CPU."""

    name: _Text
    backend: _Text = ""
    """ggml's name of the backend: `CUDA`; empty for main memory."""
    driver: _Text = ""
    memory_bytes: _Bytes
    bandwidth_bytes_per_s: _Rate | None
    """None if it is unknown."""
    bandwidth_source: _Text = ""
    shares_memory: bool = False
    """Whether a GPU has no memory of its own."""
    rates: dict[_Batch, Rates]
    """What a batch of so many tokens costs; empty for another GPU of the same name."""


class MachineProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    schema: Literal["ggbench.profile/1"] = SCHEMA
    taken: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """Date."""
    origin: _Text = ""
    """Who took it on which machine, of one in ggbench's own folder."""
    ggbench: _Text
    llama_cpp: _Text
    """llama.cpp's version and commit."""
    build_flags: _Text
    """CMake options that llama.cpp was compiled with; empty if unknown."""
    features: _Text
    """Instruction sets and backends compiled in: `llama_print_system_info()`."""
    n_cores: Annotated[int, msgspec.Meta(gt=0)]
    threads: Annotated[int, msgspec.Meta(gt=0)]
    """Threads that computed."""
    cache_bytes: _Bytes | None
    """The CPU's last-level cache."""
    drift: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    """How much slower the first timing was when it was repeated last, as a share."""
    devices: tuple[ProfiledDevice, ...]
    """GPUs in llama.cpp's order."""
    host: ProfiledDevice

    @property
    def noise(self) -> float:
        """Median spread of the timings, or the drift if that is larger."""
        rates = [each for device in (*self.devices, self.host) for each in device.rates.values()]
        spreads = sorted(timed.spread for each in rates for timed in each.gib_ms.values())
        return max(self.drift, spreads[len(spreads) // 2] if spreads else 0.0)

    def rates_of(self, name: str | None) -> dict[int, Rates]:
        """Return the timings of the GPU of this name, or with None of main memory; empty if there are none."""
        if name is None:
            return self.host.rates
        return next((each.rates for each in self.devices if each.name == name and each.rates), {})

    def machine(self) -> Machine:
        devices = tuple(
            Device(
                each.name,
                each.memory_bytes,
                "its profile",
                _bandwidth(each),
                each.backend,
                self.host.memory_bytes if each.shares_memory else None,
            )
            for each in self.devices
        )
        return Machine(devices, MainMemory(self.host.memory_bytes, _bandwidth(self.host)))

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def _bandwidth(device: ProfiledDevice) -> Bandwidth | None:
    rate = device.bandwidth_bytes_per_s
    return None if rate is None else Bandwidth(rate, device.bandwidth_source or "its profile")


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that come with ggbench."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def find_profile(text: str) -> MachineProfile:
    """Return the profile of this path or name. Raises UnknownName, and BadFile for one that cannot be trusted."""
    path = Path(text).expanduser()
    if text.lower() in profile_names():
        path = _FOLDER / f"{text.lower()}.json"
    elif not path.exists():
        raise UnknownName("profile", text, profile_names(), _no_profile_hint(text))
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}", _TAKE_AGAIN) from None
    return read_profile(content, path.name)


def _no_profile_hint(text: str) -> str:
    try:
        return f"to plan for this GPU: --gpu {find_device(text).id}"
    except UsageError:
        return "give the file that ggbench profile wrote on that machine"


def read_profile(content: bytes, name: str) -> MachineProfile:
    """Return the profile of a file with this name. Raises BadFile."""
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too long")
        found = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        raise BadFile(f"{name} is not a device profile, or it is cut off: it is not JSON", _TAKE_AGAIN) from None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        match = re.fullmatch(r"ggbench\.profile/(\d{1,4})", schema) if isinstance(schema, str) else None
        if match is not None and int(match[1]) > 1:
            raise BadFile(
                f"{name} was written by a newer ggbench ({schema})", f"update ggbench: this one reads {SCHEMA}"
            )
        other = f": its schema is {schema!r}" if isinstance(schema, str) else ""
        raise BadFile(f"{name} is not a device profile{other[:80]}", f"a profile has the schema {SCHEMA}")
    try:
        profile = msgspec.convert(found, MachineProfile, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadFile(f"{name} is not a whole device profile: {error}", _TAKE_AGAIN) from None
    devices = (*profile.devices, profile.host)
    if not any(device.rates for device in devices):
        raise BadFile(f"{name} has no timings", _TAKE_AGAIN)
    for device in devices:
        _check(device, name)
    return profile


def _check(device: ProfiledDevice, name: str) -> None:
    """Raise BadFile for weights that were read faster than the bandwidth, or if no single token was timed."""
    for n_batch, rates in device.rates.items():
        for type_name, timed in rates.gib_ms.items():
            rate, most = GIB / timed.ms * 1e3, device.bandwidth_bytes_per_s
            if most is not None and rate > _FASTER * most:
                what = (
                    f"{type_name} weights at {format_bandwidth(rate)}, but the memory reaches {format_bandwidth(most)}"
                )
                raise BadFile(f"{name} is impossible: {device.name} reads {what} (batch {n_batch})", _TAKE_AGAIN)
    if device.rates and 1 not in device.rates:
        raise BadFile(f"{name} is not a whole device profile: {device.name} has no single token", _TAKE_AGAIN)
