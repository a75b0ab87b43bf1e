"""A server as an engine: it has loaded its model itself and is queried over HTTP.

Its allocations and load settings are unknown, and not guessed. The first token comes with the prompt, so it is not a
decode step: `n_gen` steps take a request for `n_gen` + 1 tokens. The step that makes token i + 1 decodes token i, at
position n_prompt + i.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from ggbench.engines.contract import (
    DEFAULT_TIMEOUT_S,
    FLUSH_NS,
    BatchedDecode,
    Decode,
    EngineConfig,
    Prefill,
    Source,
    Workload,
)
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, TimedOut
from ggbench.engines.events import (
    Event,
    Loaded,
    Opened,
    PromptRead,
    ReadingPrompts,
    Ready,
    RequestEnded,
    ServerAnswered,
    Steps,
    TokensTogether,
)
from ggbench.engines.server.config import Address, EndpointConfig
from ggbench.engines.server.contract import (
    Ended,
    Generate,
    GenerationFailed,
    Item,
    OfferedModel,
    PromptProgress,
    Sent,
    Tokens,
)
from ggbench.engines.server.server import Server
from ggbench.errors import GgbenchError, NetworkError, ServerFailed, ServerTimeout, UnknownName
from ggbench.stats.decode_timing import Clock, RequestTiming, ServerFound, TokenChunks

CONFIG = EndpointConfig

_LOADING = 8
"""Tokens of the prompt that makes a server load its model."""
_HOLD_S = 0.05


def launch(
    cancel: threading.Event, *, timeout_s: float = DEFAULT_TIMEOUT_S, hold: threading.Event | None = None
) -> EndpointEngine:
    """Return an engine that closes its requests when `cancel` is set, and starts none while `hold` is set."""
    return EndpointEngine(cancel, timeout_s=timeout_s, hold=hold)


class EndpointEngine:
    def __init__(
        self, cancel: threading.Event, *, timeout_s: float, hold: threading.Event | None = None
    ) -> None:
        self._cancel, self._timeout_s, self._hold = cancel, timeout_s, hold or threading.Event()
        self._server: Server | None = None
        self._model = OfferedModel("")
        self._prompts = random.SystemRandom().randrange(1 << 30)
        """Number of the next prompt, starting at random, so that no server has cached it in an earlier run."""

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Find the server and its model, and time requests without computation; the source is not used."""
        if not isinstance(setup, EndpointConfig):
            yield Failed("load", "this is not the setup of a server")
            return
        self.close()
        began = time.perf_counter()
        try:
            address = Address.parse(setup.base_url, setup.api_key_env or None)
            server, answered = self._connect(address, setup.model)
        except GgbenchError as error:
            yield Ready(None, {})
            yield Failed("load", error.message, error)
            return
        yield Ready(None, {"server": f"{server.info.title} {server.info.version or ''}".rstrip()})
        yield answered
        ending: Ending = Completed()
        if not self._model.is_loaded:
            ending = yield from self._load(server)
        if isinstance(ending, Completed):
            seconds = time.perf_counter() - began
            yield Loaded(seconds, tensor_bytes=self._model.tensor_bytes)
            yield Opened(seconds, n_ctx=self._model.n_ctx)
        yield ending

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Run a workload, with a request for each sequence."""
        server = self._server
        self._wait_while_held()
        if server is None:
            yield Failed(workload.stage, "no server is open")
            return
        try:
            match workload:
                case Prefill():
                    yield (yield from self._read_prompts(server, workload))
                case Decode(n_prompt, n_gen):
                    yield (yield from self._decode(server, workload, n_prompt, n_gen, 1))
                case BatchedDecode(n_prompt, n_gen, n_seqs):
                    yield (yield from self._decode(server, workload, n_prompt, n_gen, n_seqs))
        except GgbenchError as error:  # raised by making a prompt; a stream does not raise
            yield Cancelled() if self._cancel.is_set() else _ending_of(error, workload.stage, self._timeout_s)

    def close(self) -> None:
        """Close all connections, so that the server stops; may be called twice, and a later `open` makes new ones."""
        if self._server is not None:
            self._server.close()
        self._server = None

    def _wait_while_held(self) -> None:
        while self._hold.is_set() and not self._cancel.is_set():
            time.sleep(_HOLD_S)

    def _connect(self, address: Address, model: str | None = None) -> tuple[Server, ServerAnswered]:
        """Find the server and its model, the first if `model` is None.

        Raises GgbenchError.
        """
        server = self._server = Server(address, timeout_s=self._timeout_s, cancel=self._cancel)
        info = server.info
        found = next((each for each in info.models if model in (None, each.name)), None)
        if found is None:
            raise UnknownName("model of this server", model or "", [each.name for each in info.models])
        self._model = found
        return server, ServerAnswered(ServerFound(info.title, info.version or "", info.n_parallel))

    def _load(self, server: Server) -> Generator[Event, None, Ending]:
        """Make the server load its model by an unrecorded request for one token."""
        error: GgbenchError | None
        try:
            error = (yield from self._prompt_alone(server, _LOADING)).error
        except GgbenchError as raised:
            error = raised
        if self._cancel.is_set():
            return Cancelled()
        return Completed() if error is None else Failed("load", error.message, error)

    def _request(self, server: Server, n_prompt: int, n_gen: int) -> Generate:
        """Raises GgbenchError for a request that does not fit, or whose prompt cannot be made."""
        n_ctx, n_needed = self._model.n_ctx, n_prompt + n_gen
        if n_ctx is not None and n_needed > n_ctx:
            raise ServerFailed(f"{n_needed:,} tokens do not fit into the server's context of {n_ctx:,}")
        self._prompts += 1
        return Generate(self._model.name, server.prompt(self._model.name, n_prompt, self._prompts), n_gen)

    def _prompt_alone(self, server: Server, n_prompt: int) -> Generator[Event, None, _StreamedRequest]:
        """Send a prompt with a request for one token. Raises GgbenchError if the prompt cannot be made."""
        request = self._request(server, n_prompt, 1)
        stream = _StreamedRequest(n_prompt, 1, server.info.clock)
        for _, item in server.stream([request], self._cancel):
            yield from stream.take(item)
        return stream

    def _read_prompts(self, server: Server, workload: Prefill) -> Generator[Event, None, Ending]:
        """Time a prompt by a request for one token, by the server's own clock if it has one."""
        ending: Ending = Completed()
        for number in range(workload.warmup + workload.repeat):
            stream = yield from self._prompt_alone(server, workload.n_prompt)
            ending = self._how_it_ended(workload, [stream])
            if not isinstance(ending, Completed):
                break
            if number >= workload.warmup:
                yield from _finished([stream])
        return ending

    def _decode(
        self, server: Server, workload: Workload, n_prompt: int, n_gen: int, n_seqs: int
    ) -> Generator[Event, None, Ending]:
        """Time `n_gen` steps of each sequence; the token before the first step comes with the prompt."""
        requests = [self._request(server, n_prompt, n_gen + 1) for _ in range(n_seqs)]
        seqs = range(n_seqs) if n_seqs > 1 else [None]
        streams = [_StreamedRequest(n_prompt, n_gen + 1, server.info.clock, seq) for seq in seqs]
        for index, item in server.stream(requests, self._cancel):
            yield from streams[index].take(item)
        yield from _finished(streams)
        return self._how_it_ended(workload, streams)

    def _how_it_ended(self, workload: Workload, streams: list[_StreamedRequest]) -> Ending:
        if self._cancel.is_set():
            return Cancelled()
        for stream in streams:
            if stream.error is not None:
                return _ending_of(stream.error, workload.stage, self._timeout_s)
        for stream in streams:
            if (n_tokens := stream.timing.n_tokens) < stream.n_gen:
                why = stream.ended.finish_reason if stream.ended else ""
                done = f"{n_tokens:,} of {stream.n_gen:,} tokens ({why or 'no reason given'})"
                return Failed(workload.stage, f"the server ended after {done}")
        return Completed()


