"""Options that several commands share, and the records that a command gets them as.

Those of loading have llama.cpp's names and are the fields of LlamaSetup.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from ggbench.cli.output import Output
from ggbench.errors import UsageError
from ggbench.records.setup import LlamaSetup

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.records.speed import Bandwidth

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Decorator(Protocol):
    def __call__(self, function: _Function, /) -> _Function: ...


@dataclass(frozen=True, slots=True)
class HubOptions:
    """What a command may do with the network."""

    offline: bool = False
    yes: bool = False
    """Download without asking, whatever the size."""
    no_download: bool = False
    """Download no model; headers may be downloaded."""

    def access(self) -> HubAccess:
        """The Hub as the environment variables and these options say."""
        from ggbench.hub.access import HubAccess

        return HubAccess.from_environment(offline=self.offline)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked of a command that measures, beside the command's own options."""

    model: str
    quants: tuple[str, ...]
    setup: LlamaSetup
    hub: HubOptions
    output: Output
    timeout_s: float | None = None
    """Longest time that the worker may be silent; None takes the experiment's default."""
    bandwidth: Bandwidth | None = None
    """The person's own figure."""


TOKENS = click.IntRange(1, (1 << 31) - 1)
"""What llama.cpp's 32-bit counts hold."""

THREADS = click.IntRange(1, 512)
"""GGML_MAX_N_THREADS of ggml.h."""

PATH = click.Path(path_type=Path)

_KV_TYPES = click.Choice(["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"], case_sensitive=False)
"""Those that llama.cpp's own tools take for a cache."""
_FLASH_ATTN = click.Choice(["auto", "on", "off"])
_SPLIT_MODES = click.Choice(["none", "layer", "row", "tensor"])


def _parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    from ggbench.units import parse_size

    return None if text is None else parse_size(text)


