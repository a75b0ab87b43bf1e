"""Options about the network of the commands that may use the Hub."""

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
    """Download without asking, whatever the size."""
    no_download: bool = False
    """Download no model; headers may be downloaded."""

    def access(self) -> HubAccess:
        """The Hub as the environment variables and these options say."""
        from ggbench.hub.access import HubAccess

        return HubAccess.from_environment(offline=self.offline)


_OFFLINE = click.option("--offline", is_flag=True, help="Do not use the network; HF_HUB_OFFLINE=1 does the same.")
_DOWNLOAD_OPTIONS = (
    click.option(
        "--yes",
        is_flag=True,
        help="Download without asking. Default: up to 1 GB proceeds with a notice; more asks in a terminal, and is"
        " refused elsewhere.",
    ),
    click.option("--no-download", is_flag=True, help="Download no model; twins are still made."),
)


def offline_option(function: _Function) -> _Function:
    """Add `--offline`; the command gets `hub`, a HubOptions."""

    @functools.wraps(function)
    def with_hub(*args: object, **kwargs: Any) -> object:  # noqa: ANN401 - the options' own types
        hub = HubOptions(kwargs.pop("offline"), kwargs.pop("yes", False), kwargs.pop("no_download", False))
        return function(*args, hub=hub, **kwargs)

    return _OFFLINE(with_hub)  # type: ignore[return-value]


def download_options(function: _Function) -> _Function:
    """Add `--offline`, `--yes` and `--no-download`; the command gets `hub`, a HubOptions."""
    function = offline_option(function)
    for option in reversed(_DOWNLOAD_OPTIONS):
        function = option(function)
    return function
