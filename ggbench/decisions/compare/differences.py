"""What differs between measured quants besides their numbers, and why numbers should not be trusted or compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import msgspec

from ggbench.decisions.compared_metrics import decoded_lengths, scored_base, scored_text
from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.machine.records import Environment
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import on_off, reader
from ggbench.show.names import model_name
from ggbench.show.plot.palette import letter
from ggbench.text import in_words, plain
from ggbench.units import format_bandwidth, format_bytes, format_count, format_number


class Differences(msgspec.Struct, frozen=True):
    """What differs in one respect, a line for each property, with the letters of the quants."""

    topic: str
    lines: tuple[str, ...]
    """Empty where nothing differs."""


def differences_of(summaries: Sequence[QuantSummary]) -> tuple[Differences, ...]:
    """Return the differences by topic; the n-th quant is called by the n-th letter."""
    has_text = any(summary.quality is not None for summary in summaries)
    return (
        Differences("file", _differing(_FILE, summaries)),
        *((Differences("text", _differing(_TEXT, summaries)),) if has_text else ()),
        Differences("configuration", (*_differing(_CONFIGURATION, summaries), *_settings(summaries))),
        Differences("environment", _environment(summaries)),
    )


def letters(indices: Sequence[int]) -> str:
    """Return the letters of quants as a list in words: `a, b and d`."""
    return in_words([letter(index) for index in indices])


class _Property(msgspec.Struct, frozen=True):
    """Something that two quants may differ in."""

    name: str
    path: str
    """As of `reader`."""
    form: Callable[[Any], str] = str
    """The text of what is there; one that is not known is never passed."""

    def is_foreign_to(self, summaries: Sequence[QuantSummary]) -> bool:
        """Return whether it is of one engine's setup, and not all were run by that engine."""
        root = self.path.partition(".")[0]
        return root in ("llama", "checkpoint") and any(reader(root)(summary) is None for summary in summaries)

    def text(self, summary: QuantSummary) -> str:
        """What people read; empty where it is not known."""
        value = reader(self.path)(summary)
        return "" if value is None else plain(self.form(value))


