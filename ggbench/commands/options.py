"""Options that several commands share, and the records that a command gets them as.

Those of loading have llama.cpp's names and are the fields of LlamaConfig.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, get_type_hints

import click
import msgspec

from ggbench.commands import transformers_options
from ggbench.commands.documented import GroupedOption, OptionGroup
from ggbench.commands.output import Output
from ggbench.commands.placements import parse_overrides, parse_servers, parse_shares
from ggbench.engines.llama.config import KV_TYPES, MAX_THREADS, LlamaConfig
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.errors import UsageError
from ggbench.runs import options
from ggbench.runs.options import Kind
from ggbench.units import format_count, parse_tokens

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef
    from ggbench.models.served_models import ServerOptions
    from ggbench.stats.decode_timing import Bandwidth

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Decorator(Protocol):
    def __call__(self, function: _Function, /) -> _Function: ...


class HubOptions(msgspec.Struct, frozen=True):
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


class Asked(msgspec.Struct, frozen=True):
    """What a person asked of a command that measures, beside the command's own options."""

    model: ModelRef
    setup: LlamaConfig
    hub: HubOptions
    output: Output
    timeout_s: float | None = None
    """Longest time that the worker may be silent; None takes the experiment's default."""
    bandwidth: Bandwidth | None = None
    """The person's own figure."""
    tuned: bool = False
    """Whether to measure with the settings that a search found."""
    server: ServerOptions | None = None
    """How a server is asked; None of a command that measures files only."""
    checkpoint: TransformersConfig | None = None
    """How Transformers loads a checkpoint, beside what `setup` says for every engine; None of a command that measures
    none."""


