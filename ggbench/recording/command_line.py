"""The command line that measures a row again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields

from ggbench.records import LoadConfig
from ggbench.units import exact_size


def reproduce(kind: str, named: tuple[str, ...], config: LoadConfig, options: Mapping[str, object]) -> str:
    """One line for a shell: the command, the words for what it measures, and every option that is not the default."""
    words = ["ggbench", kind, *named]
    for name, value in options.items():
        words += [f"-{name}" if len(name) == 1 else f"--{name}", str(value)]
    for field in fields(LoadConfig):
        value = getattr(config, field.name)
        if value == field.default:
            continue
        name = field.name.removesuffix("_bytes").replace("_", "-")
        words += [f"--{name}", _word(field.name, value)]
    return shlex.join(words)


def _word(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{share:g}" for share in value)
    return exact_size(value) if name.endswith("_bytes") and isinstance(value, int) else str(value)