def _settings(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """What runs of one kind were asked for and does not agree, under the names of the settings' fields."""
    settings: list[Any] = [summary.run.head.settings for summary in summaries]
    if len(set(map(type, settings))) > 1 or not isinstance(settings[0], msgspec.Struct):
        return ()
    named = {each.name for each in (*_CONFIGURATION, *_TEXT)}
    keys = [name for name in settings[0].__struct_fields__ if name not in named]
    return tuple(
        line for key in keys if (line := _difference(key, [_setting(getattr(each, key)) for each in settings]))
    )


def _setting(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_setting, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "on", False: "off"}[value]
    return plain(str(getattr(value, "name", value))) or "none"


def _flash_attn(run: Run) -> str:
    used = {None: "", True: "on", False: "off"}[run.memory.flash_attn]
    requested = run.head.setup.flash_attn if isinstance(run.head.setup, LlamaConfig) else ""
    return requested if used in ("", requested) else f"{used} ({requested})"


def _threads(setup: EngineConfig) -> str:
    """Threads as they were asked for; empty where the engine has none of its own."""
    if not isinstance(setup, LlamaConfig | TransformersConfig):
        return ""
    return "one per core" if setup.threads is None else str(setup.threads)


def _version(environment: Environment, version: str) -> str:
    """Version of a program; `not used` where another ran the model."""
    is_known = environment.llama_cpp or environment.transformers or environment.server
    return version or ("not used" if is_known else "")


_FILE = (
    _Property("model", "subject", model_name),
    _Property("quant", "subject.quant"),
    _Property("source", "subject.source"),
    _Property("path", "subject.file"),
    _Property("size", "subject.file_bytes", format_bytes),
    _Property("BPW", "subject.bpw", lambda bpw: format_number(bpw) if bpw else ""),
    _Property("header", "subject.header_sha256", lambda header: header[:12]),
)

_TEXT = (
    _Property("text", "quality.text.name"),
    _Property("sha256", "quality.text.sha256", lambda sha256: sha256[:12]),
    _Property("tokens", "quality.scored.n_tokens", format_count),
    _Property("tokens' sha256", "quality.scored.tokens_sha256", lambda sha256: sha256[:12]),
    _Property("tokens of a chunk", "quality.n_ctx", format_count),
    _Property("chunks scored", "quality.n_chunks", format_count),
    _Property(
        "base", "quality.base", lambda base: f"{model_name(base.subject)} {base.subject.quant}, "
                                             f"KV {base.type_k}/{base.type_v}",
    ),
)  # fmt: skip

_CONFIGURATION = (
    _Property("kind", "run.head.kind"),
    _Property("engine", "setup.engine"),
    _Property("n_ctx", "memory.n_ctx", format_count),
    _Property("n_prompt", "decode.n_prompt", format_count),
    _Property("n_gen", "decode.n_gen", format_count),
    _Property("n_batch", "memory.n_batch", format_count),
    _Property("n_ubatch", "memory.n_ubatch", format_count),
    _Property("type_k", "setup", lambda setup: setup.cache_types[0] if setup.cache_types else ""),
    _Property("type_v", "setup", lambda setup: setup.cache_types[1] if setup.cache_types else ""),
    _Property("flash attention", "run", _flash_attn),
    _Property("n_gpu_layers", "llama.n_gpu_layers", lambda n_layers: "all" if n_layers < 0 else str(n_layers)),
    _Property("main_gpu", "llama", lambda setup: "all" if setup.main_gpu is None else str(setup.main_gpu)),
    _Property(
        "tensor_split", "llama.tensor_split", lambda split: " ".join(map(format_number, split)) or "llama.cpp's default"
    ),
    _Property("split_mode", "llama.split_mode"),
    _Property(
        "tensor overrides",
        "llama.tensor_overrides",
        lambda overrides: " ".join(f"{pattern}={to}" for pattern, to in overrides) or "none",
    ),
    _Property("threads", "setup", _threads),
    _Property(
        "threads_batch",
        "llama",
        lambda setup: "as threads" if setup.threads_batch is None else str(setup.threads_batch),
    ),
    _Property("mmap", "llama.mmap", on_off),
    _Property("mlock", "llama.mlock", on_off),
    _Property("KV offload", "llama.kv_offload", on_off),
    _Property("cache", "checkpoint.cache"),
    _Property("attention", "checkpoint.attention"),
    _Property("torch.compile", "checkpoint.torch_compile", on_off),
    _Property("full SWA cache", "llama.swa_full", on_off),
    _Property("sequences", "llama.n_seq_max"),
    _Property(
        "outputs",
        "llama",
        lambda setup: "one per sequence" if setup.n_outputs_max is None else str(setup.n_outputs_max),
    ),
    _Property(
        "memory limit",
        "setup",
        lambda setup: "none" if setup.memory_limit_bytes is None else format_bytes(setup.memory_limit_bytes),
    ),
)

_ENVIRONMENT = (
    _Property("ggbench", "environment.ggbench"),
    _Property("llama.cpp", "environment", lambda environment: _version(environment, environment.llama_cpp)),
    _Property("Transformers", "environment", lambda environment: _version(environment, environment.transformers)),
    _Property("llama-cpp-python", "environment.llama_cpp_python"),
    _Property("Python", "environment.python"),
    _Property("system", "environment.os"),
    _Property("processor", "environment.cpu"),
    _Property("cores", "environment.n_cores"),
    _Property("RAM", "environment.ram_bytes", format_bytes),
    _Property(
        "GPUs",
        "environment.gpus",
        lambda gpus: " + ".join(f"{gpu.name} {format_bytes(gpu.total_bytes)}" for gpu in gpus) or "none",
    ),
    _Property("GPU driver", "environment.gpus", lambda gpus: " + ".join(sorted({gpu.driver or "" for gpu in gpus}))),
)


_BANDWIDTH = (_Property("bandwidth of the limits", "limit.bandwidth_bytes_per_s", format_bandwidth),)


def _differing(properties: Sequence[_Property], summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """A line for each property that is not the same in all: `threads: 2 in a and c, 4 in b`."""
    shared = [one for one in properties if not one.is_foreign_to(summaries)]
    lines = (_difference(one.name, [one.text(summary) for summary in summaries]) for one in shared)
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
    return tuple(
        line for line in (*_differing(_ENVIRONMENT, summaries), build, *_differing(_BANDWIDTH, summaries)) if line
    )


def _build_parts(environment: Environment | None) -> frozenset[str]:
    text = "" if environment is None else environment.system_info
    return frozenset(part.strip() for part in text.replace(" : ", " | ").split("|") if part.strip())


def caveats(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Return runs that did not complete or were not steady, then numbers of different things."""
    return (*_reliability(summaries), *_different_things(summaries))


def vary(value: Callable[[QuantSummary], object], summaries: Sequence[QuantSummary]) -> bool:
    """Return whether what is known of a value is not the same for all."""
    return len({value(summary) for summary in summaries} - {None}) > 1


def _reliability(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Runs that did not complete, or whose machine was not steady."""
    lines = []
    for index, summary in enumerate(summaries):
        if summary.outcome is not Outcome.COMPLETED:
            reason = plain(summary.run.reason)
            lines.append(f"{letter(index)} did not complete: {reason or summary.outcome.text}")
        elif summary.unsteady:
            lines.append(f"{letter(index)} was not steady: {plain(summary.unsteady)}")
    return tuple(lines)


def _different_things(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Numbers that do not measure the same thing."""
    lines = []
    if any(_are_other_models(*pair) for pair in combinations([summary.subject for summary in summaries], 2)):
        lines.append("different models: less memory or a lower B may only mean a smaller model")
    if vary(decoded_lengths, summaries):
        lines.append("different lengths: p50, p99 and tok/s are over different positions")
    texts = [text for text in map(scored_text, summaries) if text]
    if other := [what for what in (texts or [{}])[0] if len({text[what] for text in texts}) > 1]:
        lines.append(f"different {in_words(other)}: perplexities do not compare, nor does what follows from them")
    elif vary(scored_base, summaries):
        lines.append("different bases: KLD and same top tokens do not compare")
    if vary(lambda summary: summary.memory.n_ctx, summaries):
        lines.append("different n_ctx: memory counts KV caches of different lengths")
    return tuple(lines)


def _are_other_models(one: Subject, other: Subject) -> bool:
    """By architecture and shape, or where no header says them, by name."""
    differ = one.has_other_shape(other)
    return model_name(one) != model_name(other) if differ is None else differ
