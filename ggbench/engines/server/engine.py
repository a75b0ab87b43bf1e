"""A server as an engine: it has loaded its model itself and is queried over HTTP.

Its allocations and load settings are unknown, and not guessed. The first token comes with the prompt, so it is not a
decode step: `n_gen` steps take a request for `n_gen` + 1 tokens. The step that makes token i + 1 decodes token i, at
position n_prompt + i.
"""

from __future__ import annotations

import random
import statistics
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
from ggbench.errors import GgbenchError, NetworkError, ServerTimeout, UnknownName
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
    def __init__(self, cancel: threading.Event, *, timeout_s: float, hold: threading.Event | None = None) -> None:
        self._cancel, self._timeout_s, self._hold = cancel, timeout_s, hold or threading.Event()
        self._server: Server | None = None
        self._model = OfferedModel("")
        self._clock: Clock = "client"
        self._takes_totals = False
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
        yield Ready(None, {"server": " ".join(filter(None, (server.info.title, server.info.version)))})
        yield answered
        n_ctx = self._model.n_ctx
        if not self._model.is_loaded:
            ending = yield from self._load(server)
            if not isinstance(ending, Completed):
                yield ending
                return
        seconds = time.perf_counter() - began
        yield Loaded(seconds, tensor_bytes=self._model.tensor_bytes)
        yield Opened(seconds, n_ctx=n_ctx)
        yield Completed()

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
        """Find the server, its model (None for its first) and its clock, and time requests without computation.

        Raises GgbenchError.
        """
        server = self._server = Server(address, timeout_s=self._timeout_s, cancel=self._cancel)
        info = server.info
        found = next((each for each in info.models if model in (None, each.name)), None)
        if found is None:
            raise UnknownName("model of this server", model or "", [each.name for each in info.models])
        self._model = found
        self._clock = "server" if info.clock == "each token" else "client"
        self._takes_totals = info.clock != "none"
        facts = ServerFound(info.title, info.version or "", found.n_ctx, info.n_parallel, server.round_trips_ns())
        return server, ServerAnswered(facts)

    def _load(self, server: Server) -> Generator[Event, None, Ending]:
        """Make the server load its model by an unrecorded request for one token."""
        try:
            stream = yield from self._prompt_alone(server, _LOADING)
        except GgbenchError as error:
            return Cancelled() if self._cancel.is_set() else Failed("load", error.message, error)
        if self._cancel.is_set():
            return Cancelled()
        return Completed() if stream.error is None else Failed("load", stream.error.message, stream.error)

    def _request(self, server: Server, n_prompt: int, n_gen: int) -> Generate:
        self._prompts += 1
        return Generate(self._model.name, server.prompt(self._model.name, n_prompt, self._prompts), n_gen)

    def _prompt_alone(self, server: Server, n_prompt: int) -> Generator[Event, None, _StreamedRequest]:
        """Send a prompt with a request for one token. Raises GgbenchError if the prompt cannot be made."""
        request = self._request(server, n_prompt, 1)
        stream = _StreamedRequest(n_prompt, 1, self._clock)
        for _, item in server.stream([request], self._cancel):
            yield from stream.take(item)
        return stream

    def _read_prompts(self, server: Server, workload: Prefill) -> Generator[Event, None, Ending]:
        """Time a prompt by a request for one token, by the server's own clock if it has one."""
        if reason := self._too_long(workload.n_prompt, 1):
            return Failed(workload.stage, reason)
        for number in range(workload.warmup + workload.repeat):
            stream = yield from self._prompt_alone(server, workload.n_prompt)
            if self._cancel.is_set():
                return Cancelled()
            if stream.error is not None:
                return _ending_of(stream.error, workload.stage, self._timeout_s)
            read = self._prompt_read(stream)
            if read is None:
                return Failed(workload.stage, "the server generated no token after the prompt")
            if number >= workload.warmup:
                stream.origin_ns = _origin_ns([stream])
                yield from stream.finish()
                yield read
        return Completed()

    def _decode(
        self, server: Server, workload: Workload, n_prompt: int, n_gen: int, n_seqs: int
    ) -> Generator[Event, None, Ending]:
        """Time `n_gen` steps of each sequence; the token before the first step comes with the prompt."""
        if reason := self._too_long(n_prompt, n_gen + 1):
            return Failed(workload.stage, reason)
        requests = [self._request(server, n_prompt, n_gen + 1) for _ in range(n_seqs)]
        streams = [
            _StreamedRequest(n_prompt, n_gen + 1, self._clock, seq if n_seqs > 1 else None) for seq in range(n_seqs)
        ]
        n_waiting = n_seqs
        for index, item in server.stream(requests, self._cancel):
            stream, was_waiting = streams[index], streams[index].first_token_ns is None
            yield from stream.take(item)
            if was_waiting and stream.first_token_ns is not None:
                n_waiting -= 1
                if not n_waiting and n_seqs > 1:
                    yield PromptRead(n_prompt, stream.first_token_ns - _origin_ns(streams), n_seqs)
        for stream in streams:
            stream.origin_ns = _origin_ns(streams)
            yield from stream.finish()
        if n_seqs == 1 and (read := self._prompt_read(streams[0])):
            yield read
        return self._how_it_ended(workload, streams)

    def _how_it_ended(self, workload: Workload, streams: list[_StreamedRequest]) -> Ending:
        if self._cancel.is_set():
            return Cancelled()
        failed = [stream.error for stream in streams if stream.error is not None]
        if failed:
            ending = _ending_of(failed[0], workload.stage, self._timeout_s)
            if len(streams) > 1 and isinstance(ending, Failed):
                return Failed(workload.stage, f"{len(failed)} of {len(streams)} requests: {ending.message}")
            return ending
        short = [stream for stream in streams if stream.timing.n_tokens < stream.n_gen]
        if not short:
            return Completed()
        timing, ended = short[0].timing, short[0].ended
        why = f" ({ended.finish_reason})" if ended and ended.finish_reason else ""
        which = f" in {len(short)} of {len(streams)} requests" if len(streams) > 1 else ""
        done = f"{timing.n_tokens:,} of {timing.n_gen:,} tokens"
        return Failed(workload.stage, f"the server ended after {done}{why}{which}")

    def _prompt_read(self, stream: _StreamedRequest) -> PromptRead | None:
        """Return the prompt's time by the server's clock, or else until the first token arrived."""
        if stream.first_token_ns is None or stream.sent_ns is None:
            return None
        own_ns = stream.ended.prompt_ns if stream.ended is not None and self._takes_totals else None
        n_prompt = stream.prompt_tokens
        return PromptRead(
            n_prompt,
            stream.first_token_ns - stream.sent_ns if own_ns is None else own_ns,
            n_asked=stream.n_prompt if stream.n_prompt != n_prompt else None,
        )

    def _too_long(self, n_prompt: int, n_gen: int) -> str:
        """Return why a request does not fit into the server's context; empty if it does, or if unknown."""
        n_ctx = self._model.n_ctx
        if n_ctx is None or n_prompt + n_gen <= n_ctx:
            return ""
        return f"{n_prompt + n_gen:,} tokens do not fit into the server's context of {n_ctx:,}"


