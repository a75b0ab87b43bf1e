"""What every command that measures asks for: MODEL, QUANT, engines, servers, and the settings of a search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ggbench import fields
from ggbench.commands.load_options import load_options
from ggbench.commands.options import (
    Decorator,
    Function,
    MeasureRequest,
    as_record,
    download_options,
    field_options,
    given_record,
    memory_option,
    model_argument,
    output_options,
    rare_option,
    source_option,
)
from ggbench.engines.contract import EngineConfig
from ggbench.engines.http.endpoint import EndpointConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.fields import config_options
from ggbench.plugins import load_plugin, plugin_names
from ggbench.text import shorten
from ggbench.units import parse_bandwidth

if TYPE_CHECKING:
    from ggbench.runs.experiment import Experiment
    from ggbench.stats.decode_timing import Bandwidth


def _parse_bandwidth(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Bandwidth | None:
    from ggbench.stats.decode_timing import Bandwidth

    return None if text is None else Bandwidth(parse_bandwidth(text), "given")


def _as_tuple(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    return () if text is None else (text,)


_BANDWIDTH = memory_option(
    "--bandwidth",
    "Memory bandwidth for the limits. E.g. 1008GB/s. Default: measured.",
    callback=_parse_bandwidth,
    metavar="RATE",
)

_ENGINE = source_option(
    "--engine",
    "Run the model by your own llama.cpp. E.g. llama-server=/opt/bin/llama-server; flags of yours may follow the path, "
    "in quotes. Default: llama, ggbench's own llama.cpp.",
    metavar="llama-server=PATH",
    multiple=True,
)


def timeout_option(default: str) -> Decorator:
    text = f"Give up after SECONDS without output from the engine or server. Default: {default}."
    return rare_option("--timeout timeout_s", text, click.FloatRange(min=0, min_open=True), metavar="SECONDS")


def _engine_options(function: Function) -> Function:
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


(_server_option,) = field_options(EndpointConfig, ["api_key_env"])


def run_by(text: str, setup: LlamaConfig) -> LlamaConfig:
    """Return a setup as run by an `--engine`: `llama-server` with `=PATH`, flags or both, `llama serve` with flags, or
    `llama`. Raises UsageError.
    """
    from ggbench.engines.http.config import LlamaServerConfig

    if text.split()[:2] == ["llama", "serve"]:
        return LlamaServerConfig.of_command(text, setup)
    if text.strip() == "llama":
        return setup
    name, command = re.match(r"([\w-]*)[ =]?(.*)", text.strip()).groups()  # type: ignore[union-attr]
    if name != "llama-server":
        hint = "write --engine llama-server or --engine llama-server=PATH; llama without flags is ggbench's own"
        raise UsageError(f"no engine named {shorten(name, 40)!r}", hint)
    return LlamaServerConfig.of_command(command.strip(), setup)


def engine_offer(experiment: Experiment, setup: EngineConfig) -> str:
    """Return the note that the user's llama-server sees a GPU which ggbench's own llama.cpp has no backend for.

    Empty if it sees none, or could not measure this.
    """
    from ggbench.engines.http.config import LlamaServerConfig
    from ggbench.engines.http.program import printed_program, unused_gpus
    from ggbench.show.words import say

    is_own = type(setup) is LlamaConfig and setup.memory_limit_bytes is None and setup.may_use_gpu
    if not is_own or any(map(LlamaServerConfig.unsupported, experiment.needs)):
        return ""
    gpus = unused_gpus()
    return say("hint.own_program", program=printed_program(), gpu=gpus[0]) if gpus else ""


def _asked(
    model: str,
    quants: tuple[str, ...],
    engine: tuple[str, ...],
    setup: LlamaConfig,
    **given: Any,  # noqa: ANN401 - the fields' own types
) -> MeasureRequest:
    setups = [run_by(text, setup) for text in engine] or [setup]
    from ggbench.models.reference import parse_model

    return MeasureRequest(parse_model(model, *quants), setups[0], engines=tuple(setups), **given)


def measuring_options(
    *,
    many: bool = False,
    has_own_timeout: bool = False,
    load: Decorator = load_options,
    timeout: str = "600",
    servers: bool = False,
    own_models: bool = False,
) -> Decorator:
    """Add MODEL, one QUANT or `many`, and the options of a run; the command gets `asked`, a MeasureRequest.

    `timeout` is the default named in --timeout's help; `servers` and `own_models` allow MODEL to be a server, or a
    model in an engine's own format.
    """

    def decorate(function: Function) -> Function:
        taken = [*MeasureRequest.__struct_fields__, "quants", "engine"]
        function = _ENGINE(output_options(as_record("asked", _asked, taken)(function)))
        if not has_own_timeout:
            function = _BANDWIDTH(timeout_option(timeout)(function))
        if servers:
            function = _server_option(function)
        if own_models:
            function = _engine_options(function)
        function = load(download_options(function))
        quants = (
            {"nargs": -1}
            if many
            else {"nargs": 1, "metavar": "[QUANT]", "required": False, "callback": _as_tuple}
        )
        return model_argument()(click.argument("quants", **quants)(function))

    return decorate


def given_setup(experiment: Experiment, asked: MeasureRequest) -> EngineConfig:
    """Return the config of MODEL's engine from the options, without contacting a server.

    Raises UsageError for options of another engine, or if the experiment needs a file or a GGUF.
    """
    from ggbench.models.reference import own_models

    ref = asked.model
    if len(asked.engines) > 1:
        raise UsageError("several engines are compared by ggbench bench and prefill alone", "give one --engine")
    _refuse_options_of_others(asked)
    if ref.is_server:
        experiment.check_engine(EndpointConfig)
        hint = "omit them here; pass them to the server when starting it"
        _refuse(asked, (), "a model that ggbench loads itself, not a server", hint)
    if not ref.engine:
        return asked.setup
    options = own_models()[ref.engine]
    experiment.check_engine(options.CONFIG)
    config: EngineConfig = asked.configs.get(ref.engine) or options.CONFIG()
    _refuse(asked, options.SHARED, f"a GGUF, and {config.program} loads {ref.text}", options.TAKES)
    return replace(config, **{field: getattr(asked.setup, field) for field in options.SHARED})  # type: ignore[type-var]


def _refuse_options_of_others(asked: MeasureRequest) -> None:
    """Raise UsageError for options of a server, or of an engine with its own models, that MODEL is not for."""
    from ggbench.models.reference import own_models

    ref = asked.model
    for name, config in asked.configs.items():
        own = config_options(config)
        if own and name != ref.engine:
            options = own_models()[name]
            schemes = " or ".join(f"{scheme}:" for scheme in options.SCHEMES)
            what = f"{_names(own)} only for a {options.NOUN}, but {ref.text} is not one"
            raise UsageError(what, f"omit them, or give {schemes}")
    if asked.api_key_env and not ref.is_server:
        what = f"--api-key-env is only for a server, but {ref.text} is not one"
        raise UsageError(what, "omit it, or give a URL")


def _refuse(asked: MeasureRequest, shared: Sequence[str], what: str, hint: str) -> None:
    """Raise UsageError for options of llama.cpp, except those of the `shared` fields."""
    given = tuple(config_options(replace(asked.setup, **dict.fromkeys(shared))))
    if asked.model.is_server and asked.bandwidth is not None:
        given = ("--bandwidth", *given)
    if given:
        raise UsageError(f"{_names(given)} for {what}", hint)


def _names(words: Sequence[str]) -> str:
    names = [word for word in words if word.startswith("-")]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
