"""What a module in `ggbench.engines.server.kinds` offers, and how those modules are found."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.contract import Ended, Generate, Prompt, PromptProgress, ServerInfo, Tokens

_T = TypeVar("_T")

Progress = PromptProgress | Tokens | Ended


class InvalidStream(Exception):
    """A line that the kind of server does not send; the message says what is wrong with it."""


class ServerReported(Exception):
    """An error that the server reported in the stream; untrusted text."""


class StreamReader(Protocol):
    """Reads one stream. Raises InvalidStream and ServerReported."""

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        """Return what a line says; nothing for an empty one. The line has no line ending."""
        ...

    def finish(self, at_ns: int) -> Ended | None:
        """Return the end of a stream that was closed without one; None where the generation had not ended."""
        ...


class Kind(Protocol):
    """A kind of server."""

    TITLE: str
    """For people."""
    RANK: int
    """Kinds are tried in this order: those that others imitate come after those that imitate."""
    EMPTY_PATH: str
    """Of a GET request that costs the server nothing."""

    def recognize(self, client: Client) -> ServerInfo | None:
        """Return what the server offers; None where it is of another kind. Raises NetworkError and ServerFailed."""
        ...

    def prompt(self, client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
        """Return a prompt of that many tokens. Raises NetworkError and ServerFailed.

        `added` returns how many tokens the server adds to a text, found by a generation of one token.
        """
        ...

    def request(self, generate: Generate) -> Post:
        """Return the request that asks for it."""
        ...

    def reader(self, generate: Generate) -> StreamReader:
        """Return a reader of the response to `request`."""
        ...


@functools.cache
def all_kinds() -> tuple[Kind, ...]:
    """Return every kind, in the order in which they are tried."""
    from ggbench.engines.server import kinds

    names = sorted(each.name for each in pkgutil.iter_modules(kinds.__path__))
    found: list[Kind] = [importlib.import_module(f"{kinds.__name__}.{name}") for name in names]
    return tuple(sorted(found, key=lambda kind: kind.RANK))


def decode_as(document: bytes, shape: type[_T]) -> _T:
    """Return a JSON document as a struct. Raises InvalidStream."""
    try:
        return msgspec.json.decode(document, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidStream(str(error)) from None