def _origin_ns(streams: Sequence[_StreamedRequest]) -> int:
    """Return the time at which the first request was sent."""
    return min((stream.sent_ns for stream in streams if stream.sent_ns is not None), default=0)


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
    n_prompt: int
    n_gen: int
    clock: Clock
    seq: int | None = None
    origin_ns: int = 0
    """Time at which the first request of the batch was sent, by the client's clock."""
    error: GgbenchError | None = None
    sent_ns: int | None = None
    first_token_ns: int | None = None
    n_tokens: int = 0
    ended: Ended | None = None
    _last_ns: int = 0
    _clock_ns: int = 0
    """Time of the last timed token: by the server's clock from the first token, or by the client's."""
    _n_timed: int = 0
    """Number of tokens up to that one."""
    _n_together: int = 0
    _counted_by_chunks: bool = False
    _delays_ns: list[int] = field(default_factory=list)
    """Interval between arrivals minus the interval by the server's clock, for each token."""
    _steps: list[int] = field(default_factory=list)
    _steps_from: int = 0
    """Position of the first of `_steps`."""
    _text: list[str] = field(default_factory=list)
    _chunks: list[tuple[int, int, int]] = field(default_factory=list)
    _flushed_ns: int = 0
    _chunks_flushed_ns: int = 0

    def take(self, item: Item) -> Iterator[Event]:
        match item:
            case Sent(at_ns):
                self.sent_ns = self._flushed_ns = self._chunks_flushed_ns = at_ns
            case PromptProgress(n_tokens=n_tokens):
                yield ReadingPrompts(min(1.0, n_tokens / max(1, self.n_prompt)))
            case Tokens():
                yield from self._take_tokens(item)
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
    def is_exact(self) -> bool:
        """Whether the number of tokens in each chunk is known."""
        return not self._counted_by_chunks or (self.ended is not None and self.ended.n_gen == self.n_tokens)

    @property
    def prompt_tokens(self) -> int:
        return (self.ended.n_prompt if self.ended else None) or self.n_prompt

    @property
    def timing(self) -> RequestTiming:
        ended, n_tokens = self.ended or _NOTHING, self.n_tokens
        if self._counted_by_chunks and ended.n_gen is not None:
            n_tokens = ended.n_gen
        remarks = ended.request_mismatches
        if not self.is_exact and ended.n_gen is not None:
            remarks = (*remarks, f"{n_tokens:,} tokens came in {self.n_tokens:,} chunks of unknown sizes")
        elif not self.is_exact:
            remarks = (*remarks, f"did not count its tokens: {self.n_tokens:,} chunks came")
        return RequestTiming(
            n_prompt=self.n_prompt,
            n_gen=self.n_gen,
            sent_ns=self._since(self.sent_ns) or 0,
            clock=self.clock,
            first_token_ns=self._since(self.first_token_ns),
            last_token_ns=self._since(self._last_ns) if self.n_tokens else None,
            n_prompt_counted=ended.n_prompt,
            n_tokens=n_tokens,
            n_tokens_together=self._n_together,
            server_gen_ns=ended.decode_ns,
            jitter_ns=statistics.stdev(map(float, self._delays_ns)) if len(self._delays_ns) > 1 else None,
            n_drafted=ended.n_drafted,
            n_accepted=ended.n_accepted,
            is_exact=self.is_exact,
            remarks=remarks,
        )

    def _since(self, at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns - self.origin_ns

    def _take_tokens(self, item: Tokens) -> Iterator[Event]:
        if item.n_tokens is None:
            self._counted_by_chunks = True
        n_new = 1 if item.n_tokens is None else item.n_tokens
        self._text.append(item.text)
        if n_new < 1:
            return
        is_first, arrival_ns = self.first_token_ns is None, item.at_ns - self._last_ns
        self.n_tokens += n_new
        self._last_ns = item.at_ns
        if n_new > 1:
            self._n_together += n_new
        if is_first:
            self.first_token_ns = item.at_ns
            self._n_timed, self._clock_ns = (1, 0) if self.clock == "server" else (self.n_tokens, item.at_ns)
        read_ns = item.decode_ns if self.clock == "server" else item.at_ns
        if read_ns is not None and self.n_tokens > self._n_timed and read_ns >= self._clock_ns:
            elapsed_ns, n_timed = read_ns - self._clock_ns, self.n_tokens - self._n_timed
            first_position = self.n_prompt + self._n_timed
            self._n_timed, self._clock_ns = self.n_tokens, read_ns
            if n_timed == 1:
                self._steps_from = self._steps_from if self._steps else first_position
                self._steps.append(elapsed_ns)
                if self.clock == "server" and not is_first:
                    self._delays_ns.append(arrival_ns - elapsed_ns)
            else:
                yield from self._flush_steps()
                self._chunks.append((first_position, n_timed, elapsed_ns))
        if item.at_ns - self._flushed_ns > FLUSH_NS:
            yield from self._flush_steps()
            self._flushed_ns = item.at_ns
        if item.at_ns - self._chunks_flushed_ns > _CHUNKS_EVERY_NS:
            yield from self._flush_chunks()
            self._chunks_flushed_ns = item.at_ns

    def _flush_steps(self) -> Iterator[Event]:
        if self._steps:
            yield Steps(self._steps_from, self._steps, [], "".join(self._text), self.clock, self.seq)
            self._steps, self._text = [], []

    def _flush_chunks(self) -> Iterator[Event]:
        if self._chunks:
            positions, counts, elapsed = zip(*self._chunks, strict=True)
            yield TokensTogether(TokenChunks(positions, counts, elapsed), self.seq)
            self._chunks = []
