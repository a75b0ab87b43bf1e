"""The packages that Transformers as an engine needs: found by their metadata, so that none of them is imported here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata

from ggbench.errors import EngineFailed

_BASE: Mapping[str, tuple[int, int]] = {
    "torch": (2, 6),
    "transformers": (5, 0),  # caches that know their own position, and `dtype`
    "accelerate": (1, 1),
    "safetensors": (0, 5),
}
_BITSANDBYTES: Mapping[str, tuple[int, int]] = {"bitsandbytes": (0, 46)}
_GPTQMODEL: Mapping[str, tuple[int, int]] = {"gptqmodel": (2, 0)}
_OF_METHOD: Mapping[str, tuple[str, Mapping[str, tuple[int, int]]]] = {
    "int8": ("bitsandbytes", _BITSANDBYTES),
    "nf4": ("bitsandbytes", _BITSANDBYTES),
    "nf4-dq": ("bitsandbytes", _BITSANDBYTES),
    "gptq-int4": ("gptqmodel", _GPTQMODEL),
    "gptq-int8": ("gptqmodel", _GPTQMODEL),
    "awq-int4": ("gptqmodel", _GPTQMODEL),  # GPTQModel replaced AutoGPTQ and AutoAWQ in Transformers
}
"""The extra that a method needs beside `transformers`, with the oldest versions that will do."""


def check_packages(method: str) -> None:
    """Raise EngineFailed, naming each package that a method needs and that is missing or too old."""
    extra, own = _OF_METHOD.get(method, ("", {}))
    where = (
        "on a machine with a CUDA GPU" if extra == "gptqmodel" else "for a CPU alone install torch's CPU build first"
    )
    faults = [fault for name, oldest in {**_BASE, **own}.items() if (fault := _fault(name, oldest))]
    if faults:
        extras = ",".join(filter(None, ("transformers", extra)))
        raise EngineFailed(
            f"{method} of a checkpoint needs packages that are not here: {', '.join(faults)}",
            f"install them with pip install 'ggbench[{extras}]'; {where}",
        )


def _fault(name: str, oldest: tuple[int, int]) -> str:
    """Return `torch`, or `torch 2.1.0 (2.6 or later)`; empty where the package will do."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return name
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) >= oldest:
        return ""
    return f"{name} {version} ({oldest[0]}.{oldest[1]} or later)"
