"""Options shared by several commands, and the records in which a command receives them.

`ggbench.fields` explains how an option is made from a record's field.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import click
from click.shell_completion import CompletionItem

from ggbench import fields
from ggbench.commands.documented import GroupedOption
from ggbench.commands.output import Output
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.fields import FieldKind, Option
from ggbench.record import Record

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef
    from ggbench.stats.decode_timing import Bandwidth


Function = TypeVar("Function", bound=Callable[..., Any])


class Decorator(Protocol):
    def __call__(self, function: Function, /) -> Function: ...


class HubOptions(Record):
    """How a command may use the network."""

    yes: Annotated[
        bool,
        Option(
            "",
            "Download without asking. By default, ggbench asks before downloading more than 1 GB.",
            heading="source",
        ),
    ] = False
    offline: Annotated[bool, Option("", "Use no network, as HF_HUB_OFFLINE=1 does.", heading="source")] = False

    def access(self) -> HubAccess:
        from ggbench.hub.access import HubAccess

        return HubAccess.from_environment(offline=self.offline)


class MeasureRequest(Record):
    """The shared options of a command that measures."""

    model: ModelRef
    setup: LlamaConfig
    hub: HubOptions
    output: Output
    timeout_s: float | None = None
    """Stop the worker after this time without output; None: the experiment's default."""
    bandwidth: Bandwidth | None = None
    """Given by the user."""
    api_key_env: str | None = None
    """Environment variable with the API key of a server."""
    engines: tuple[LlamaConfig, ...] = ()
    """`setup` as run by each given engine; one for a command that cannot compare them."""
    configs: Mapping[str, EngineConfig] = {}
    """The config of each engine with its own format, by engine name; `setup` has the options shared by all engines."""


class Text(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Text parsed by a FieldKind."""

    def __init__(self, kind: FieldKind, name: str = "text") -> None:
        self.name, self._kind = name, kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            return value
        try:
            return self._kind.read(value)
        except UsageError as error:
            if param is None or not self._kind.names_option:
                raise
            option = max(param.opts, key=lambda each: each.startswith("--"))
            raise UsageError(f"{option}: {error.message}", error.hint) from None


TOKENS = Text(fields.TOKENS, "tokens")

PATH = click.Path(path_type=Path)


def option(flags: str, text: str, type: Any = None, **more: Any) -> Decorator:  # noqa: ANN401 - click's own
    """Return a click option; `flags` are separated by spaces, and the parameter's name may follow them."""
    return click.option(*flags.split(), type=type, help=text, cls=GroupedOption, **more)


def field_options(record: type, names: Iterable[str] | None = None) -> list[Decorator]:
    """Return the options of these fields of a record, or of all fields that have one."""
    return [field_option(record, name) for name in (fields.options_of(record) if names is None else names)]


def field_option(record: type, field: str, text: str = "") -> Decorator:
    """Return the option of a field, with its own help or `text`; the command gets None without a value or a default."""
    each, default = fields.options_of(record)[field], fields.defaults_of(record).get(field)
    flags, kind, type_ = each.flags_of(field, default), each.kind, _types_of(record)[field]
    more: dict[str, Any] = {
        "help": text or each.help,
        "group": each.heading,
        "cls": GroupedOption,
    }
    if type_ is bool:
        more |= {"is_flag": True, "default": bool(default)}
        if default is True and "/" not in flags[-1]:
            more |= {"flag_value": False, "show_default": False}
        return click.option(*flags, field, **more)
    if each.is_repeated:
        more |= {"multiple": True, "callback": lambda _ctx, _param, values: tuple(itertools.chain(*values))}
    shown = each.shown
    if shown is None and default not in (None, ()):
        shown = kind.write(default)
    return click.option(
        *flags, field, type=_value_type(type_, kind), metavar=kind.metavar, default=shown or None, **more
    )


def _value_type(type_: Any, kind: FieldKind) -> Any:  # noqa: ANN401 - click's types are generic only in newer releases
    choices = kind.choices or (get_args(type_) if get_origin(type_) is Literal else ())
    if choices:
        return click.Choice(choices, case_sensitive=not kind.choices)
    if kind.read is int:
        return click.IntRange(kind.least, kind.most)
    return Text(kind, "tokens" if kind is fields.TOKENS else "text")


model_option = functools.partial(option, group="model")
memory_option = functools.partial(option, group="memory")
source_option = functools.partial(option, group="source")
output_option = functools.partial(option, group="output")
rare_option = functools.partial(option, group="rare")


workload_option = functools.partial(
    option,
    "--workload",
    "chat, coding, documents, a session's FILE or IN+OUT@DEPTH. 13 questions, an agent's 40 turns in 62k tokens, or 11"
    ' questions on a document of 27k; JSON lines of {"new": 800, "generated": 120} for each turn, or answers of servers'
    " with usage or timings; an answer of OUT tokens to IN after DEPTH.",
    metavar="NAME",
)
plot_option = output_option("--plot", "Plot latency against position in the terminal.", is_flag=True)
against_option = output_option(
    "--against", "Show the nearest published rows below your own.", click.Choice(["published"])
)


def as_record(name: str, make: Callable[..., object], names: Collection[str], *options: Decorator) -> Decorator:
    """Return a decorator that adds options and passes those with these names to the command as one record."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def with_record(**kwargs: Any) -> object:  # noqa: ANN401 - the options' own types
            given = {field: kwargs.pop(field) for field in names if field in kwargs}
            return function(**kwargs, **{name: make(**given)})

        for each in reversed(options):
            each(with_record)
        return with_record  # type: ignore[return-value]

    return decorate


def settings_options(settings: type) -> Decorator:
    """Add the options of a type of settings; the command gets `settings`, a record of that type."""
    names = fields.options_of(settings)
    return as_record(
        "settings", functools.partial(given_record, settings), names, *field_options(settings, names)
    )


def given_record(record: Callable[..., Any], /, **values: Any) -> Any:  # noqa: ANN401 - the fields' own types
    """Return a record of these values, with its defaults in place of None."""
    return getattr(record, "of_options", record)(
        **{name: value for name, value in values.items() if value is not None}
    )


@functools.cache
def _types_of(record: type) -> dict[str, Any]:
    return get_type_hints(record)


offline_option = as_record(
    "hub", HubOptions, HubOptions.__struct_fields__, *field_options(HubOptions, ["offline"])
)
"""Add --offline; the command gets `hub`, a HubOptions."""
output_options = as_record("output", Output, Output.__struct_fields__, *field_options(Output))
"""Add --json and --quiet; the command gets `output`, an Output."""
quiet_option = as_record("output", Output, Output.__struct_fields__, *field_options(Output, ["quiet"]))
"""Add --quiet alone; the command gets `output`, an Output."""
download_options = as_record("hub", HubOptions, HubOptions.__struct_fields__, *field_options(HubOptions))


def _parsed(model: str, quants: tuple[str, ...]) -> ModelRef:
    from ggbench.models.reference import parse_model

    return parse_model(model, *quants)


def _offered_models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from ggbench.models.catalog import load_catalog

    found = [CompletionItem(each.id) for each in load_catalog() if each.id.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


model_argument = functools.partial(click.argument, "model", shell_complete=_offered_models)
"""Return MODEL, which a shell completes to a model of the catalog or to a file."""
model_arguments = as_record(
    "ref", _parsed, ("model", "quants"), model_argument(), click.argument("quants", nargs=-1)
)
"""Add MODEL and QUANTs; the command gets `ref`, a ModelRef."""
