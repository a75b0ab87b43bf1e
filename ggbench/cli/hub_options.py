"""Options of the commands that may ask the Hub: whether they may, and whether they may download."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class HubOptions:
    """What a command may do with the network."""

    offline: bool = False
    yes: bool = False
    """Download however much it is."""
    no_download: bool = False
    """Download no model; headers may be."""

    def access(self) -> HubAccess:
        """The Hub as the person's environment names it, and these options."""
        from ggbench.hub.access import HubAccess

        return HubAccess.from_environment(offline=self.offline)


_OFFLINE = click.option("--offline", is_flag=True, help="Ask the network for nothing; HF_HUB_OFFLINE=1 does the same.")
_DOWNLOAD_OPTIONS = (
    click.option(
        "--yes",
        is_flag=True,
        help="Download without asking. Without it: up to 1 GB goes ahead with a notice, above that it asks in a"
        " terminal and is refused elsewhere.",
    ),
    click.option("--no-download", is_flag=True, help="Refuse what is not on this disk; twins are still made."),
)


def offline_option(function: _Function) -> _Function:
    """Adds `--offline`; the command gets `hub`, a HubOptions."""

    @functools.wraps(function)
    def with_hub(*args: object, **kwargs: Any) -> object:  # noqa: ANN401 - the options' own types
        hub = HubOptions(kwargs.pop("offline"), kwargs.pop("yes", False), kwargs.pop("no_download", False))
        return function(*args, hub=hub, **kwargs)

    return _OFFLINE(with_hub)  # type: ignore[return-value]


def download_options(function: _Function) -> _Function:
    """Adds `--offline`, `--yes` and `--no-download`; the command gets `hub`, a HubOptions."""
    function = offline_option(function)
    for option in reversed(_DOWNLOAD_OPTIONS):
        function = option(function)
    return function