def _finished(streams: Sequence[_StreamedRequest]) -> Iterator[Event]:
    """Report the rest of streams sent together, and the time of their prompts if each generated a token."""
    sent_ns = min((stream.sent_ns for stream in streams if stream.sent_ns is not None), default=0)
    for stream in streams:
        stream.origin_ns = sent_ns
        yield from stream.finish()
    firsts = [stream.first_token_ns for stream in streams if stream.first_token_ns is not None]
    if len(firsts) < len(streams):
        return
    first, n_seqs = streams[0], len(streams)
    n_prompt, elapsed_ns = first.n_prompt, max(firsts) - sent_ns
    if n_seqs == 1 and first.ended is not None:  # by the server's own clock and count
        n_prompt, elapsed_ns = first.ended.n_prompt or n_prompt, first.ended.prompt_ns or elapsed_ns
    yield PromptRead(n_prompt, elapsed_ns, n_seqs, n_asked=first.n_prompt)


def _ending_of(error: GgbenchError, stage: str, timeout_s: float) -> Ending:
    match error:
        case ServerTimeout():
            return TimedOut(timeout_s, "server")
        case NetworkError():
            return Crashed(error.message)
        case _:
            return Failed(stage, error.message)


_CHUNKS_EVERY_NS = 1_000_000_000
"""Minimum interval between reports of chunks, as each is a record in the store."""
_NOTHING = Ended(0, None, None, "")


