"""The command line that reproduces a run."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec.structs

from ggbench.engines.contract import EngineConfig
from ggbench.fields import long_flag
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import exact_size

if TYPE_CHECKING:
    from ggbench.models.targets import Target


def reproduce(command: str, words: tuple[str, ...], setup: EngineConfig, options: Mapping[str, object]) -> str:
    """One line for a shell: the command, the words for what it measures, and every option that is not the default."""
    line = ["ggbench", command, *words]
    for name, value in options.items():
        line += [f"-{name}" if len(name) == 1 else f"--{name}", *([] if value is True else [str(value)])]
    return shlex.join([*line, *setup_options(setup)])


def setup_options(setup: EngineConfig, *, without: Collection[str] = ()) -> list[str]:
    """The options of every field that is not the default and not said by MODEL and QUANT, `without` some."""
    words = []
    for field in msgspec.structs.fields(setup):  # type: ignore[arg-type]  # every setup is a dataclass
        value = getattr(setup, field.name)
        if value == field.default or field.name in setup.in_words or field.name in without:
            continue
        words.append(long_flag(field.name, field.default))
        if not isinstance(value, bool):
            words.append(_word(field.name, value))
    return words


def named(target: Target) -> tuple[str, ...]:
    """The words of a command line for a target, which mean it from any folder."""
    if target.own is not None:
        return target.own.words or target.named
    is_local = target.path is not None and target.provenance != "hub"
    return (str(target.path.absolute()),) if is_local and target.path else target.named


def stated_bandwidth(bandwidth: Bandwidth | None) -> dict[str, str]:
    """The option for a person's own figure; nothing without one."""
    return {} if bandwidth is None else {"bandwidth": f"{bandwidth.bytes_per_s / 1e9:.10g}GB/s"}


def _word(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(part if isinstance(part, str) else f"{part:g}" for part in value)
    return exact_size(value) if name.endswith("_bytes") and isinstance(value, int) else str(value)