def _parse_bandwidth(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Bandwidth | None:
    from ggbench.records.speed import Bandwidth
    from ggbench.units import parse_bandwidth

    return None if text is None else Bandwidth(parse_bandwidth(text), "given")


def _as_tuple(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    return () if text is None else (text,)


def _parse_shares(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{text!r} is not a split", "write a share for each GPU, e.g. 3,1") from None
    if any(not 0 <= share < float("inf") for share in shares) or (shares and sum(shares) == 0):
        raise UsageError(f"{text!r} is not a split", "shares are zero or more, and one has to be above zero")
    return shares


def _parse_overrides(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Parse `PATTERN=BUFFER_TYPE` separated by commas, in the order given."""
    overrides = tuple(part.strip() for text in texts for part in text.split(","))
    for override in overrides:
        pattern, _, buffer_type = override.rpartition("=")
        if not pattern or not buffer_type:
            raise UsageError(
                f"{override!r} is not a tensor override", r"write PATTERN=BUFFER_TYPE, e.g. '\.ffn_.*_exps\.=CPU'"
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(
                f"{pattern!r} is not a regular expression: {error}", "escape what is meant literally, e.g. \\."
            ) from None
    return overrides


def option(flags: str, text: str, type: Any = None, **more: Any) -> _Decorator:  # noqa: ANN401 - click's own
    """An option as click has it; `flags` are separated by spaces, and a name for its value may follow them."""
    return click.option(*flags.split(), type=type, help=text, **more)


_KV_OPTIONS = (
    option("-ctk --type-k", "Type of the K cache.", _KV_TYPES, metavar="TYPE", default="f16"),
    option("-ctv --type-v", "Type of the V cache.", _KV_TYPES, metavar="TYPE", default="f16"),
)
_KV_LIST_OPTIONS = (
    option("-ctk --type-k", "Types of the K cache, e.g. f16,q8_0.", metavar="TYPES", default="f16"),
    option("-ctv --type-v", "Types of the V cache, as many or one.", metavar="TYPES", default="f16"),
)
_LOAD_OPTIONS = (
    option("-c --n-ctx", "Context in tokens. Default: what the command needs.", TOKENS),
    option("-b --n-batch", "Logical batch.", TOKENS, default=2048),
    option("-ub --n-ubatch", "Physical batch.", TOKENS, default=512),
    option(
        "-fa --flash-attn", "Flash attention; it decides the size of the compute buffer.", _FLASH_ATTN, default="auto"
    ),
    option("-ngl --n-gpu-layers", "Layers on the GPU. Default: all.", int),
    option("-mg --main-gpu", "The one GPU to use. Default: all of them.", click.IntRange(0)),
    option("-ts --tensor-split", "Share of each GPU, e.g. 3,1. Default: llama.cpp's choice.", callback=_parse_shares),
    option("-sm --split-mode", "How several GPUs share the model.", _SPLIT_MODES, default="layer"),
    option("-cmoe --cpu-moe", "Keep the expert weights of all layers in main memory.", is_flag=True),
    option(
        "-ncmoe --n-cpu-moe",
        "Keep the expert weights of the first N layers in main memory.",
        click.IntRange(0),
        metavar="N",
    ),
    option(
        "-ot --override-tensor",
        "Put the tensors whose names match a regular expression into a buffer type, e.g. '\\.ffn_up=CPU'.",
        callback=_parse_overrides,
        multiple=True,
        metavar="PATTERN=BUFFER_TYPE,...",
    ),
    option("-t --threads", "CPU threads. Default: one for each physical core.", THREADS),
    option("-tb --threads-batch", "CPU threads for prompts and batches. Default: as --threads.", THREADS),
    option("--no-mmap", "Read the file into memory instead of mapping it.", is_flag=True),
    option("--mlock", "Lock the model in main memory, so that it is never swapped out.", is_flag=True),
    option("-nkvo --no-kv-offload", "Keep the KV cache in main memory.", is_flag=True),
    option("--swa-full", "Keep the whole context in the caches of sliding-window layers.", is_flag=True),
    option(
        "--memory-limit memory_limit_bytes",
        "Emulate a machine with this much memory, e.g. 24GiB.",
        callback=_parse_size,
        metavar="SIZE",
    ),
)
_SWITCHED_OFF = {"mmap": "no_mmap", "kv_offload": "no_kv_offload"}
"""Fields that are on by default, by the option that switches each off."""
_OFFLINE = option("--offline", "Do not use the network; HF_HUB_OFFLINE=1 does the same.", is_flag=True)
_DOWNLOAD_OPTIONS = (
    option(
        "--yes",
        "Download without asking. Default: up to 1 GB proceeds with a notice; more asks in a terminal, and is"
        " refused elsewhere.",
        is_flag=True,
    ),
    option("--no-download", "Download no model; twins are still made.", is_flag=True),
    _OFFLINE,
)
_OUTPUT_OPTIONS = (
    option("--json as_json", "One JSON document on stdout.", is_flag=True),
    option("-q --quiet", "No progress and no notices on stderr.", is_flag=True),
)
_BANDWIDTH = option(
    "--bandwidth",
    "Memory bandwidth for the limit, e.g. 1008GB/s. Default: measured.",
    callback=_parse_bandwidth,
    metavar="RATE",
)

n_gen_option = option("-n --n-gen", "Tokens to decode.", TOKENS, default=10_000)
repeat_option = option("-r --repeat", "Repetitions, fitted together.", click.IntRange(1), default=1)
samples_option = option("--samples", "With --json: every position and its step_ns and sample_ns.", is_flag=True)
plot_option = option("--plot", "Plot the latency in the terminal.", is_flag=True)
against_option = option("--against", "Show the nearest published figures under your own.", click.Choice(["published"]))


def timeout_option(default: str) -> _Decorator:
    """`--timeout`, whose help names the default."""
    text = f"Stop the worker after SECONDS without output. Default: {default}."
    return option("--timeout timeout_s", text, click.FloatRange(min=0, min_open=True), metavar="SECONDS")


def _as_record(name: str, make: Callable[..., object], names: Collection[str], *options: _Decorator) -> _Decorator:
    """Return a decorator that adds options, and hands the command those of these names as one record."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def with_record(**kwargs: Any) -> object:  # noqa: ANN401 - the options' own types
            given = {field: kwargs.pop(field) for field in names if field in kwargs}
            return function(**kwargs, **{name: make(**given)})

        for each in reversed(options):
            each(with_record)
        return with_record  # type: ignore[return-value]

    return decorate


def _setup(**given: Any) -> LlamaSetup:  # noqa: ANN401 - the fields' own types
    given |= {name: not given.pop(switch) for name, switch in _SWITCHED_OFF.items()}
    return LlamaSetup(**{name: value for name, value in given.items() if value is not None})


def _names(record: type[Any]) -> list[str]:
    return [field.name for field in fields(record)]


def _kv_pairs(type_k: str, type_v: str) -> tuple[tuple[str, str], ...]:
    """Pairs of types of K and V; one type goes with each of several. Raises UsageError."""
    lists = [[part.strip().lower() for part in text.split(",")] for text in (type_k, type_v)]
    for name in (*lists[0], *lists[1]):
        if name not in _KV_TYPES.choices:
            raise UsageError(f"{name!r} is no type of a KV cache", f"known are {', '.join(_KV_TYPES.choices)}")
    longest = max(map(len, lists))
    if any(len(each) not in (1, longest) for each in lists):
        raise UsageError(
            f"{len(lists[0])} types of the K cache and {len(lists[1])} of the V cache do not pair up",
            "give as many of each, or one",
        )
    pairs = zip(*(each * longest if len(each) == 1 else each for each in lists), strict=True)
    return tuple(dict.fromkeys((k, v) for k, v in pairs))


_LOADED = [*_names(LlamaSetup), *_SWITCHED_OFF.values()]

load_options = _as_record("setup", _setup, _LOADED, *_KV_OPTIONS, *_LOAD_OPTIONS)
"""Add the options of how llama.cpp loads a model; the command gets them as `setup`, a LlamaSetup."""


def _kv_list_options(function: _Function) -> _Function:
    pairs = _as_record("kv_types", _kv_pairs, ("type_k", "type_v"), *_KV_LIST_OPTIONS)
    return pairs(_as_record("setup", _setup, _LOADED, *_LOAD_OPTIONS)(function))


offline_option = _as_record("hub", HubOptions, _names(HubOptions), _OFFLINE)
"""Add `--offline`; the command gets `hub`, a HubOptions."""
output_options = _as_record("output", Output, _names(Output), *_OUTPUT_OPTIONS)
"""Add `--json` and `--quiet`; the command gets `output`, an Output."""
_download_options = _as_record("hub", HubOptions, _names(HubOptions), *_DOWNLOAD_OPTIONS)


def measuring_options(*, many: bool = False, has_own_timeout: bool = False, kv_lists: bool = False) -> _Decorator:
    """Add MODEL, a QUANT or `many`, and the options of a run; the command gets them as `asked`, an Asked.

    With `kv_lists` the types of the KV cache may be lists, and the command gets their pairs as `kv_types`.
    """

    def decorate(function: _Function) -> _Function:
        function = output_options(_as_record("asked", Asked, _names(Asked))(function))
        if not has_own_timeout:
            function = _BANDWIDTH(timeout_option("600")(function))
        function = (_kv_list_options if kv_lists else load_options)(_download_options(function))
        if many:
            function = click.argument("quants", nargs=-1)(function)
        else:
            function = click.argument("quants", metavar="[QUANT]", required=False, callback=_as_tuple)(function)
        return click.argument("model")(function)

    return decorate
