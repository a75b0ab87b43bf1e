"""Generations of every kind of server, from what real servers sent."""

import threading
import time
from collections.abc import Iterator

import pytest

from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.messages import Generate, Prompt
from ggbench.engines.http.request import StreamedRequest
from ggbench.engines.http.server import Server
from tests.engines.http.conftest import Generation, Serve, plain_completions
from tests.fakes.endpoint import TestEndpoint
from tests.fakes.endpoint_voices import AnyLength, Body, Recording, Said

KINDS = ["llama_server", "vllm", "ollama"]


def generate(endpoint: TestEndpoint, n_prompt: int = 64, n_gen: int = 24) -> Generation:
    """Return one generation by the server's only or first model."""
    with Server(Address.parse(endpoint.url), timeout_s=20) as server:
        return Generation(server, Generate(server.info.models[0].name, Prompt(n_prompt, text="a b"), n_gen))


@pytest.mark.parametrize("name", KINDS)
def test_a_stream_has_its_arrivals_in_order(name: str, serve: Serve) -> None:
    sent, *pieces = generate(serve(Recording(name))).arrivals
    assert sent.piece is None
    assert [each.piece.is_last for each in pieces if each.piece] == [False] * (len(pieces) - 1) + [True]
    times = [sent.at_ns, *(each.at_ns for each in pieces)]
    assert times == sorted(times)


def test_llama_server_times_each_token_itself(serve: Serve) -> None:
    found = generate(serve(Recording("llama_server")))
    assert [each.n_tokens for each in found.tokens] == [1] * 24
    clock = [each.piece.decode_ns for each in found.tokens if each.piece]
    assert clock == sorted(clock, key=lambda ns: ns or 0)
    said = found.request.said
    assert (said.n_prompt, said.n_gen, list(found.request.mismatches())) == (64, 24, [])
    assert said.decode_ns == clock[-1]
    assert said.prompt_ns is not None
    read = [each.piece.n_read for each in found.arrivals if each.piece]
    assert [n_read for n_read in read if n_read is not None] == [0, 64]


def test_vllm_counts_chunks_of_several_tokens_by_usage(serve: Serve) -> None:
    found = generate(serve(Recording("vllm")))
    assert sum(each.n_tokens for each in found.tokens) == 24
    assert all(each.piece.decode_ns is None for each in found.tokens if each.piece)
    said = found.request.said
    assert (said.n_prompt, said.n_gen, said.finish_reason) == (64, 24, "length")
    assert not list(found.request.mismatches())


def test_speculative_decoding_is_reported(serve: Serve) -> None:
    """A recorded llama-server that drafts with its own model: all 17 were accepted, so 24 tokens took 7 steps."""
    found = generate(serve(Recording("llama_server_drafting")))
    said = found.request.said
    assert (said.n_drafted, said.n_accepted, said.n_gen) == (17, 17, 24)
    assert len({each.piece.decode_ns for each in found.tokens if each.piece}) == 1 + 24 - 1 - 17


@pytest.mark.parametrize("name", ["llama_server", "vllm"])
def test_the_same_tokens_are_asked_of_every_server_that_takes_them(name: str, serve: Serve) -> None:
    with Server(Address.parse(serve(Recording(name)).url)) as server:
        model = server.info.models[0].name
        first, second = (server.prompt(model, 100, index) for index in range(2))
        assert (len(first.tokens), first.n_tokens, first.text) == (100, 100, "")
        assert second.tokens[:99] == first.tokens[1:]


@pytest.mark.parametrize("name", ["ollama", "openai"])
def test_a_prompt_of_words_has_the_length_that_the_server_counts(name: str, serve: Serve) -> None:
    """The server adds a token to each text: one word less makes up for it."""
    endpoint = serve(plain_completions() if name == "openai" else AnyLength(name))
    with Server(Address.parse(endpoint.url)) as server:
        model = server.info.models[0].name
        for n_prompt in (16, 300):
            request = Generation(server, Generate(model, server.prompt(model, n_prompt), 4)).request
            assert (request.said.n_prompt, list(request.mismatches())) == (n_prompt, [])


class Together(AnyLength):
    """A server that answers nobody before eight ask."""

    _all_asked = threading.Barrier(8)

    def stream(self, path: str, body: Body) -> Iterator[Said]:
        self._all_asked.wait(timeout=30)
        yield from super().stream(path, body)


def test_concurrent_requests_run_at_once(serve: Serve) -> None:
    with Server(Address.parse(serve(Together("vllm")).url)) as server:
        asked = Generate("tiny-llama", Prompt(8, tuple(range(8))), 20)
        requests = [StreamedRequest(asked, server.info.clock) for _ in range(8)]
        for _ in server.stream(requests):
            pass
    assert [request.said.n_gen for request in requests] == [20] * 8


def test_cancelling_closes_the_connection_at_once(serve: Serve) -> None:
    endpoint = serve(AnyLength("llama_server", pause_s=30))
    cancel = threading.Event()
    with Server(Address.parse(endpoint.url)) as server:
        request = StreamedRequest(Generate("m", Prompt(4, (1, 2, 3, 4)), 8), server.info.clock)
        threading.Timer(0.2, cancel.set).start()
        started = time.monotonic()
        assert not list(server.stream([request], cancel))
        assert time.monotonic() - started < 10
    assert request.error is None and not request.said.is_last


def test_ollama_is_read_as_it_documents(serve: Serve) -> None:
    """Ollama's example ended before what was asked for."""
    request = generate(serve(Recording("ollama")), n_prompt=26, n_gen=300).request
    said = request.said
    assert (said.n_prompt, said.n_gen, said.finish_reason) == (26, 259, "stop")
    assert said.prompt_ns == 130079000
    fewer, uncounted = request.mismatches()
    assert "259" in fewer and "did not count the tokens in each of" in uncounted
