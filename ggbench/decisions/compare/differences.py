"""Find differences between measured runs other than their results, and reasons not to trust or compare results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec

from ggbench.engines.endings import Outcome
from ggbench.machine.records import Environment
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import letter
from ggbench.show.metric import Property, vary
from ggbench.show.names import model_name
from ggbench.show.presenter import own_caveats, own_differences
from ggbench.text import in_words, sanitize
from ggbench.units import format_bandwidth, format_bytes, format_count, format_number


def differences_of(summaries: Sequence[QuantSummary]) -> dict[str, tuple[str, ...]]:
    """Return the differences by topic, a line for each property; the n-th run has the n-th letter."""
    own = own_differences(summary.run.head.kind for summary in summaries)
    configuration = (
        *_differing(_CONFIGURATION, summaries),
        *_loads(summaries),
        *_differing(_LIMIT, summaries),
        *_settings(summaries),
    )
    return {
        "file": _files(summaries),
        **{topic: _differing(properties, summaries) for topic, properties in own.items()},
        "configuration": configuration,
        "environment": _environment(summaries),
    }


def _files(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Return how the files differ, without paths and headers that differ only where the quant does."""
    implied = {"path", "header SHA-256"} if len({summary.subject.quant for summary in summaries}) > 1 else set()
    return _differing([each for each in _FILE if each.name not in implied], summaries)


def letters(indices: Sequence[int]) -> str:
    """Return the letters of runs as a list in words: `a, b and d`."""
    return in_words([letter(index) for index in indices])


