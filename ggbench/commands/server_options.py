"""Which options go with a server, and which with a file."""

from __future__ import annotations

from ggbench.commands.options import Asked
from ggbench.errors import UsageError
from ggbench.models.command_line import setup_options
from ggbench.runs.experiment import Experiment


def check_server(experiment: Experiment, asked: Asked) -> None:
    """Raise UsageError where options of a server go with a file, or those of loading a file with a server.

    Raises it also where the experiment needs a file and MODEL is a server. Asks no server.
    """
    if not asked.model.is_server:
        if asked.server is not None and (given := asked.server.given):
            raise UsageError(
                f"{_options(given)} for a server, and {asked.model.text} is none", "omit them, or give a URL"
            )
        return
    experiment.refuse_servers()
    given = tuple(setup_options(asked.setup))
    if asked.bandwidth is not None:
        given = ("--bandwidth", *given)
    if asked.tuned:
        given = ("--tuned", *given)
    if given:
        raise UsageError(
            f"{_options(given)} for a model that is loaded here, and a server has loaded its own",
            "give the server such options when it starts, and omit them here",
        )


def _options(words: tuple[str, ...]) -> str:
    names = [word for word in words if word.startswith("-")]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
