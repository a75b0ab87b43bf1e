"""What differs between measured rows besides their numbers: the file, how it was loaded, and the environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggbench.plain import plain
from ggbench.records.machine import Environment
from ggbench.report.plot.palette import letter
from ggbench.units import format_bandwidth, format_bytes, format_count, format_number


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs in one respect, a line for each property, with the letters of the rows."""

    topic: str
    lines: tuple[str, ...]
    """Empty where nothing differs."""


def differences_of(rows: Sequence[Row]) -> tuple[Differences, ...]:
    """Return the differences by topic; the n-th row is called by the n-th letter."""
    return (
        Differences("file", _differing(_FILE, rows)),
        Differences("configuration", _differing(_CONFIGURATION, rows)),
        Differences("environment", _environment(rows)),
    )


def letters(indices: Sequence[int]) -> str:
    """Return the letters of rows as a list in words: `a, b and d`."""
    names = [letter(index) for index in indices]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True, slots=True)
class _Property:
    """Something that two rows may differ in."""

    name: str
    text: Callable[[Row], str]
    """Empty where it is not known."""


def _threads(row: Row) -> str:
    return "one per core" if row.config.threads is None else str(row.config.threads)


def _flash_attn(row: Row) -> str:
    got = "" if row.flash_attn is None else "on" if row.flash_attn else "off"
    asked = row.config.flash_attn
    return asked if got in ("", asked) else f"{got} ({asked})"


_FILE = (
    _Property("model", lambda row: row.model),
    _Property("quant", lambda row: row.quant),
    _Property("weights", lambda row: row.provenance),
    _Property("path", lambda row: row.file),
    _Property("size", lambda row: "" if row.file_bytes is None else format_bytes(row.file_bytes)),
    _Property("BPW", lambda row: "" if row.bpw is None else format_number(row.bpw)),
    _Property("header", lambda row: row.header_sha256[:12]),
)

_CONFIGURATION = (
    _Property("n_ctx", lambda row: "" if row.n_ctx is None else format_count(row.n_ctx)),
    _Property("n_prompt", lambda row: "" if row.n_prompt is None else format_count(row.n_prompt)),
    _Property("n_gen", lambda row: "" if row.n_gen is None else format_count(row.n_gen)),
    _Property("n_batch", lambda row: "" if row.n_batch is None else format_count(row.n_batch)),
    _Property("n_ubatch", lambda row: "" if row.n_ubatch is None else format_count(row.n_ubatch)),
    _Property("type_k", lambda row: row.config.type_k),
    _Property("type_v", lambda row: row.config.type_v),
    _Property("flash attention", _flash_attn),
    _Property("n_gpu_layers", lambda row: "all" if row.config.n_gpu_layers < 0 else str(row.config.n_gpu_layers)),
    _Property("main_gpu", lambda row: "all" if row.config.main_gpu is None else str(row.config.main_gpu)),
    _Property(
        "tensor_split", lambda row: " ".join(map(format_number, row.config.tensor_split)) or "llama.cpp's default"
    ),
    _Property("threads", _threads),
    _Property(
        "memory limit",
        lambda row: "none" if row.config.memory_limit_bytes is None else format_bytes(row.config.memory_limit_bytes),
    ),
)


def _of_environment(text: Callable[[Environment], str]) -> Callable[[Row], str]:
    return lambda row: "" if row.environment is None else text(row.environment)


_ENVIRONMENT = (
    _Property("ggbench", _of_environment(lambda environment: environment.ggbench)),
    _Property("llama.cpp", _of_environment(lambda environment: environment.llama_cpp)),
    _Property("llama-cpp-python", _of_environment(lambda environment: environment.llama_cpp_python)),
    _Property("Python", _of_environment(lambda environment: environment.python)),
    _Property("system", _of_environment(lambda environment: environment.os)),
    _Property("processor", _of_environment(lambda environment: environment.cpu)),
    _Property("cores", _of_environment(lambda environment: str(environment.n_cores))),
    _Property("RAM", _of_environment(lambda environment: format_bytes(environment.ram_bytes))),
    _Property(
        "GPUs",
        _of_environment(
            lambda environment: (
                " + ".join(f"{gpu.name} {format_bytes(gpu.total_bytes)}" for gpu in environment.gpus) or "none"
            )
        ),
    ),
    _Property(
        "GPU driver",
        _of_environment(lambda environment: " + ".join(sorted({gpu.driver or "" for gpu in environment.gpus}))),
    ),
)


def _differing(properties: Sequence[_Property], rows: Sequence[Row]) -> tuple[str, ...]:
    """A line for each property that is not the same in all rows: `threads: 2 in a and c, 4 in b`."""
    lines = (_difference(one.name, [plain(one.text(row)) for row in rows]) for one in properties)
    return tuple(line for line in lines if line)


def _difference(name: str, texts: Sequence[str]) -> str:
    holders: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        holders.setdefault(text, []).append(index)
    if len(holders) == 1:
        return ""
    return f"{name}: " + ", ".join(
        f"{text} in {letters(who)}" if text else f"unknown for {letters(who)}" for text, who in holders.items()
    )


def _environment(rows: Sequence[Row]) -> tuple[str, ...]:
    unknown = [index for index, row in enumerate(rows) if row.environment is None]
    if unknown:
        return (f"unknown for {letters(unknown)}",)
    builds = [_build_parts(row.environment) for row in rows]
    common = frozenset.intersection(*builds)
    # Builds list dozens of instruction sets: only those that not all have matter.
    parts = [", ".join(sorted(build - common)) or "nothing else" for build in builds]
    build = _difference("compiled in", [plain(part) for part in parts])
    bandwidths = ["" if row.limit is None else format_bandwidth(row.limit.bandwidth_bytes_per_s) for row in rows]
    bandwidth = _difference("bandwidth of the limits", bandwidths)
    return tuple(line for line in (*_differing(_ENVIRONMENT, rows), build, bandwidth) if line)


def _build_parts(environment: Environment | None) -> frozenset[str]:
    text = "" if environment is None else environment.system_info
    return frozenset(part.strip() for part in text.replace(" : ", " | ").split("|") if part.strip())
