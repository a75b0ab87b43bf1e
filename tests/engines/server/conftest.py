"""Fixtures of the servers' tests: a fake server by the name of a recording."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.fakes.endpoint import Fault, TestEndpoint
from tests.fakes.endpoint_voices import AnyLength, Recording

Serve = Callable[..., TestEndpoint]


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
