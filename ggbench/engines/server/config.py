"""How a server is asked."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ggbench.engines.contract import EngineConfig

ClockChoice = Literal["auto", "server", "client"]


class EndpointConfig(EngineConfig, msgspec.Struct, frozen=True):
    """How a server is asked; it has loaded the model by itself, so nothing of that is here."""

    engine: ClassVar[str] = "server"
    program: ClassVar[str] = "the server"
    loads_file: ClassVar[bool] = False
    in_words: ClassVar[frozenset[str]] = frozenset({"base_url", "model"})

    base_url: str = ""
    """Scheme, host, port and path, without `/v1`."""
    model: str = ""
    """As the server offers it."""
    clock: ClockChoice = "auto"
    """Whose clock times the tokens: `auto` takes the server's own where it has one for each token."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key; the key itself is kept nowhere. Empty sends none."""
