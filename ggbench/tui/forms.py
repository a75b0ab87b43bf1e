"""What the dialogs ask for: fields of a settings record, each with how it is typed, shown and explained.

Parsed as the command line parses them: a limit or a length that one accepts means the same in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.needs import LITTLE_LOSS, WORKLOADS, Needs, Preference
from ggbench.engines.llama.config import KV_TYPE_LIST, KV_TYPES, MAX_THREADS, FlashAttn, LlamaConfig, parse_servers
from ggbench.errors import UsageError
from ggbench.experiments.quality.record import N_CTX
from ggbench.experiments.speed.record import INPUTS, N_GEN, SpeedSettings
from ggbench.experiments.tune.record import DEPTHS, Objective, TuneSettings
from ggbench.fields import BATCH_SIZES, DEPTH_LIST, DURATION, TOKEN_LIST, FieldKind
from ggbench.text import sanitize
from ggbench.tui.run_requests import LARGEST, NO_BASE, QualityAsked
from ggbench.units import exact_size, format_bytes, format_count, parse_size, parse_tokens

Record = TypeVar("Record", bound=msgspec.Struct)


class FormField(msgspec.Struct, frozen=True):
    """One line of a dialog."""

    name: str
    """Of the record's field; empty for a line that only shows its choice."""
    label: str
    unset: str
    """What the default does, or what else may be typed."""
    parse: Callable[[str], object] = str
    """Read what was typed. Raises UsageError."""
    text: Callable[[Any], str] = str
    choices: Mapping[str, object] = {}
    """All accepted texts with what they mean; empty where anything that parses is accepted."""
    about: str = ""
    """Shown while the field has the focus, in place of what the form says."""

    def text_of(self, record: object, default: object) -> str:
        """Return the value as it would be typed; empty for the default of a field without choices."""
        value = getattr(record, self.name)
        if self.choices:
            return next((text for text, each in self.choices.items() if each == value), next(iter(self.choices)))
        return "" if value == getattr(default, self.name) else self.text(value)

    def value_of(self, text: str, default: object) -> object:
        """Return the value that a text means, the default's for an empty one. Raises UsageError."""
        if self.choices:
            return self.choices[text]
        return self.parse(text.strip()) if text.strip() else getattr(default, self.name)


class Form(msgspec.Struct, Generic[Record], frozen=True):
    """A record to fill in."""

    title: str
    about: str
    fields: tuple[FormField, ...]
    default: Record
    check: Callable[[Record], None] = lambda _record: None
    """Raise UsageError for values that do not go together."""
    hint: str = "enter starts · esc closes"
    marks_changes: bool = False
    """Whether lines that are not default are marked."""

    def filled(self, record: Record, values: Mapping[str, object]) -> Record:
        """Return the record with these values by name of field. Raises UsageError."""
        made: Record = replace(record, **values)
        self.check(made)
        return made


def _same(names: Sequence[str]) -> Mapping[str, object]:
    return {name: name for name in names}


def _joined(values: Sequence[object]) -> str:
    return ",".join(map(str, values))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number", "write e.g. 15 or 0.05") from None


