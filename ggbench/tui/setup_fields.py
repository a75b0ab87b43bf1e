"""The fields of a LlamaConfig that the TUI sets: how each is typed, shown and explained.

Parsed as the command line parses them: a limit or a length that one accepts means the same in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec
import msgspec.structs

from ggbench.engines.llama.config import KV_TYPES, MAX_THREADS, UNQUANTIZED, FlashAttn, LlamaConfig
from ggbench.errors import UsageError
from ggbench.sizing.cluster import parse_servers
from ggbench.units import exact_size, format_bytes, format_count, parse_size, parse_tokens

_OFF, _ON = "off", "on"


class SetupField(msgspec.Struct, frozen=True):
    """One field of LlamaConfig, as text in a panel."""

    name: str
    label: str
    unset: str
    """What the default does, shown while the field is empty or at its default."""
    about: str
    parse: Callable[[str], object] = str
    """Read what was typed. Raises UsageError."""
    text: Callable[[Any], str] = str
    choices: tuple[str, ...] = ()
    """All accepted texts; empty where anything that parses is accepted."""

    @property
    def default(self) -> object:
        """The value that llama.cpp's own tools take."""
        return getattr(LlamaConfig(), self.name)

    def text_of(self, setup: LlamaConfig) -> str:
        """Return the value as it would be typed; empty for the default of a field without choices."""
        value = getattr(setup, self.name)
        return "" if value == self.default and not self.choices else self.text(value)

    def value_of(self, text: str) -> object:
        """Return the value that a text means, the default for an empty one. Raises UsageError."""
        return self.parse(text) if text.strip() else self.default


def whole_number(what: str, least: int, most: int) -> Callable[[str], int]:
    """Return what reads a number of these, such as `a number of layers`, and raises UsageError for any other text."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise UsageError(f"{text.strip()!r} is not {what}", f"write {format_count(least)} to {format_count(most)}")
        return value

    return parse


_MAX_LAYERS = (1 << 31) - 1

FIELDS = (
    SetupField(
        "memory_limit_bytes", "memory limit", "all there is", "Emulate a machine with this much memory, e.g. 12GiB.",
        parse_size, exact_size,
    ),
    SetupField(
        "n_ctx", "n_ctx", "8,192; a run's need",
        "Context in tokens, e.g. 16k. In the table ←→ change it for one model.", parse_tokens,
    ),
    SetupField("type_k", "K cache type", "f16", "Type of the K cache; q8_0 halves its memory.", choices=KV_TYPES),
    SetupField(
        "type_v", "V cache type", "f16", "Type of the V cache; a quantized one needs flash attention.",
        choices=KV_TYPES,
    ),
    SetupField(
        "flash_attn", "flash attention", "auto", "It decides the compute buffer, and on a CPU the speed far out.",
        choices=get_args(FlashAttn),
    ),
    SetupField(
        "n_gpu_layers", "GPU layers, -ngl", "all", "Layers on the GPU; 0 leaves everything in main memory.",
        whole_number("a number of layers", 0, _MAX_LAYERS),
    ),
    SetupField(
        "n_cpu_moe", "--n-cpu-moe", "none", "Keep the expert weights of the first N layers in main memory.",
        whole_number("a number of layers", 0, _MAX_LAYERS),
    ),
    SetupField(
        "threads", "threads", "one a core", "CPU threads of a run; by default one for each physical core.",
        whole_number("a number of threads", 1, MAX_THREADS),
    ),
    SetupField(
        "swa_full", "--swa-full", "off", "Keep the whole context in the caches of sliding-window layers.",
        lambda text: text == _ON, lambda value: _ON if value else _OFF, (_OFF, _ON),
    ),
    SetupField(
        "rpc_servers", "RPC servers", "none",
        "Use devices of other machines, e.g. 10.0.0.7:50052; start ggbench cluster serve there.",
        parse_servers, ",".join,
    ),
)  # fmt: skip
"""Every field that can be set, in the order of the panel."""


def setup_of(texts: Mapping[str, str], base: LlamaConfig) -> LlamaConfig:
    """Return `base` with the fields that these texts mean, by name. Raises UsageError."""
    values: dict[str, Any] = {field.name: field.value_of(texts[field.name]) for field in FIELDS}
    setup = msgspec.structs.replace(base, **values)
    if setup.flash_attn == "off" and setup.type_v not in UNQUANTIZED:
        raise UsageError(
            f"a V cache of {setup.type_v} needs flash attention", "set flash attention to auto or on, or V to f16"
        )
    return setup


def describe_setup(setup: LlamaConfig) -> str:
    """Return what is not the default, `KV q8_0, limit 12.0 GiB`; empty where nothing is."""
    default = LlamaConfig()
    same = setup.type_k == setup.type_v
    parts = {
        "type_k": f"KV {setup.type_k}" if same else f"K {setup.type_k}",
        "type_v": "" if same else f"V {setup.type_v}",
        "memory_limit_bytes": f"limit {format_bytes(setup.memory_limit_bytes)}",
        "n_ctx": f"n_ctx {format_count(setup.n_ctx)}",
        "flash_attn": f"flash attention {setup.flash_attn}",
        "n_gpu_layers": f"{setup.n_gpu_layers} layers on the GPU",
        "n_cpu_moe": f"experts of {setup.n_cpu_moe} layers on the CPU",
        "threads": f"{setup.threads} threads",
        "swa_full": "full SWA cache",
        "rpc_servers": f"devices of {' and '.join(setup.rpc_servers)}",
    }
    texts = [text for name, text in parts.items() if getattr(setup, name) != getattr(default, name)]
    return ", ".join(filter(None, texts))
