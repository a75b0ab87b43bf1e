"""Which options go with a checkpoint of Transformers, and the setup that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.commands.options import Asked
from ggbench.engines.contract import EngineConfig
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.errors import UsageError
from ggbench.models.command_line import setup_options

if TYPE_CHECKING:
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Experiment


def given_setup(experiment: Experiment, asked: Asked) -> EngineConfig:
    """Return the setup of the engine that loads MODEL, as far as the options say.

    Raises UsageError where options of one engine are given for the other, or where the experiment needs a GGUF.
    """
    own = () if asked.checkpoint is None else tuple(setup_options(asked.checkpoint))
    if not asked.model.is_checkpoint:
        if own:
            raise UsageError(
                f"{_names(own)} for a checkpoint, and {asked.model.text} is none", "omit them, or give tf: or synth-tf:"
            )
        return asked.setup
    experiment.refuse_checkpoints()
    llama = asked.setup
    foreign = tuple(setup_options(replace(llama, n_ctx=None, threads=None, memory_limit_bytes=None)))
    if asked.tuned:
        foreign = ("--tuned", *foreign)
    if foreign:
        raise UsageError(
            f"{_names(foreign)} for a GGUF, and Transformers loads {asked.model.text}",
            "a checkpoint takes --cache, --attention, --device, --torch-compile, -c, -t and --memory-limit",
        )
    return replace(
        asked.checkpoint or TransformersConfig(),
        n_ctx=llama.n_ctx,
        threads=llama.threads,
        memory_limit_bytes=llama.memory_limit_bytes,
    )


def check_packages_of(targets: Sequence[Target]) -> None:
    """Raise EngineFailed where a checkpoint among them needs a package that is not here."""
    from ggbench.engines.transformers.packages import check_packages

    for target in targets:
        if target.checkpoint is not None:
            check_packages(target.checkpoint.method.name)


def _names(words: Sequence[str]) -> str:
    names = [word for word in words if word.startswith("-")]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