def _loads(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Return the differences in the other engine settings that all of them have."""
    described = [summary.setup.described for summary in summaries]
    shared = [name for name in described[0] if all(name in each for each in described)]
    lines = (_difference(name, [each[name] for each in described]) for name in shared)
    return tuple(line for line in lines if line)


def _settings(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Return how the settings of runs of one kind differ, by field name."""
    settings: list[Any] = [summary.run.head.settings for summary in summaries]
    if len(set(map(type, settings))) > 1 or not isinstance(settings[0], msgspec.Struct):
        return ()
    own = own_differences(summary.run.head.kind for summary in summaries)
    named = {each.name for each in itertools.chain(_CONFIGURATION, *own.values())}
    keys = [name for name in settings[0].__struct_fields__ if name not in named]
    lines = (_difference(key, [_setting(getattr(each, key)) for each in settings]) for key in keys)
    return tuple(line for line in lines if line)


def _setting(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_setting, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "on", False: "off"}[value]
    return sanitize(str(getattr(value, "name", value))) or "none"


def _flash_attn(run: Run) -> str:
    used = {None: "", True: "on", False: "off"}[run.memory.flash_attn]
    requested = run.head.setup.flash_attn
    return requested if used in ("", requested) else f"{used} ({requested})"


def _version(environment: Environment, version: str) -> str:
    """Return a program's version; `not used` if another program ran the model."""
    is_known = environment.llama_cpp or environment.transformers or environment.server
    return version or ("not used" if is_known else "")


_FILE = (
    Property("model", "subject", model_name),
    Property("quant", "subject.quant"),
    Property("source", "subject.source"),
    Property("path", "subject.file"),
    Property("size", "subject.file_bytes", format_bytes),
    Property("BPW", "subject.bpw", lambda bpw: format_number(bpw) if bpw else ""),
    Property("header SHA-256", "subject.header_sha256", lambda header: header[:12]),
)

_CONFIGURATION = (
    Property("kind", "run.head.kind"),
    Property("engine", "setup.engine"),
    Property("n_ctx", "memory.n_ctx", format_count),
    Property("n_prompt", "decode.n_prompt", format_count),
    Property("n_gen", "decode.n_gen", format_count),
    Property("users", "decode.n_seqs", format_count),
    Property("n_batch", "memory.n_batch", format_count),
    Property("n_ubatch", "memory.n_ubatch", format_count),
    Property("type_k", "setup", lambda setup: setup.cache_types[0] if setup.cache_types else ""),
    Property("type_v", "setup", lambda setup: setup.cache_types[1] if setup.cache_types else ""),
    Property("flash attention", "run", _flash_attn),
)
_LIMIT = (
    Property(
        "memory limit",
        "setup",
        lambda setup: "none" if setup.memory_limit_bytes is None else format_bytes(setup.memory_limit_bytes),
    ),
)

_ENVIRONMENT = (
    Property("ggbench", "environment.ggbench"),
    Property("llama.cpp", "environment", lambda environment: _version(environment, environment.llama_cpp)),
    Property(
        "Transformers", "environment", lambda environment: _version(environment, environment.transformers)
    ),
    Property("llama-cpp-python", "environment.llama_cpp_python"),
    Property("backends", "environment.backends", ", ".join),
    Property("built with", "environment.build_flags"),
    Property("Python", "environment.python"),
    Property("system", "environment.os"),
    Property("processor", "environment.cpu"),
    Property("cores", "environment.n_cores"),
    Property("RAM", "environment.ram_bytes", format_bytes),
    Property(
        "GPUs",
        "environment.gpus",
        lambda gpus: " + ".join(f"{gpu.name} {format_bytes(gpu.total_bytes)}" for gpu in gpus) or "none",
    ),
    Property(
        "GPU driver", "environment.gpus", lambda gpus: " + ".join(sorted({gpu.driver or "" for gpu in gpus}))
    ),
)


_BANDWIDTH = (Property("bandwidth of the limits", "limit.bandwidth_bytes_per_s", format_bandwidth),)


def _differing(properties: Sequence[Property], summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Return a line for each property that differs: `threads: 2 in a and c, 4 in b`."""
    lines = (_difference(one.name, [one.text(summary) for summary in summaries]) for one in properties)
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
    lines = (*_differing(_ENVIRONMENT, summaries), _compiled_in(summaries), *_differing(_BANDWIDTH, summaries))
    return tuple(line for line in lines if line)


def _compiled_in(summaries: Sequence[QuantSummary]) -> str:
    """Return which of the dozens of instruction sets that builds list differ; empty if none is known to."""
    builds = [_build_parts(summary.environment) for summary in summaries]
    known = {build for build in builds if build}
    if len(known) < 2:
        return ""
    common = frozenset.intersection(*known)
    own = [", ".join(sorted(build - common)) or "nothing else" for build in builds]
    return _difference(
        "compiled in", [sanitize(text) if build else "" for text, build in zip(own, builds, strict=True)]
    )


def _build_parts(environment: Environment | None) -> frozenset[str]:
    text = "" if environment is None else environment.system_info
    return frozenset(part.strip() for part in text.replace(" : ", " | ").split("|") if part.strip())


def caveats(summaries: Sequence[QuantSummary]) -> list[str]:
    """Return reasons not to trust numbers, then those that measure different things."""
    lines = []
    for index, summary in enumerate(summaries):
        if summary.outcome is not Outcome.COMPLETED:
            lines.append(
                f"{letter(index)} did not complete: {sanitize(summary.run.reason) or summary.outcome.text}"
            )
        elif summary.unsteady:
            lines.append(f"{letter(index)} was not steady: {sanitize(summary.unsteady)}")
    if any(_are_other_models(*pair) for pair in combinations([summary.subject for summary in summaries], 2)):
        lines.append("different models: less memory or a lower B may just mean a smaller model")
    lines += own_caveats((run.head.kind for summary in summaries for run in summary.runs), summaries)
    if vary(lambda summary: summary.memory.n_ctx, summaries):
        lines.append("different n_ctx: memory counts KV caches of different lengths")
    return lines


def _are_other_models(one: Subject, other: Subject) -> bool:
    """Compare architecture and shape, or names if a header is missing."""
    differ = one.has_other_shape(other)
    return model_name(one) != model_name(other) if differ is None else differ
