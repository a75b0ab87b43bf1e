"""Options shared by several commands, and the records in which a command receives them.

`ggbench.fields` explains how an option is made from a record's field.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec
from click.shell_completion import CompletionItem

from ggbench import fields
from ggbench.commands.documented import GroupedOption, OptionGroup
from ggbench.commands.output import Output
from ggbench.engines.contract import EngineConfig, config_type
from ggbench.engines.llama.config import MAX_THREADS, LlamaConfig
from ggbench.engines.server.config import EndpointConfig
from ggbench.errors import UsageError
from ggbench.fields import FieldKind, Option
from ggbench.plugins import load_plugin, plugin_names
from ggbench.text import shorten
from ggbench.units import format_count, parse_bandwidth, parse_tokens

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef
    from ggbench.models.served_models import ServerOptions
    from ggbench.stats.decode_timing import Bandwidth


_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Decorator(Protocol):
    def __call__(self, function: _Function, /) -> _Function: ...


class HubOptions(msgspec.Struct, frozen=True):
    """How a command may use the network."""

    yes: Annotated[bool, Option(heading="source")] = False
    """Download without asking. By default, ggbench asks before downloading more than 1 GB."""
    no_download: Annotated[bool, Option(heading="source")] = False
    """Never download a model; twins are still made."""
    offline: Annotated[bool, Option(heading="source")] = False
    """Do not use the network; HF_HUB_OFFLINE=1 does the same."""

    def access(self) -> HubAccess:
        from ggbench.hub.access import HubAccess

        return HubAccess.from_environment(offline=self.offline)


class MeasureRequest(msgspec.Struct, frozen=True):
    """The shared options of a command that measures."""

    model: ModelRef
    setup: LlamaConfig
    hub: HubOptions
    output: Output
    timeout_s: float | None = None
    """Stop the worker after this time without output; None: the experiment's default."""
    bandwidth: Bandwidth | None = None
    """Given by the user."""
    tuned: bool = False
    """Whether to measure with the settings found by a search."""
    server: ServerOptions | None = None
    """None for a command that measures only files."""
    engines: tuple[LlamaConfig, ...] = ()
    """`setup` as run by each given engine; one for a command that cannot compare them."""
    configs: Mapping[str, EngineConfig] = {}
    """The config of each engine with its own format, by engine name; `setup` has the options shared by all engines."""


