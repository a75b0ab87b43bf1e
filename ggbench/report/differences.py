"""What differs between measured quants besides their numbers: the file, how it was loaded, and the environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggbench.plain import plain
from ggbench.records.decode import DecodeResult
from ggbench.records.machine import Environment
from ggbench.records.setup import LlamaSetup
from ggbench.records.summary import QuantSummary
from ggbench.report.names import model_name
from ggbench.report.plot.palette import letter
from ggbench.units import format_bandwidth, format_bytes, format_count, format_number

_TextOf = Callable[[QuantSummary], str]
"""Empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs in one respect, a line for each property, with the letters of the quants."""

    topic: str
    lines: tuple[str, ...]
    """Empty where nothing differs."""


def differences_of(summaries: Sequence[QuantSummary]) -> tuple[Differences, ...]:
    """Return the differences by topic; the n-th quant is called by the n-th letter."""
    return (
        Differences("file", _differing(_FILE, summaries)),
        Differences("configuration", _differing(_CONFIGURATION, summaries)),
        Differences("environment", _environment(summaries)),
    )


def _on_off(value: bool) -> str:
    return "on" if value else "off"


def letters(indices: Sequence[int]) -> str:
    """Return the letters of quants as a list in words: `a, b and d`."""
    names = [letter(index) for index in indices]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True, slots=True)
class _Property:
    """Something that two quants may differ in."""

    name: str
    text: _TextOf
    """Empty where it is not known."""


def _flash_attn(summary: QuantSummary) -> str:
    used = {None: "", True: "on", False: "off"}[summary.memory.flash_attn]
    requested = summary.llama.flash_attn if summary.llama else ""
    return requested if used in ("", requested) else f"{used} ({requested})"


def _of_llama(text: Callable[[LlamaSetup], str]) -> _TextOf:
    return lambda summary: "" if summary.llama is None else text(summary.llama)


def _of_decode(count: Callable[[DecodeResult], int]) -> _TextOf:
    return lambda summary: "" if summary.decode is None else format_count(count(summary.decode))


def _known(value: Callable[[QuantSummary], int | None], text: Callable[[int], str] = format_count) -> _TextOf:
    def known(summary: QuantSummary) -> str:
        number = value(summary)
        return "" if number is None else text(number)

    return known


_FILE = (
    _Property("model", lambda summary: model_name(summary.subject)),
    _Property("quant", lambda summary: summary.subject.quant),
    _Property("source", lambda summary: summary.subject.source),
    _Property("path", lambda summary: summary.subject.file),
    _Property("size", _known(lambda summary: summary.subject.file_bytes, format_bytes)),
    _Property("BPW", lambda summary: format_number(summary.subject.bpw) if summary.subject.bpw else ""),
    _Property("header", lambda summary: summary.subject.header_sha256[:12]),
)

_CONFIGURATION = (
    _Property("engine", lambda summary: summary.setup.engine),
    _Property("n_ctx", _known(lambda summary: summary.memory.n_ctx)),
    _Property("n_prompt", _of_decode(lambda decode: decode.n_prompt)),
    _Property("n_gen", _of_decode(lambda decode: decode.n_gen)),
    _Property("n_batch", _known(lambda summary: summary.memory.n_batch)),
    _Property("n_ubatch", _known(lambda summary: summary.memory.n_ubatch)),
    _Property("type_k", _of_llama(lambda setup: setup.type_k)),
    _Property("type_v", _of_llama(lambda setup: setup.type_v)),
    _Property("flash attention", _flash_attn),
    _Property("n_gpu_layers", _of_llama(lambda setup: "all" if setup.n_gpu_layers < 0 else str(setup.n_gpu_layers))),
    _Property("main_gpu", _of_llama(lambda setup: "all" if setup.main_gpu is None else str(setup.main_gpu))),
    _Property(
        "tensor_split",
        _of_llama(lambda setup: " ".join(map(format_number, setup.tensor_split)) or "llama.cpp's default"),
    ),
    _Property("split_mode", _of_llama(lambda setup: setup.split_mode)),
    _Property(
        "tensor overrides",
        _of_llama(lambda setup: " ".join(f"{pattern}={to}" for pattern, to in setup.tensor_overrides) or "none"),
    ),
    _Property("threads", _of_llama(lambda setup: "one per core" if setup.threads is None else str(setup.threads))),
    _Property(
        "threads_batch",
        _of_llama(lambda setup: "as threads" if setup.threads_batch is None else str(setup.threads_batch)),
    ),
    _Property("mmap", _of_llama(lambda setup: _on_off(setup.mmap))),
    _Property("mlock", _of_llama(lambda setup: _on_off(setup.mlock))),
    _Property("KV offload", _of_llama(lambda setup: _on_off(setup.kv_offload))),
    _Property("full SWA cache", _of_llama(lambda setup: _on_off(setup.swa_full))),
    _Property("sequences", _of_llama(lambda setup: str(setup.n_seq_max))),
    _Property(
        "memory limit",
        _of_llama(lambda setup: "none" if setup.memory_limit_bytes is None else format_bytes(setup.memory_limit_bytes)),
    ),
)


def _of_environment(text: Callable[[Environment], str]) -> _TextOf:
    return lambda summary: "" if summary.environment is None else text(summary.environment)


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


def _differing(properties: Sequence[_Property], summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """A line for each property that is not the same in all: `threads: 2 in a and c, 4 in b`."""
    lines = (_difference(one.name, [plain(one.text(summary)) for summary in summaries]) for one in properties)
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


def _environment(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    unknown = [index for index, summary in enumerate(summaries) if summary.environment is None]
    if unknown:
        return (f"unknown for {letters(unknown)}",)
    builds = [_build_parts(summary.environment) for summary in summaries]
    common = frozenset.intersection(*builds)
    # Builds list dozens of instruction sets: only those that not all have matter.
    parts = [", ".join(sorted(build - common)) or "nothing else" for build in builds]
    build = _difference("compiled in", [plain(part) for part in parts])
    bandwidths = [
        "" if summary.limit is None else format_bandwidth(summary.limit.bandwidth_bytes_per_s) for summary in summaries
    ]
    bandwidth = _difference("bandwidth of the limits", bandwidths)
    return tuple(line for line in (*_differing(_ENVIRONMENT, summaries), build, bandwidth) if line)


def _build_parts(environment: Environment | None) -> frozenset[str]:
    text = "" if environment is None else environment.system_info
    return frozenset(part.strip() for part in text.replace(" : ", " | ").split("|") if part.strip())