def _whole(what: str, least: int, most: int) -> Callable[[str], int]:
    """Return what reads a number of these, such as `a number of layers`, and raises UsageError for any other text."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise UsageError(f"{text!r} is not {what}", f"write {format_count(least)} to {format_count(most)}")
        return value

    return parse


def _chunk(text: str) -> int:
    if (n_ctx := parse_tokens(text)) < 4:
        raise UsageError(f"a chunk of {n_ctx} tokens is too short to score", "write 4 or more")
    return n_ctx


def _ways(kind: FieldKind) -> tuple[Callable[[str], object], Callable[[Any], str]]:
    """How a field of settings is read and written on the command line too."""
    return kind.read, kind.write


_LAYERS = _whole("a number of layers", 0, (1 << 31) - 1)

# fmt: off
OPTIONS = Form(
    "Options of plans and runs", "", (
        FormField("memory_limit_bytes", "memory limit", "all there is", parse_size, exact_size,
              about="Emulate a machine with this much memory, e.g. 12GiB."),
        FormField("n_ctx", "n_ctx", "8,192; a run's need", parse_tokens,
              about="Context in tokens, e.g. 16k. In the table ←→ change it for one model."),
        FormField("type_k", "K cache type", "f16", choices=_same(KV_TYPES),
              about="Type of the K cache; q8_0 halves its memory."),
        FormField("type_v", "V cache type", "f16", choices=_same(KV_TYPES),
              about="Type of the V cache; a quantized one needs flash attention."),
        FormField("flash_attn", "flash attention", "auto", choices=_same(get_args(FlashAttn)),
              about="It decides the compute buffer, and on a CPU the speed far out."),
        FormField("n_gpu_layers", "GPU layers, -ngl", "all", _LAYERS,
              about="Layers on the GPU; 0 leaves everything in main memory."),
        FormField("n_cpu_moe", "--n-cpu-moe", "none", _LAYERS,
              about="Keep the expert weights of the first N layers in main memory."),
        FormField("threads", "threads", "one a core", _whole("a number of threads", 1, MAX_THREADS),
              about="CPU threads of a run; by default one for each physical core."),
        FormField("swa_full", "--swa-full", "off", choices={"off": False, "on": True},
              about="Keep the whole context in the caches of sliding-window layers."),
        FormField("rpc_servers", "RPC servers", "none", parse_servers, _joined,
              about="Use devices of other machines, e.g. 10.0.0.7:50052; start ggbench cluster serve there."),
    ),
    LlamaConfig(), LlamaConfig.check, "enter applies · ctrl+r all defaults · esc closes", marks_changes=True,
)
"""How models are loaded, in plans and in runs."""

SPEED = Form(
    "Speed by input length and batch",
    "Each case reads a prompt for every sequence and generates tokens for all at once. The cheap cases run first; "
    "one that would not end in time is forecast and skipped, one that does not fit has its reason.", (
        FormField("inputs", "input lengths", f"as published: 1 to {format_count(INPUTS[-1])}", *_ways(TOKEN_LIST)),
        FormField("n_gen", "tokens generated", format_count(N_GEN), parse_tokens),
        FormField("batches", "batch sizes", "1; or 1,8,32", *_ways(BATCH_SIZES)),
        FormField("within_s", "time limit", "10m for each quant", *_ways(DURATION)),
    ),
    SpeedSettings(),
)

TUNE = Form(
    "Tune the settings",
    "Races threads, flash attention and other settings against the options as they are now, and measures the gain "
    "of the best. Often nothing beats the defaults. a takes over what was found.", (
        FormField("objective", "faster", "decode, prompts or both", choices=_same(get_args(Objective))),
        FormField("depths", "depths", f"{' and '.join(map(format_count, DEPTHS))} tokens; or 0,32k",
              *_ways(DEPTH_LIST)),
        FormField("within_s", "time limit", "10m for each quant", *_ways(DURATION)),
        FormField("kv_types", "KV types to try", "none, as they cost quality; or q8_0", *_ways(KV_TYPE_LIST)),
    ),
    TuneSettings(),
)

PICK = Form(
    "Pick",
    "chat: 512 tokens in, 300 out after 4k. agent: 16k in, 800 out after 48k. documents: 30k in, 500 out. longest: "
    "all the context that is answered at 15 tok/s. Nothing is measured or downloaded but headers.", (
        FormField("workload", "for", "← → changes what a turn is", choices=WORKLOADS),
        FormField("given_n_ctx", "context", "what the workload needs", parse_tokens),
        FormField("given_tok_s", "least speed", "any; tok/s of the answer", _number, "{:g}".format),
        FormField("max_loss", "most loss", f"any; {LITTLE_LOSS:g} nats is little", _number, "{:g}".format),
        FormField("given_prefer", "prefer", "← → what decides",
              choices={"by workload": None, **_same(get_args(Preference))}),
    ),
    Needs(),
)
# fmt: on


def quality_form(bases: Sequence[str], config: LlamaConfig) -> Form[QualityAsked]:
    """Return what a quality run asks for; `bases` are the quants to compare with, the largest first."""
    largest = f"the largest here is {sanitize(bases[0])}" if bases else "the largest here"
    cache = "/".join(dict.fromkeys((config.type_k, config.type_v)))
    return Form(
        "Quality",
        "Scores the second half of each chunk of a text file, of wikitext-2 or of Python's manual. What is scored is "
        "kept when you skip (s) or cancel (c) the run; the same run started again goes on there.",
        (
            FormField("base", "compared with", largest, choices=_same((LARGEST, *bases, NO_BASE))),
            FormField("text", "text", "Python's manual; wikitext-2"),
            FormField("n_chunks", "chunks", "the whole text", _whole("a number of chunks", 1, 1_000_000)),
            FormField("within_s", "time limit", "none; or 10m for each quant", *_ways(DURATION)),
            FormField("n_ctx", "tokens a chunk", f"{N_CTX}, as llama-perplexity", _chunk),
            FormField("", "KV cache", "by options (o); base: f16", choices={cache: None}),
        ),
        QualityAsked(),
    )


def describe_config(config: LlamaConfig) -> str:
    """Return what is not the default, `KV q8_0, limit 12.0 GiB`; empty where nothing is."""
    default = LlamaConfig()
    same = config.type_k == config.type_v
    parts = {
        "type_k": f"KV {config.type_k}" if same else f"K {config.type_k}",
        "type_v": "" if same else f"V {config.type_v}",
        "memory_limit_bytes": f"limit {format_bytes(config.memory_limit_bytes)}",
        "n_ctx": f"n_ctx {format_count(config.n_ctx)}",
        "flash_attn": f"flash attention {config.flash_attn}",
        "n_gpu_layers": f"{config.n_gpu_layers} layers on the GPU",
        "n_cpu_moe": f"experts of {config.n_cpu_moe} layers on the CPU",
        "threads": f"{config.threads} threads",
        "swa_full": "full SWA cache",
        "rpc_servers": f"devices of {' and '.join(config.rpc_servers)}",
    }
    texts = [text for name, text in parts.items() if getattr(config, name) != getattr(default, name)]
    return ", ".join(filter(None, texts))
