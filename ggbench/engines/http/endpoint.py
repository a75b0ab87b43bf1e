"""A server at a URL: the checked URL, the name of the variable that holds its API key, and its settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from ggbench.engines.contract import BatchedDecode, Decode, EngineConfig, Prefill, TakeTurn
from ggbench.errors import UsageError
from ggbench.fields import FieldKind, Option
from ggbench.record import Record
from ggbench.text import shorten

_KEY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_URL_HINT = "write it as http://127.0.0.1:8080 or https://host/path"
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[\da-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?(?P<path>/[!\"$->@-~]*)?",
    re.A | re.I,
)
"""Without a query or a fragment."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_url(text: str) -> bool:
    """Return whether a text is intended as a server's URL."""
    return text.lower().startswith(("http://", "https://"))


class Address(Record):
    """The address of a server and the location of its key, not the key itself unless it is ggbench's own."""

    base_url: str
    """Lower-case scheme and host, no default port, no trailing slash, no `/v1`."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the API key; None sends no key."""
    own_key: str = ""
    """The key that ggbench made for a server that it started."""

    @classmethod
    def parse(cls, text: str, api_key_env: str | None = None) -> Address:
        """Return the address of a URL. Raises UsageError for anything else, or for a URL with a password or a query."""
        found = _URL.fullmatch(text.strip())
        if "@" in text:
            raise UsageError(
                "the URL of a server may not contain a user name or a password",
                "put an API key into an environment variable and name it with --api-key-env",
            )
        if found is None or int(found["port"] or 0) >= 1 << 16:
            raise UsageError(f"{shorten(text, 60)!r} is not the URL of a server", _URL_HINT)
        if api_key_env is not None and not _KEY_NAME.fullmatch(api_key_env):
            raise UsageError(
                "--api-key-env takes the name of an environment variable, not a key",
                "export OPENAI_API_KEY=... and write --api-key-env OPENAI_API_KEY",
            )
        scheme, host, port = found["scheme"].lower(), found["host"].lower(), found["port"]
        if port is not None and int(port) != _DEFAULT_PORTS[scheme]:
            host = f"{host}:{port}"
        path = (found["path"] or "").rstrip("/").removesuffix("/v1").rstrip("/")
        return cls(f"{scheme}://{host}{path}", api_key_env)

    def api_key(self) -> str | None:
        """Return the key; None if the address names no variable. Raises UsageError if the variable is not set."""
        if self.api_key_env is None:
            return self.own_key or None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise UsageError(
                f"the environment variable {self.api_key_env} is not set", "export it, or name another"
            )
        if not key.isascii() or not key.isprintable():
            raise UsageError(f"{self.api_key_env} contains characters that a key cannot have", "set it again")
        return key


class EndpointConfig(EngineConfig, Record):
    """Settings for requests to a server; it has loaded its model itself, so load settings are unknown."""

    engine = "server"
    program = "the server"
    failure_hints: ClassVar[Mapping[str, str]] = {
        "context": "measure fewer tokens, or start the server with a larger context",
        "no output from the server": "use a longer --timeout",
        "the server ended after": "the received tokens are kept; some servers always stop at the end of the text",
        "": "earlier measurements are kept; the server's own log may say more",
    }
    runs = (Prefill, Decode, TakeTurn, BatchedDecode)
    alternative = (
        "give the file that the server runs; decode, prefill, session, speed and bench measure servers"
    )
    in_words = frozenset({"base_url", "model"})

    base_url: str = ""
    """Scheme, host, port and path, without `/v1`."""
    model: str = ""
    """Model name on the server."""
    api_key_env: Annotated[
        str,
        Option(
            "",
            "Environment variable that holds the API key of a server; the key itself is never stored or printed.",
            FieldKind(metavar="NAME"),
            "rare",
        ),
    ] = ""
    """Empty sends none."""

    @property
    def address(self) -> Address:
        """Raises UsageError."""
        return Address.parse(self.base_url, self.api_key_env or None)
