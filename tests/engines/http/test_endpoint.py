"""The engine that asks a server, on scripted streams."""

import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import Decode, Prefill, Source
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, TimedOut
from ggbench.engines.events import Event, Opened, PromptRead, Ready, RequestEnded, ServerAnswered, Steps, TokensTogether
from ggbench.engines.http.endpoint import EndpointConfig
from ggbench.engines.http.engine import HttpEngine
from ggbench.engines.http.server import Server
from ggbench.errors import GgbenchError, NetworkError, ServerFailed, ServerTimeout, UnknownName
from tests.fakes.endpoint import Handler, Request, TestEndpoint
from tests.fakes.endpoint_faults import hangs_at_once, of_streams
from tests.fakes.endpoint_voices import Recording
from tests.fakes.server_items import PROMPT_NS_PER_TOKEN, Script, ScriptedServer, on_a_line, step_ns

SETUP = EndpointConfig("http://s", "tiny")
Opener = Callable[..., tuple[HttpEngine, list[Event | Ending]]]


@pytest.fixture
def cancel() -> threading.Event:
    return threading.Event()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, cancel: threading.Event) -> Opener:
    def open_it(
        script: Script | None = None, setup: EndpointConfig = SETUP, **server: object
    ) -> tuple[HttpEngine, list[Event | Ending]]:
        scripted = ScriptedServer(script or on_a_line(), **server)  # type: ignore[arg-type]
        monkeypatch.setattr("ggbench.engines.http.engine.Server", lambda *_, **__: scripted)
        engine = HttpEngine(cancel, timeout_s=5)
        return engine, list(engine.open(Source(), setup))

    return open_it


def _steps(events: list[Event | Ending], seq: int | None = None) -> dict[int, int]:
    found: dict[int, int] = {}
    for event in events:
        if isinstance(event, Steps) and event.seq == seq:
            found |= {event.first_position + i: ns for i, ns in enumerate(event.step_ns)}
    return found


def _of(events: list[Event | Ending], kind: type) -> list[object]:
    return [event for event in events if isinstance(event, kind)]


def test_a_server_is_opened_with_what_it_says_and_no_more(opened: Opener) -> None:
    _, events = opened()
    ready, answered, *_, before, ending = events
    assert ready == Ready(None, {"server": "llama-server b1"})
    assert isinstance(answered, ServerAnswered)
    assert answered.found.n_slots == 4
    assert isinstance(before, Opened)
    assert (before.n_ctx, before.n_batch, before.left_bytes) == (4096, None, None)
    assert isinstance(ending, Completed)


def test_steps_are_the_servers_own(opened: Opener) -> None:
    engine, _ = opened()
    *events, ending = engine.run(Decode(25, 100))
    assert isinstance(ending, Completed)
    assert _steps(events) == {25 + n: step_ns(25, n) for n in range(1, 101)}
    assert {event.clock for event in events if isinstance(event, Steps)} == {"server"}
    (read,) = _of(events, PromptRead)
    assert read == PromptRead(25, 25 * PROMPT_NS_PER_TOKEN, n_asked=25)
    (request,) = _of(events, RequestEnded)
    assert isinstance(request, RequestEnded)
    assert (request.timing.n_tokens, request.timing.n_gen) == (101, 101)


def test_a_model_that_is_gone_is_an_error_with_those_that_are_there(opened: Opener) -> None:
    _, events = opened(setup=replace(SETUP, model="tinier"))
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].cause, UnknownName)
    assert "tiny" in events[-1].cause.hint


def test_chunks_are_counted_and_not_taken_apart(opened: Opener) -> None:
    engine, _ = opened(on_a_line(sizes=(3, 1)))
    *events, ending = engine.run(Decode(25, 40))
    assert isinstance(ending, Completed)
    chunks = {
        first: (n_tokens, ns)
        for event in events
        if isinstance(event, TokensTogether)
        for first, n_tokens, ns in zip(
            event.chunks.first_position, event.chunks.n_tokens, event.chunks.elapsed_ns, strict=True
        )
    }
    assert chunks == {25 + n: (3, sum(step_ns(25, n + i) for i in range(3))) for n in range(1, 41, 4)}
    assert _steps(events) == {25 + n: step_ns(25, n) for n in range(4, 41, 4)}
    (request,) = _of(events, RequestEnded)
    assert isinstance(request, RequestEnded)
    assert (request.timing.n_tokens, request.timing.n_tokens_together) == (41, 30)


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ServerTimeout("silent"), TimedOut(5, "server")),
        (NetworkError("the connection broke"), Crashed("the connection broke")),
        (ServerFailed("out of slots"), Failed("decode", "out of slots")),
    ],
)
def test_a_stream_that_breaks_off_keeps_what_came(opened: Opener, error: GgbenchError, ending: Ending) -> None:
    engine, _ = opened(on_a_line(stops_after=30, error=error))
    *events, last = engine.run(Decode(25, 100))
    assert last == ending
    assert len(_steps(events)) == 29
    (request,) = _of(events, RequestEnded)
    assert isinstance(request, RequestEnded)
    assert request.timing.n_tokens == 30


def test_cancelling_ends_the_first_request_of_a_server_that_counts_text(cancel: threading.Event) -> None:
    def hang(handler: Handler, request: Request) -> None:
        cancel.set()
        hangs_at_once(handler, request)

    with TestEndpoint(Recording("ollama"), of_streams(hang)) as endpoint:
        engine = HttpEngine(cancel, timeout_s=5)
        with Server(EndpointConfig(endpoint.url).address) as server:
            setup = EndpointConfig(endpoint.url, server.info.models[0].name)
        endings = [list(engine.open(Source(), setup))[-1]]
        if isinstance(endings[-1], Completed):
            endings.append(list(engine.run(Prefill(25)))[-1])
        engine.close()
    assert endings[-1] == Cancelled()
