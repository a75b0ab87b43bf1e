"""The command line that measures a row again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields

from ggbench.records import LoadConfig


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
        words += [f"--{name}", ",".join(f"{share:g}" for share in value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)