class Text(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Text that a kind of option reads; numbers of tokens with a k or an m are echoed in full on stderr."""

    def __init__(self, kind: Kind, name: str = "text") -> None:
        self.name, self._kind = name, kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the value. Raises UsageError, naming the option."""
        if not isinstance(value, str):
            return value
        try:
            found = self._kind.read(value)
        except UsageError as error:
            option = f"{max(param.opts, key=lambda each: each.startswith('--'))}: " if param else ""
            raise UsageError(f"{option}{error.message}", error.hint) from None
        if ctx is not None and self._kind.counts_tokens:
            for part in map(str.strip, value.split(",")):
                if part[-1:].isalpha():
                    echo = f"{part} = {format_count(parse_tokens(part, least=0))} tokens"
                    ctx.meta.setdefault(_ECHOES, []).append(echo)
        return found


_ECHOES = "ggbench.echoes"
TOKENS = Text(options.TOKENS, "tokens")
TOKEN_LIST = Text(options.TOKEN_LIST)

THREADS = click.IntRange(1, MAX_THREADS)

PATH = click.Path(path_type=Path)

_KV_TYPES = click.Choice(KV_TYPES, case_sensitive=False)
_FLASH_ATTN = click.Choice(["auto", "on", "off"])
_SPLIT_MODES = click.Choice(["none", "layer", "row", "tensor"])


def _parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    from ggbench.units import parse_size

    return None if text is None else parse_size(text)


def _parse_bandwidth(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Bandwidth | None:
    from ggbench.stats.decode_timing import Bandwidth
    from ggbench.units import parse_bandwidth

    return None if text is None else Bandwidth(parse_bandwidth(text), "given")


def _as_tuple(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    return () if text is None else (text,)


def option(flags: str, text: str, type: Any = None, **more: Any) -> _Decorator:  # noqa: ANN401 - click's own
    """An option as click has it; `flags` are separated by spaces, and a name for its value may follow them.

    `group` is the heading that it has in `--help`.
    """
    return click.option(*flags.split(), type=type, help=text, cls=GroupedOption, **more)


model_option = functools.partial(option, group=OptionGroup.MODEL)
memory_option = functools.partial(option, group=OptionGroup.MEMORY)
source_option = functools.partial(option, group=OptionGroup.SOURCE)
output_option = functools.partial(option, group=OptionGroup.OUTPUT)


_KV_OPTIONS = (
    model_option("-ctk --type-k", "Data type of the K cache, e.g. q8_0.", _KV_TYPES, metavar="TYPE", default="f16"),
    model_option(
        "-ctv --type-v",
        "Data type of the V cache; a quantized one needs flash attention.",
        _KV_TYPES,
        metavar="TYPE",
        default="f16",
    ),
)
_N_CTX = model_option(
    "-c --n-ctx", "Context length, e.g. 16k or 16,384. Default: as long as the command needs.", TOKENS
)
_REFUSED_N_CTX = model_option("-c --n-ctx", "", TOKENS, hidden=True)
_LOAD_OPTIONS = (
    model_option("-b --n-batch", "Logical batch size: tokens passed to llama.cpp at once.", TOKENS, default=2048),
    model_option("-ub --n-ubatch", "Physical batch size: tokens computed at once.", TOKENS, default=512),
    model_option(
        "-fa --flash-attn", "Use flash attention, which shrinks the compute buffer.", _FLASH_ATTN, default="auto"
    ),
    memory_option("-ngl --n-gpu-layers", "Number of layers to put on the GPU. Default: all.", int, metavar="N"),
    memory_option(
        "-mg --main-gpu", "Use only the GPU with this index. Default: all GPUs.", click.IntRange(0), metavar="INDEX"
    ),
    memory_option(
        "-ts --tensor-split",
        "Proportion of the model for each GPU or RPC device, e.g. 3,1. Default: llama.cpp's choice.",
        callback=parse_shares,
        metavar="N,N,...",
    ),
    memory_option(
        "--rpc rpc_servers",
        "Use the devices of these RPC servers too, e.g. 192.168.1.7:50052; see ggbench cluster.",
        callback=parse_servers,
        metavar="HOST:PORT,...",
    ),
    memory_option("-sm --split-mode", "How to split the model across several GPUs.", _SPLIT_MODES, default="layer"),
    memory_option("-cmoe --cpu-moe", "Keep the expert weights of all layers in main memory.", is_flag=True),
    memory_option(
        "-ncmoe --n-cpu-moe",
        "Keep the expert weights of the first N layers in main memory.",
        click.IntRange(0),
        metavar="N",
    ),
    memory_option(
        "-ot --override-tensor",
        "Place tensors whose names match a regular expression in a buffer type, e.g. '\\.ffn_up=CPU'.",
        callback=parse_overrides,
        multiple=True,
        metavar="PATTERN=BUFFER_TYPE,...",
    ),
    model_option("-t --threads", "CPU threads for decoding. Default: one per physical core.", THREADS, metavar="N"),
    model_option(
        "-tb --threads-batch", "CPU threads for prompts and batches. Default: as --threads.", THREADS, metavar="N"
    ),
    memory_option("--no-mmap", "Read the file into memory instead of mapping it.", is_flag=True),
    memory_option("--mlock", "Lock the model in main memory, to prevent swapping.", is_flag=True),
    memory_option("-nkvo --no-kv-offload", "Keep the KV cache in main memory, not on the GPU.", is_flag=True),
    model_option("--swa-full", "Keep the whole context in the caches of sliding-window layers.", is_flag=True),
    memory_option(
        "--memory-limit memory_limit_bytes",
        "Emulate a machine with this much memory, e.g. 24GiB.",
        callback=_parse_size,
        metavar="SIZE",
    ),
)
_SWITCHED_OFF = {"mmap": "no_mmap", "kv_offload": "no_kv_offload"}
"""Fields that are on by default, by the option that switches each off."""
_OFFLINE = source_option("--offline", "Do not use the network; HF_HUB_OFFLINE=1 does the same.", is_flag=True)
_DOWNLOAD_OPTIONS = (
    source_option(
        "--yes",
        "Download without asking. By default, more than 1 GB is downloaded only after a question in a terminal.",
        is_flag=True,
    ),
    source_option("--no-download", "Never download a model; twins are still made.", is_flag=True),
    _OFFLINE,
)
_OUTPUT_OPTIONS = (
    output_option("--json as_json", "Print one JSON document to stdout.", is_flag=True),
    output_option("-q --quiet", "Print no progress and no notices.", is_flag=True),
)
_SERVER_OPTIONS = (
    source_option(
        "--api-key-env",
        "Environment variable that holds the API key of a server; the key itself is never stored or printed.",
        metavar="NAME",
        default="",
        show_default=False,
    ),
    source_option(
        "--clock",
        "Clock that times a server's tokens: its own, or the client's as they arrive. Default: its own if it has one.",
        click.Choice(["auto", "server", "client"]),
        default="auto",
        metavar="server|client",
    ),
)
_BANDWIDTH = memory_option(
    "--bandwidth",
    "Memory bandwidth that the limit is computed from, e.g. 1008GB/s. Default: measured.",
    callback=_parse_bandwidth,
    metavar="RATE",
)

no_measure_option = option("--no-measure", "Measure nothing: neither a model nor the memory's bandwidth.", is_flag=True)
samples_option = output_option("--samples", "With --json, include the time of every token.", is_flag=True)
projector_option = memory_option(
    "--mmproj", "Leave room for this projector (mmproj GGUF), loaded beside the model.", PATH, metavar="FILE"
)
plot_option = output_option("--plot", "Plot latency against position in the terminal.", is_flag=True)
against_option = output_option(
    "--against", "Show the nearest published figures below your own.", click.Choice(["published"])
)


def timeout_option(default: str) -> _Decorator:
    """`--timeout`, whose help names the default."""
    text = f"Stop the worker or a server's request after SECONDS without output. Default: {default}."
    return option("--timeout timeout_s", text, click.FloatRange(min=0, min_open=True), metavar="SECONDS")


def as_record(name: str, make: Callable[..., object], names: Collection[str], *options: _Decorator) -> _Decorator:
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


def field_option(settings: type[Any], field: str) -> _Decorator:
    """Return the option of a field of settings; the command gets None where it is not given and has no default."""
    each, default = options.options_of(settings)[field], _default_of(settings, field)
    flags = f"{each.flags} {field}"
    if each.kind is options.FLAG:
        return option(flags, each.help, is_flag=True, default=default)
    kind: object = Text(each.kind, "tokens" if each.kind is options.TOKENS else "text")
    if each.kind is options.COUNT:
        kind = click.IntRange(1)
    elif each.kind is options.CHOICE:
        kind = click.Choice(get_args(get_type_hints(settings)[field]))
    text = each.shown if each.shown is not None else each.kind.write(default) if default not in (None, ()) else ""
    return option(flags, each.help, kind, metavar=each.kind.metavar, default=text or None)


def settings_options(settings: type[Any], *, but: Collection[str] = ()) -> _Decorator:
    """Add the options of a type of settings; the command gets them as `settings`, a record of it."""
    names = [name for name in options.options_of(settings) if name not in but]

    def make(**given: Any) -> object:  # noqa: ANN401 - the fields' own types
        return settings(**{name: value for name, value in given.items() if value is not None})

    return as_record("settings", make, names, *(field_option(settings, name) for name in names))


def _default_of(settings: type[Any], field: str) -> object:
    return next(each.default for each in msgspec.structs.fields(settings) if each.name == field)


def _output(**given: bool) -> Output:
    output = Output(**given)
    output.notice(*click.get_current_context().meta.pop(_ECHOES, ()))
    return output


def _setup(**given: Any) -> LlamaConfig:  # noqa: ANN401 - the fields' own types
    given |= {name: not given.pop(switch) for name, switch in _SWITCHED_OFF.items()}
    return LlamaConfig(**{name: value for name, value in given.items() if value is not None})


_LOADED = [*LlamaConfig.__struct_fields__, *_SWITCHED_OFF.values()]

load_options = as_record("setup", _setup, _LOADED, *_KV_OPTIONS, _N_CTX, *_LOAD_OPTIONS)
"""Add the options of how llama.cpp loads a model; the command gets them as `setup`, a LlamaConfig."""
load_options_but_kv_types = as_record("setup", _setup, _LOADED, _N_CTX, *_LOAD_OPTIONS)
"""The same without the types of the KV cache, for a command that takes several."""
load_options_but_cache = as_record("setup", _setup, _LOADED, *_LOAD_OPTIONS)
"""The same without n_ctx too, for a command that chooses the whole cache."""
load_options_of_cases = as_record("setup", _setup, _LOADED, *_KV_OPTIONS, _REFUSED_N_CTX, *_LOAD_OPTIONS)
"""The same for a command that chooses every n_ctx itself: its help has none, and a given one is refused."""
offline_option = as_record("hub", HubOptions, HubOptions.__struct_fields__, _OFFLINE)
"""Add `--offline`; the command gets `hub`, a HubOptions."""
output_options = as_record("output", _output, Output.__struct_fields__, *_OUTPUT_OPTIONS)
"""Add `--json` and `--quiet`; the command gets `output`, an Output."""
_download_options = as_record("hub", HubOptions, HubOptions.__struct_fields__, *_DOWNLOAD_OPTIONS)


def _server(**given: Any) -> ServerOptions:  # noqa: ANN401 - the fields' own types
    from ggbench.models.served_models import ServerOptions

    return ServerOptions(**given)


_checkpoint_options = as_record(
    "checkpoint", TransformersConfig, transformers_options.NAMES, *transformers_options.OPTIONS
)
_server_options = as_record("server", _server, ["api_key_env", "clock"], *_SERVER_OPTIONS)


def _parsed(model: str, quants: tuple[str, ...]) -> ModelRef:
    from ggbench.models.reference import parse_model

    return parse_model(model, *quants)


def _asked(model: str, quants: tuple[str, ...], **given: Any) -> Asked:  # noqa: ANN401 - the fields' own types
    return Asked(_parsed(model, quants), **given)


model_arguments = as_record(
    "ref", _parsed, ("model", "quants"), click.argument("model"), click.argument("quants", nargs=-1)
)
"""Add MODEL and QUANTs; the command gets them as `ref`, a ModelRef."""


def measuring_options(
    *,
    many: bool = False,
    has_own_timeout: bool = False,
    load: _Decorator = load_options,
    timeout: str = "600",
    servers: bool = False,
    checkpoints: bool = False,
) -> _Decorator:
    """Add MODEL, a QUANT or `many`, and the options of a run; the command gets them as `asked`, an Asked.

    `timeout` names the default of `--timeout`; `servers` and `checkpoints` say whether MODEL may be
    one.
    """

    def decorate(function: _Function) -> _Function:
        function = output_options(as_record("asked", _asked, [*Asked.__struct_fields__, "quants"])(function))
        if not has_own_timeout:
            function = _BANDWIDTH(timeout_option(timeout)(function))
        if servers:
            function = _server_options(function)
        if checkpoints:
            function = _checkpoint_options(function)
        function = load(_download_options(function))
        if many:
            function = click.argument("quants", nargs=-1)(function)
        else:
            function = click.argument("quants", metavar="[QUANT]", required=False, callback=_as_tuple)(function)
        return click.argument("model")(function)

    return decorate
