"""Fixtures of the servers' tests: a fake server by the name of a recording."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from ggbench.engines.events import Event
from ggbench.engines.http.messages import Generate, Piece
from ggbench.engines.http.request import StreamedRequest
from ggbench.engines.http.server import Server
from tests.fakes.endpoint import Fault, TestEndpoint
from tests.fakes.endpoint_voices import AnyLength, Recording

Serve = Callable[..., TestEndpoint]


@dataclass(frozen=True)
class Arrival:
    at_ns: int
    piece: Piece | None
    n_tokens: int
    """Tokens new in it."""


@dataclass
class Recorded(StreamedRequest):
    """A request that keeps what it takes."""

    arrivals: list[Arrival] = field(default_factory=list)

    def take(self, at_ns: int, piece: Piece | None) -> Iterator[Event]:
        before = self.n_tokens
        yield from super().take(at_ns, piece)
        self.arrivals.append(Arrival(at_ns, piece, self.n_tokens - before))


class Generation:
    """One generation by a server's first model: what arrived, and the request that took it."""

    def __init__(self, server: Server, asked: Generate) -> None:
        self.request = Recorded(asked, server.info.clock)
        self.arrivals = self.request.arrivals
        for _ in server.stream([self.request]):
            pass

    @property
    def tokens(self) -> list[Arrival]:
        """The arrivals of tokens."""
        return [each for each in self.arrivals if each.piece and (each.piece.text or each.n_tokens)]


def plain_completions() -> AnyLength:
    """Return a server with no more than OpenAI's API."""
    voice = AnyLength("vllm")
    voice.documents[("GET", "/v1/models")] = (200, b'{"object":"list","data":[{"id":"m1"},{"id":"m1"},{"id":"m2"}]}')
    return voice


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(voice: Recording, fault: Fault | None = None, tls: ssl.SSLContext | None = None) -> TestEndpoint:
            return stack.enter_context(TestEndpoint(voice, fault, tls=tls))

        yield start
