"""GPUs by name with their vendors' figures, for hardware that is absent or has no driver."""

from __future__ import annotations

import functools
import re
from itertools import chain
from typing import Any

import msgspec

from ggbench.errors import UnknownName, UsageError

_WORD = re.compile(r"[a-z]+|[0-9]+")
_IGNORED_WORDS = {"nvidia", "geforce", "tesla", "quadro", "gpu", "graphics", "generation"}
_OPTIONAL_WORDS = {"rtx"}
"""So that `4090` and `a6000` are accepted; GPUs that differ in more words are ambiguous."""


class KnownGpu(msgspec.Struct, frozen=True):
    """A GPU of `gpus.toml`, each figure with its source."""

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
    """Without tensor cores; None where no source states it."""
    fp16_source: str = ""


@functools.cache
def known_gpus() -> tuple[KnownGpu, ...]:
    """Return every GPU of the shipped table, in order."""
    import tomllib
    from importlib.resources import files

    document = tomllib.loads((files("ggbench.machine") / "gpus.toml").read_text(encoding="utf-8"))
    return tuple(_gpu(entry, document["sources"]) for entry in document["gpu"])


def find_gpu(text: str) -> KnownGpu:
    """Return the GPU with this name in any spelling: `rtx-4090`, `RTX 4090`, `4090`, `NVIDIA A100-SXM4-80GB`.

    Raises UnknownName with the nearest names, and UsageError with the candidates of an ambiguous one.
    """
    found = _matching(text)
    if not found:
        raise UnknownName("GPU", text, (gpu.id for gpu in known_gpus()))
    if len(found) > 1:
        raise UsageError(f"{text!r} matches {len(found)} GPUs", f"choose one: {', '.join(gpu.id for gpu in found)}")
    return found[0]


def recognize_gpu(name: str, memory_bytes: int | None) -> KnownGpu | None:
    """Return the GPU with this NVML name, distinguished by memory size where several share it; None where uncertain."""
    found = [gpu for gpu in known_gpus() if gpu.name.lower() == name.strip().lower()] or _matching(name)
    if len(found) > 1 and memory_bytes is not None:
        found = sorted(found, key=lambda gpu: abs(gpu.memory_gib * (1 << 30) - memory_bytes))[:1]
    return found[0] if len(found) == 1 else None


def _matching(text: str) -> list[KnownGpu]:
    """Return GPUs whose id or name contains all the words, preferring those with only optional words left over."""
    asked = _words(text)
    if not asked:
        return []
    found = [gpu for gpu in known_gpus() if asked <= _words(gpu.id) or asked <= _words(gpu.name)]
    whole = [gpu for gpu in found if (_words(gpu.id) - asked) <= _OPTIONAL_WORDS]
    return whole or found


def _words(text: str) -> set[str]:
    spaced = re.sub(r"sxm[0-9]", "sxm", text.lower())
    return set(_WORD.findall(spaced)) - _IGNORED_WORDS


def _gpu(entry: dict[str, Any], sources: dict[str, str]) -> KnownGpu:
    def figure(name: str) -> tuple[Any, str]:
        """Return the value and where it comes from; None where the table lacks it."""
        if name not in entry:
            return None, ""
        value, source = entry[name][:2]
        return float(value), sources[source].format_map(entry)

    figures = (figure(name) for name in ("memory_gib", "bandwidth_gb_s", "fp16_tensor", "fp16"))
    return KnownGpu(entry["id"], entry["name"], *chain.from_iterable(figures))