@dataclass(slots=True)
class _StreamedRequest:
    """What arrived of one request, and what of it is not yet reported."""

    n_prompt: int
    n_gen: int
    clock: Clock
    seq: int | None = None
    origin_ns: int = 0
    """Time at which the first request of the batch was sent, by the client's clock."""
    error: GgbenchError | None = None
    sent_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    n_tokens: int = 0
    """Tokens, or chunks if the server does not count its tokens."""
    ended: Ended | None = None
    _is_counted: bool = True
    _n_together: int = 0
    _clock_ns: int = 0
    """Time of the last timed token: by the server's clock from the first token, or by the client's."""
    _n_timed: int = 0
    """Number of tokens up to that one."""
    _steps: list[int] = field(default_factory=list)
    _steps_from: int = 0
    """Position of the first of `_steps`."""
    _text: list[str] = field(default_factory=list)
    _ended_steps: list[Steps] = field(default_factory=list)
    """Steps before a chunk."""
    _chunks: list[tuple[int, int, int]] = field(default_factory=list)
    """Position of the first token, tokens and time of each."""
    _flushed_ns: int = 0
    _chunks_flushed_ns: int = 0

    def take(self, item: Item) -> Iterator[Event]:
        match item:
            case Sent(at_ns):
                self.sent_ns = self._flushed_ns = self._chunks_flushed_ns = at_ns
            case PromptProgress(n_tokens=n_tokens):
                yield ReadingPrompts(min(1.0, n_tokens / max(1, self.n_prompt)))
            case Tokens():
                self._take_tokens(item)
                if item.at_ns - self._flushed_ns > FLUSH_NS:
                    self._flushed_ns = item.at_ns
                    yield from self._flush_steps()
                if item.at_ns - self._chunks_flushed_ns > _CHUNKS_EVERY_NS:
                    self._chunks_flushed_ns = item.at_ns
                    yield from self._flush_chunks()
            case Ended():
                self.ended = item
            case GenerationFailed(error=error):
                self.error = error

    def finish(self) -> Iterator[Event]:
        """Report the rest, whether the stream ended or was abandoned."""
        yield from self._flush_steps()
        yield from self._flush_chunks()
        yield RequestEnded(self.timing, self.seq)

    @property
    def timing(self) -> RequestTiming:
        ended, n_tokens = self.ended or _NOTHING, self.n_tokens
        if not self._is_counted and ended.n_gen is not None:
            n_tokens = ended.n_gen
        is_exact = self._is_counted or ended.n_gen == self.n_tokens
        remarks = ended.request_mismatches
        if not is_exact:
            remarks = (*remarks, f"did not count the tokens in each of {self.n_tokens:,} chunks")
        return RequestTiming(
            n_prompt=self.n_prompt,
            n_gen=self.n_gen,
            sent_ns=self._since(self.sent_ns) or 0,
            clock=self.clock,
            first_token_ns=self._since(self.first_token_ns),
            last_token_ns=self._since(self.last_token_ns),
            n_prompt_counted=ended.n_prompt,
            n_tokens=n_tokens,
            n_tokens_together=self._n_together,
            n_drafted=ended.n_drafted,
            n_accepted=ended.n_accepted,
            is_exact=is_exact,
            remarks=remarks,
        )

    def _since(self, at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns - self.origin_ns

    def _take_tokens(self, item: Tokens) -> None:
        self._text.append(item.text)
        n_new = item.n_tokens
        if n_new is None:
            self._is_counted, n_new = False, 1
        if n_new < 1:
            return
        self.n_tokens += n_new
        self.last_token_ns = item.at_ns
        if n_new > 1:
            self._n_together += n_new
        is_first, by_server = self.first_token_ns is None, self.clock == "server"
        if is_first:
            self.first_token_ns = item.at_ns
        if is_first and by_server:
            self._n_timed = 1
        elif is_first:
            self._n_timed, self._clock_ns = self.n_tokens, item.at_ns
        self._time_tokens(item.decode_ns if by_server else item.at_ns)

    def _time_tokens(self, at_ns: int | None) -> None:
        """Time the tokens since the last timed one: one is a step, several are a chunk."""
        n_new, first = self.n_tokens - self._n_timed, self.n_prompt + self._n_timed
        if at_ns is None or at_ns < self._clock_ns or not n_new:
            return
        elapsed_ns = at_ns - self._clock_ns
        self._n_timed, self._clock_ns = self.n_tokens, at_ns
        if n_new > 1:
            self._end_steps()
            self._chunks.append((first, n_new, elapsed_ns))
            return
        self._steps.append(elapsed_ns)
        if len(self._steps) == 1:
            self._steps_from = first

    def _end_steps(self) -> None:
        if self._steps:
            text = "".join(self._text)
            self._ended_steps.append(Steps(self._steps_from, self._steps, [], text, self.clock, self.seq))
            self._steps, self._text = [], []

    def _flush_steps(self) -> Iterator[Event]:
        self._end_steps()
        yield from self._ended_steps
        self._ended_steps = []

    def _flush_chunks(self) -> Iterator[Event]:
        if self._chunks:
            positions, counts, elapsed = zip(*self._chunks, strict=True)
            yield TokensTogether(TokenChunks(positions, counts, elapsed), self.seq)
            self._chunks = []
