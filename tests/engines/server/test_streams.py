"""Generations of every kind of server, from what real servers sent."""

import threading
import time
from collections.abc import Iterator

import pytest

from ggbench.engines.server.config import Address
from ggbench.engines.server.contract import (
    Ended,
    Generate,
    GenerationFailed,
    Item,
    Prompt,
    PromptProgress,
    Sent,
    Tokens,
)
from ggbench.engines.server.server import Server
from tests.engines.server.conftest import Serve, plain_completions
from tests.fakes.endpoint import TestEndpoint
from tests.fakes.endpoint_voices import AnyLength, Body, Recording, Said

KINDS = ["llama_server", "vllm", "ollama"]


def generate(endpoint: TestEndpoint, n_prompt: int = 64, n_gen: int = 24) -> list[Item]:
    """Return the items of one generation by the server's only or first model."""
    with Server(Address.parse(endpoint.url), timeout_s=20) as server:
        model = server.info.models[0].name
        return [item for _, item in server.stream([Generate(model, Prompt(n_prompt, text="a b"), n_gen)])]


def tokens(items: list[Item]) -> list[Tokens]:
    return [item for item in items if isinstance(item, Tokens)]


def ended(items: list[Item]) -> Ended:
    """Return the end; the test fails where the stream did."""
    last = items[-1]
    assert isinstance(last, Ended), last
    return last


@pytest.mark.parametrize("name", KINDS)
def test_a_stream_has_its_items_in_order(name: str, serve: Serve) -> None:
    items = generate(serve(Recording(name)))
    assert isinstance(items[0], Sent)
    assert all(isinstance(item, Tokens | PromptProgress) for item in items[1:-1])
    ended(items)
    times = [item.at_ns for item in items]
    assert times == sorted(times)


def test_llama_server_times_each_token_itself(serve: Serve) -> None:
    items = generate(serve(Recording("llama_server")))
    each = tokens(items)
    assert [item.n_tokens for item in each] == [1] * 24
    clock = [item.decode_ns for item in each]
    assert clock == sorted(clock, key=lambda ns: ns or 0)
    end = ended(items)
    assert (end.n_prompt, end.n_gen, end.request_mismatches) == (64, 24, ())
    assert end.decode_ns == clock[-1]
    assert end.prompt_ns is not None
    assert [item.n_tokens for item in items if isinstance(item, PromptProgress)] == [0, 64]


def test_vllm_counts_chunks_of_several_tokens_by_usage(serve: Serve) -> None:
    items = generate(serve(Recording("vllm")))
    counts = [item.n_tokens or 0 for item in tokens(items)]
    assert sum(counts) == 24
    assert all(item.decode_ns is None for item in tokens(items))
    end = ended(items)
    assert (end.n_prompt, end.n_gen, end.finish_reason, end.request_mismatches) == (64, 24, "length", ())


def test_speculative_decoding_is_reported(serve: Serve) -> None:
    """A recorded llama-server that drafts with its own model: all 17 were accepted, so 24 tokens took 7 steps."""
    items = generate(serve(Recording("llama_server_drafting")))
    end = ended(items)
    assert (end.n_drafted, end.n_accepted, end.n_gen) == (17, 17, 24)
    assert len({item.decode_ns for item in tokens(items)}) == 1 + 24 - 1 - 17


@pytest.mark.parametrize("name", ["llama_server", "vllm"])
def test_the_same_tokens_are_asked_of_every_server_that_takes_them(name: str, serve: Serve) -> None:
    with Server(Address.parse(serve(Recording(name)).url)) as server:
        model = server.info.models[0].name
        first, second = (server.prompt(model, 100, index) for index in range(2))
        assert (len(first.tokens), first.n_tokens, first.text) == (100, 100, "")
        assert second.tokens[:99] == first.tokens[1:]


@pytest.mark.parametrize("name", ["ollama", "openai"])
def test_a_prompt_of_words_has_the_length_that_the_server_counts(name: str, serve: Serve) -> None:
    """The server adds a token to each text: one word less makes up for it. One generation is enough for all lengths."""
    endpoint = serve(plain_completions() if name == "openai" else AnyLength(name))
    with Server(Address.parse(endpoint.url)) as server:
        model = server.info.models[0].name
        for n_prompt in (16, 300):
            items = [item for _, item in server.stream([Generate(model, server.prompt(model, n_prompt), 4)])]
            assert (ended(items).n_prompt, ended(items).request_mismatches) == (n_prompt, ())
    posts = [request.path for request in endpoint.requests if request.method == "POST" and request.path != "/api/show"]
    assert len(posts) == 3


class Together(AnyLength):
    """A server that answers nobody before eight ask."""

    _all_asked = threading.Barrier(8)

    def stream(self, path: str, body: Body) -> Iterator[Said]:
        self._all_asked.wait(timeout=30)
        yield from super().stream(path, body)


def test_concurrent_requests_run_at_once(serve: Serve) -> None:
    with Server(Address.parse(serve(Together("vllm")).url)) as server:
        asked = [Generate("tiny-llama", Prompt(8, tuple(range(8))), 20) for _ in range(8)]
        found = list(server.stream(asked))
    ends = {index: item for index, item in found if isinstance(item, Ended)}
    assert sorted(ends) == list(range(8))
    assert all(end.n_gen == 20 for end in ends.values())


def test_cancelling_closes_the_connection_at_once(serve: Serve) -> None:
    endpoint = serve(AnyLength("llama_server", pause_s=30))
    cancel = threading.Event()
    with Server(Address.parse(endpoint.url)) as server:
        stream = server.stream([Generate("m", Prompt(4, (1, 2, 3, 4)), 8)], cancel)
        assert isinstance(next(stream)[1], Sent)
        cancel.set()
        started = time.monotonic()
        rest = [item for _, item in stream]
        assert time.monotonic() - started < 10
    assert not any(isinstance(item, Ended | GenerationFailed) for item in rest)


def test_ollama_is_read_as_it_documents(serve: Serve) -> None:
    """Ollama's example ended before what was asked for."""
    end = ended(generate(serve(Recording("ollama")), n_prompt=26, n_gen=300))
    assert (end.n_prompt, end.n_gen, end.finish_reason) == (26, 259, "stop")
    assert end.prompt_ns == 130079000
    assert len(end.request_mismatches) == 1 and "259" in end.request_mismatches[0]
