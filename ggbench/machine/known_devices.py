"""Devices whose figures are known by name, from `known_devices.toml`."""

from __future__ import annotations

import difflib
import functools
import re
from itertools import chain
from typing import Any

import msgspec

from ggbench.errors import UsageError

_WORD = re.compile(r"[a-z]+|[0-9]+")
_IGNORED_WORDS = {"nvidia", "geforce", "tesla", "quadro", "gpu", "graphics", "generation"}
_SIZED = re.compile(r"(?P<name>.+?)[-_ ]*\b(?P<gib>\d+)[-_ ]*gi?b", re.IGNORECASE)
_MOST_NAMED = 8
"""Candidates that an error lists."""
_OPTIONAL_WORDS = {"rtx"}
"""Words that may be left out, as in `4090` and `a6000`; GPUs that differ in more words are ambiguous."""


class KnownDevice(msgspec.Struct, frozen=True):
    """A GPU of `known_devices.toml`, with a source for each figure."""

    id: str
    """`rtx-4090`; `--gpu` also accepts other spellings."""
    name: str
    """Name in NVML."""
    memory_gib: float
    memory_source: str
    bandwidth_gb_s: float
    """10^9 bytes/s."""
    bandwidth_source: str
    fp16_tensor_tflops: float
    """Dense, FP16 accumulation; 10^12 flop/s."""
    fp16_tensor_source: str
    fp16_tflops: float | None = None
    """Without tensor cores; None if no source states it."""
    fp16_source: str = ""


@functools.cache
def known_devices() -> tuple[KnownDevice, ...]:
    import tomllib
    from importlib.resources import files

    document = tomllib.loads((files("ggbench.machine") / "known_devices.toml").read_text(encoding="utf-8"))
    return tuple(_device(entry, document["sources"]) for entry in document["device"])


def find_device(text: str) -> KnownDevice:
    """Return the GPU with this name in any spelling: `rtx-4090`, `RTX 4090`, `4090`, `NVIDIA A100-SXM4-80GB`.

    Its own memory size may follow: `rtx-3060-12gb`. Raises UsageError, which says how to describe an unknown card, or
    lists the candidates of an ambiguous name.
    """
    found, sized = _matching(text), _SIZED.fullmatch(text.strip())
    if not found and sized:
        found = [gpu for gpu in _matching(sized["name"]) if gpu.memory_gib == float(sized["gib"])]
    if not found:
        name = (sized["name"] if sized else text).lower()
        near = difflib.get_close_matches(name, [gpu.id for gpu in known_devices()], n=2, cutoff=0.75)
        hint = "describe the card by its figures, e.g. --vram 24GiB --bandwidth 960GB/s"
        raise UsageError(
            f"{text!r} is not among the {len(known_devices())} known cards, which are NVIDIA's",
            f"did you mean {' or '.join(near)}? Otherwise {hint}" if near else hint,
        )
    if len(found) > 1:
        names = [gpu.id for gpu in found][:_MOST_NAMED]
        more = f" or {len(found) - len(names)} more" if len(found) > len(names) else ""
        raise UsageError(f"{text!r} matches {len(found)} GPUs", f"choose one: {', '.join(names)}{more}")
    return found[0]


def recognize_device(name: str, memory_bytes: int | None) -> KnownDevice | None:
    """Return the GPU with this NVML name, distinguished by memory size where several share it; None if uncertain."""
    found = [gpu for gpu in known_devices() if gpu.name.lower() == name.strip().lower()] or _matching(name)
    if len(found) > 1 and memory_bytes is not None:
        found = sorted(found, key=lambda gpu: abs(gpu.memory_gib * (1 << 30) - memory_bytes))[:1]
    return found[0] if len(found) == 1 else None


def _matching(text: str) -> list[KnownDevice]:
    """Return GPUs whose id or name contains all the words, preferring those with only optional words left over."""
    asked = _words(text)
    if not asked:
        return []
    found = [gpu for gpu in known_devices() if asked <= _words(gpu.id) or asked <= _words(gpu.name)]
    whole = [gpu for gpu in found if (_words(gpu.id) - asked) <= _OPTIONAL_WORDS]
    return whole or found


def _words(text: str) -> set[str]:
    spaced = re.sub(r"sxm[0-9]", "sxm", text.lower())
    return set(_WORD.findall(spaced)) - _IGNORED_WORDS


def _device(entry: dict[str, Any], sources: dict[str, str]) -> KnownDevice:
    def figure(name: str) -> tuple[Any, str]:
        if name not in entry:
            return None, ""
        value, source = entry[name][:2]
        return float(value), sources[source].format_map(entry)

    figures = (figure(name) for name in ("memory_gib", "bandwidth_gb_s", "fp16_tensor", "fp16"))
    return KnownDevice(entry["id"], entry["name"], *chain.from_iterable(figures))
