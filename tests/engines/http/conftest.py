"""Fixtures of the servers' tests: a fake server by the name of a recording."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ggbench.engines.http.messages import Arrival, Generate
from ggbench.engines.http.request import StreamedRequest
from ggbench.engines.http.server import Server
from tests.fakes.endpoint import Fault, TestEndpoint
from tests.fakes.endpoint_voices import AnyLength, Recording

Serve = Callable[..., TestEndpoint]


class Generation:
    """One generation by a server's first model: what arrived, and the request that took it."""

    def __init__(self, server: Server, asked: Generate) -> None:
        self.request = StreamedRequest(asked, server.info.clock)
        self.arrivals: list[Arrival] = []
        for _, arrival in server.stream([asked]):
            self.arrivals.append(arrival)
            list(self.request.take(arrival))

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
