"""Which options go with which engine, and the config that they make."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.commands.options import MeasureRequest
from ggbench.engines.contract import EngineConfig
from ggbench.errors import UsageError
from ggbench.models.engine_models import own_models
from ggbench.models.subject import setup_options
from ggbench.plugins import load_plugin
from ggbench.runs.experiment import Experiment


def given_setup(experiment: Experiment, asked: MeasureRequest) -> EngineConfig:
    """Return the config of the engine that loads MODEL, as far as the options say; asks no server.

    Raises UsageError where options of one engine are given for another, or where the experiment needs a file or a GGUF.
    """
    ref = asked.model
    for name, package in own_models():
        own = tuple(setup_options(asked.configs[name])) if name in asked.configs and name != ref.engine else ()
        if own:
            schemes = " or ".join(f"{scheme}:" for scheme in package.SCHEMES)
            raise UsageError(
                f"{_names(own)} for a {package.NOUN}, and {ref.text} is none", f"omit them, or give {schemes}"
            )
    if not ref.is_server and asked.server is not None and (given := asked.server.given):
        raise UsageError(f"{_names(given)} for a server, and {ref.text} is none", "omit them, or give a URL")
    if ref.is_server:
        experiment.refuse_servers()
        _refuse(asked, (), "a model that is loaded here, and a server has loaded its own", _OF_SERVERS)
    if not ref.engine:
        return asked.setup
    experiment.refuse_all_but_gguf()
    options = load_plugin("ggbench.engines", ref.engine, "options", "engine")
    config: EngineConfig = asked.configs.get(ref.engine) or options.CONFIG()
    _refuse(asked, options.SHARED, f"a GGUF, and {config.program} loads {ref.text}", options.TAKES)
    return replace(config, **{field: getattr(asked.setup, field) for field in options.SHARED})  # type: ignore[type-var]


_OF_SERVERS = "give the server such options when it starts, and omit them here"


def _refuse(asked: MeasureRequest, shared: Sequence[str], what: str, hint: str) -> None:
    """Raise UsageError for an option of llama.cpp's but those of `shared` fields."""
    given = tuple(setup_options(replace(asked.setup, **dict.fromkeys(shared))))
    if asked.model.is_server and asked.bandwidth is not None:
        given = ("--bandwidth", *given)
    if asked.tuned:
        given = ("--tuned", *given)
    if given:
        raise UsageError(f"{_names(given)} for {what}", hint)


def _names(words: Sequence[str]) -> str:
    names = [word for word in words if word.startswith("-")]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