class Text(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Text parsed by a FieldKind; token counts with k or m are echoed in full on stderr."""

    def __init__(self, kind: FieldKind, name: str = "text") -> None:
        self.name, self._kind = name, kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            return value
        try:
            found = self._kind.read(value)
        except UsageError as error:
            if param is None or not self._kind.names_option:
                raise
            option = max(param.opts, key=lambda each: each.startswith("--"))
            raise UsageError(f"{option}: {error.message}", error.hint) from None
        if ctx is not None and self._kind.counts_tokens:
            for part in map(str.strip, value.split(",")):
                if part[-1:].isalpha():
                    echo = f"{part} = {format_count(parse_tokens(part, least=0))} tokens"
                    ctx.meta.setdefault(_ECHOES, []).append(echo)
        return found


_ECHOES = "ggbench.echoes"
TOKENS = Text(fields.TOKENS, "tokens")

THREADS = click.IntRange(1, MAX_THREADS)

PATH = click.Path(path_type=Path)


def _parse_bandwidth(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Bandwidth | None:
    from ggbench.stats.decode_timing import Bandwidth

    return None if text is None else Bandwidth(parse_bandwidth(text), "given")


def _as_tuple(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    return () if text is None else (text,)


def option(flags: str, text: str, type: Any = None, **more: Any) -> _Decorator:  # noqa: ANN401 - click's own
    """Return a click option; `flags` are separated by spaces, and the parameter's name may follow them."""
    return click.option(*flags.split(), type=type, help=text, cls=GroupedOption, **more)


def field_options(record: type, names: Iterable[str] | None = None) -> list[_Decorator]:
    """Return the options of these fields of a record, or of all fields that have one."""
    return [field_option(record, name) for name in (fields.options_of(record) if names is None else names)]


def field_option(record: type, field: str, text: str = "") -> _Decorator:
    """Return the option of a field, with its own help or `text`; the command gets None without a value or a default."""
    each, default = fields.options_of(record)[field], fields.defaults_of(record).get(field)
    type_ = _types_of(record)[field]
    flags, kind = each.flags_of(field, default), each.kind
    more: dict[str, Any] = {"field": (record, field), "group": OptionGroup[each.heading.upper()], "cls": GroupedOption}
    if type_ is bool:
        is_switched_off = default is True and "/" not in flags[-1]
        more |= {"is_flag": True, "default": bool(default) and not is_switched_off}
        return click.option(*flags, f"no_{field}" if is_switched_off else field, help=text or each.help or None, **more)
    choices = kind.choices or (get_args(type_) if get_origin(type_) is Literal else ())
    value: Any = Text(kind, "tokens" if kind is fields.TOKENS else "text")
    if choices:
        value = click.Choice(choices, case_sensitive=not kind.choices)
    elif kind.read is int:
        value = click.INT if kind.least is None else click.IntRange(kind.least, kind.most)
    if each.is_repeated:
        more |= {"multiple": True, "callback": lambda _ctx, _param, values: tuple(itertools.chain(*values))}
    shown = each.shown if each.shown is not None else kind.write(default) if default not in (None, ()) else ""
    more |= {"type": value, "metavar": kind.metavar, "default": shown or None}
    return click.option(*flags, field, help=text or each.help or None, **more)


model_option = functools.partial(option, group=OptionGroup.MODEL)
memory_option = functools.partial(option, group=OptionGroup.MEMORY)
source_option = functools.partial(option, group=OptionGroup.SOURCE)
output_option = functools.partial(option, group=OptionGroup.OUTPUT)


_SERVER = ("api_key_env",)
_BANDWIDTH = memory_option(
    "--bandwidth",
    "Memory bandwidth to compute the limits from, e.g. 1008GB/s. Default: measured.",
    callback=_parse_bandwidth,
    metavar="RATE",
)

_ENGINE = source_option(
    "--engine",
    "Run the model by your own llama.cpp, e.g. llama-server=/opt/bin/llama-server; flags of yours may follow the path, "
    "in quotes. Default: llama, ggbench's own llama.cpp, which takes options of loading so, too: 'llama -fa off'.",
    metavar="llama-server[=PATH]",
    multiple=True,
)

no_measure_option = option("--no-measure", "Do not measure models or memory bandwidth.", is_flag=True)
projector_option = memory_option(
    "-mm --mmproj",
    "Count this multimodal projector (mmproj GGUF); auto for the one beside MODEL or in its repo.",
    PATH,
    metavar="FILE|auto",
)
plot_option = output_option("--plot", "Plot latency against position in the terminal.", is_flag=True)
against_option = output_option(
    "--against", "Show the nearest published rows below your own.", click.Choice(["published"])
)


def timeout_option(default: str) -> _Decorator:
    text = f"Give up after SECONDS without output from the engine or server. Default: {default}."
    return option("--timeout timeout_s", text, click.FloatRange(min=0, min_open=True), metavar="SECONDS")


def as_record(name: str, make: Callable[..., object], names: Collection[str], *options: _Decorator) -> _Decorator:
    """Return a decorator that adds options and passes those with these names to the command as one record."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def with_record(**kwargs: Any) -> object:  # noqa: ANN401 - the options' own types
            given = {field: kwargs.pop(field) for field in names if field in kwargs}
            return function(**kwargs, **{name: make(**given)})

        for each in reversed(options):
            each(with_record)
        return with_record  # type: ignore[return-value]

    return decorate


def settings_options(settings: type) -> _Decorator:
    """Add the options of a type of settings; the command gets `settings`, a record of that type."""
    names = fields.options_of(settings)
    return as_record("settings", functools.partial(given_record, settings), names, *field_options(settings, names))


def given_record(record: Callable[..., Any], /, **values: Any) -> Any:  # noqa: ANN401 - the fields' own types
    """Return a record of these values, with its defaults in place of None."""
    return getattr(record, "of_options", record)(**{name: value for name, value in values.items() if value is not None})


@functools.cache
def _types_of(record: type) -> dict[str, Any]:
    return get_type_hints(record)


def _output(**given: bool) -> Output:
    output = Output(**given)
    output.notice(*click.get_current_context().meta.pop(_ECHOES, ()))
    return output


offline_option = as_record("hub", HubOptions, HubOptions.__struct_fields__, *field_options(HubOptions, ["offline"]))
"""Add --offline; the command gets `hub`, a HubOptions."""
output_options = as_record("output", _output, Output.__struct_fields__, *field_options(Output))
"""Add --json and --quiet; the command gets `output`, an Output."""
quiet_option = as_record("output", _output, Output.__struct_fields__, *field_options(Output, ["quiet"]))
"""Add --quiet alone; the command gets `output`, an Output."""
_download_options = as_record("hub", HubOptions, HubOptions.__struct_fields__, *field_options(HubOptions))


def _server(**given: Any) -> ServerOptions:  # noqa: ANN401 - the fields' own types
    from ggbench.models.served_models import ServerOptions

    return given_record(ServerOptions, **given)  # type: ignore[no-any-return]


def _engine_options(function: _Function) -> _Function:
    """Add the options of all engines that have their own model format; the command gets `configs`, a config by
    engine.
    """
    types: dict[str, type] = {
        name: load_plugin("ggbench.engines", name, "options", "engine").CONFIG
        for name in plugin_names("ggbench.engines", "options")
    }

    def configs(**given: Any) -> dict[str, EngineConfig]:  # noqa: ANN401 - the options' own types
        return {
            name: given_record(kind, **{field: given.get(field) for field in fields.options_of(kind)})
            for name, kind in types.items()
        }

    names = [field for kind in types.values() for field in fields.options_of(kind)]
    options = [option for kind in types.values() for option in field_options(kind)]
    return as_record("configs", configs, names, *options)(function)


_server_options = as_record("server", _server, _SERVER, *field_options(EndpointConfig, _SERVER))


def _parsed(model: str, quants: tuple[str, ...]) -> ModelRef:
    from ggbench.models.reference import parse_model

    return parse_model(model, *quants)


def run_by(text: str, setup: LlamaConfig) -> LlamaConfig:
    """Return a setup as run by an `--engine`: `NAME`, `NAME=COMMAND`, or `llama FLAGS` with options of loading that
    replace the command's own. Raises UsageError.
    """
    if text.startswith("llama "):
        from ggbench.commands.load_options import reloaded

        return reloaded(setup, text.split()[1:])
    name, _, command = text.strip().partition("=")
    folder = name.replace("-", "_")
    if folder not in plugin_names("ggbench.engines", "engine"):
        hint = "write --engine llama-server or --engine llama-server=PATH; llama is ggbench's own llama.cpp"
        raise UsageError(f"no engine named {shorten(name, 40)!r}", hint)
    return LlamaConfig.of(config_type(folder).of_command(command.strip(), setup))


def _asked(
    model: str,
    quants: tuple[str, ...],
    engine: tuple[str, ...],
    setup: LlamaConfig,
    **given: Any,  # noqa: ANN401 - the fields' own types
) -> MeasureRequest:
    setups = [run_by(text, setup) for text in engine] or [setup]
    return MeasureRequest(_parsed(model, quants), setups[0], engines=tuple(setups), **given)


def _offered_models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from ggbench.models.catalog import load_catalog

    found = [CompletionItem(each.id) for each in load_catalog() if each.id.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


model_argument = functools.partial(click.argument, "model", shell_complete=_offered_models)
"""Return MODEL, which a shell completes to a model of the catalog or to a file."""
model_arguments = as_record("ref", _parsed, ("model", "quants"), model_argument(), click.argument("quants", nargs=-1))
"""Add MODEL and QUANTs; the command gets `ref`, a ModelRef."""


def measuring_options(
    *,
    many: bool = False,
    has_own_timeout: bool = False,
    load: _Decorator | None = None,
    timeout: str = "600",
    servers: bool = False,
    own_models: bool = False,
) -> _Decorator:
    """Add MODEL, one QUANT or `many`, and the options of a run; the command gets `asked`, a MeasureRequest.

    `timeout` is the default named in --timeout's help; `servers` and `own_models` allow MODEL to be a server, or a
    model in an engine's own format.
    """
    from ggbench.commands.load_options import load_options

    def decorate(function: _Function) -> _Function:
        taken = [*MeasureRequest.__struct_fields__, "quants", "engine"]
        function = _ENGINE(output_options(as_record("asked", _asked, taken)(function)))
        if not has_own_timeout:
            function = _BANDWIDTH(timeout_option(timeout)(function))
        if servers:
            function = _server_options(function)
        if own_models:
            function = _engine_options(function)
        function = (load or load_options)(_download_options(function))
        quants = {"nargs": -1} if many else {"nargs": 1, "metavar": "[QUANT]", "required": False, "callback": _as_tuple}
        return model_argument()(click.argument("quants", **quants)(function))

    return decorate
