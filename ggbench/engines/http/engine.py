"""A server as an engine, measured over HTTP: one at a URL, or a llama-server that is started for each load and ended.

What a server at a URL allocates, and how it loaded its model, is unknown and not guessed. The first token comes with
the prompt, so it is not a decode step: `n_gen` steps take a request for `n_gen` + 1 tokens. The step that makes token
i + 1 decodes token i, at position n_prompt + i. A step includes the sampler and the server's own work between two
tokens, which ggbench's own llama.cpp does not have.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Generator, Iterator, Sequence

from msgspec.structs import replace

from ggbench.engines.contract import (
    DEFAULT_TIMEOUT_S,
    BatchedDecode,
    Continue,
    Decode,
    DecodeAtDepth,
    EngineConfig,
    Prefill,
    ProveContext,
    Source,
    TakeTurn,
    Workload,
)
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engines.events import (
    ContextProven,
    Continued,
    Event,
    Loaded,
    Opened,
    PromptRead,
    Proving,
    ReadingPrompts,
    Ready,
    ServerAnswered,
    TurnStarted,
)
from ggbench.engines.failure_lines import is_out_of_memory
from ggbench.engines.http import server_log
from ggbench.engines.http.config import LlamaServerConfig
from ggbench.engines.http.endpoint import Address, EndpointConfig
from ggbench.engines.http.messages import Generate, OfferedModel, Prompt
from ggbench.engines.http.process import ServerProcess
from ggbench.engines.http.program import NAME
from ggbench.engines.http.request import StreamedRequest
from ggbench.engines.http.server import Server
from ggbench.engines.llama.rpc import why_unreachable
from ggbench.errors import GgbenchError, NetworkError, ServerFailed, ServerTimeout, UnknownName
from ggbench.text import shorten

CONFIGS = {config.engine: config for config in (EndpointConfig, LlamaServerConfig)}

_LOADING = 8
"""Tokens of the prompt that makes a server load its model."""
_TOO_OLD = Failed("decode", f"this {NAME} is too old: it does not time its tokens")
_Events = Generator[Event, None, Ending]


def launch(cancel: threading.Event, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> HttpEngine:
    """Return an engine that closes its requests when `cancel` is set."""
    return HttpEngine(cancel, timeout_s=timeout_s)


class HttpEngine:
    def __init__(self, cancel: threading.Event, *, timeout_s: float) -> None:
        self._cancel, self._timeout_s = cancel, timeout_s
        self._server: Server | None = None
        self._process: ServerProcess | None = None
        """The server that it started; None for one at a URL."""
        self._model = OfferedModel("")
        self._prompts = random.SystemRandom().randrange(1 << 30)
        """Number of the next prompt, starting at random, so that no server has cached it in an earlier run."""
        self._transcript = Prompt(0)
        """The session so far, with its last answer."""

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Find the server at a URL and its model, or start one and wait until it has loaded the file."""
        self.close()
        began = time.perf_counter()
        if isinstance(setup, EndpointConfig):
            ending = yield from self._find(setup, began)
        elif isinstance(setup, LlamaServerConfig) and source.path is not None:
            ending = yield from self._start(source, setup, began)
        else:
            ending = Failed("load", f"{NAME} loads GGUF files only")
        if self._process is not None and not isinstance(ending, Completed):
            self.close()
        yield ending

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Run a workload, with a request for each sequence; a server that dies is a crash, with its log's cause."""
        server, process = self._server, self._process
        if server is None:
            yield Failed(workload.stage, "no server is open")
            return
        try:
            ending = yield from self._run(server, workload)
        except GgbenchError as error:  # raised by making a prompt; a stream does not raise
            ending = Cancelled() if self._cancel.is_set() else _ending_of(error, self._timeout_s)
        if isinstance(ending, Failed):
            ending = replace(ending, stage=workload.stage)
        yield ending if process is None else _explained(ending, process, workload)

    def close(self) -> None:
        """Close all connections, so that the server stops, and end one that it started; may be called twice.

        A later `open` makes new ones.
        """
        if self._server is not None:
            self._server.close()
        if self._process is not None:
            self._process.close()
        self._server = self._process = None

    def _find(self, setup: EndpointConfig, began: float) -> _Events:
        try:
            server = self._connect(setup.address, setup.model)
            yield Ready(None, {"server": f"{server.info.title} {server.info.version or ''}".rstrip()})
            yield ServerAnswered(server.info.found)
            if not self._model.is_loaded:  # an unrecorded request makes the server load it
                request = self._request(server, _LOADING, 1)
                yield from server.stream([request], self._cancel)
                if request.error is not None:
                    raise request.error
        except GgbenchError as error:
            if not self._cancel.is_set():
                return Failed("load", error.message, error)
        if self._cancel.is_set():
            return Cancelled()
        seconds = time.perf_counter() - began
        yield Loaded(seconds, tensor_bytes=self._model.tensor_bytes)
        yield Opened(seconds, n_ctx=self._model.n_ctx)
        return Completed()

    def _start(self, source: Source, setup: LlamaServerConfig, began: float) -> _Events:
        if unreachable := why_unreachable(setup.servers):  # llama.cpp would abort
            return Failed("load", unreachable)
        try:
            process = self._process = ServerProcess(setup, source)
        except GgbenchError as error:
            return Failed("start", error.message, error)
        ending = process.wait_until_loaded(self._cancel, self._timeout_s)
        seconds = time.perf_counter() - began
        yield Ready(process.pid, server_log.versions(process.load_log, process.build))
        if not isinstance(ending, Completed):
            return ending
        try:
            server = self._connect(process.address)
        except GgbenchError as error:
            return process.ending("load") if process.ends_soon() else Failed("load", error.message, error)
        n_bytes, sizes = self._model.tensor_bytes, server_log.context_sizes(process.load_log)
        yield replace(server_log.allocated(process.load_log), tensor_bytes=n_bytes)
        yield ServerAnswered(server.info.found)
        yield Loaded(seconds, tensor_bytes=n_bytes)
        n_ctx = sizes.get("n_ctx", self._model.n_ctx)
        yield Opened(seconds, n_ctx, sizes.get("n_batch"), sizes.get("n_ubatch"))
        return Completed()

    def _connect(self, address: Address, model: str | None = None) -> Server:
        """Find the server and its model, the first if `model` is None.

        Raises GgbenchError.
        """
        server = self._server = Server(address, timeout_s=self._timeout_s)
        found = next((each for each in server.info.models if model in (None, each.name)), None)
        if found is None:
            raise UnknownName("model of this server", model or "", [each.name for each in server.info.models])
        self._model = found
        return server

    def _run(self, server: Server, workload: Workload) -> _Events:
        match workload:
            case Prefill(n_prompt, repeat, warmup):
                ending: Ending = Completed()
                for number in range(warmup + repeat):
                    ending = yield from self._generate(server, n_prompt, 1, reports=number >= warmup)
                    if not isinstance(ending, Completed):
                        break
                return ending
            case TakeTurn():
                return (yield from self._take_turn(server, workload))
            case Decode(n_prompt, n_gen):
                return (yield from self._generate(server, n_prompt, n_gen + 1))
            case BatchedDecode(n_prompt, n_gen, n_seqs):
                return (yield from self._generate(server, n_prompt, n_gen + 1, n_seqs))
            case DecodeAtDepth(n_depth, n_gen):
                # the token that comes with the prompt is the untimed one, so the first timed step has the same position
                return (yield from self._generate(server, n_depth + 1, n_gen + 1, has_prompt=False))
            case Continue():
                return (yield from self._continue(server, workload))
            case ProveContext() if self._process is not None:
                return (yield from self._prove(server, self._process))
        return Failed(workload.stage, f"a server cannot {workload.purpose}")

    def _request(self, server: Server, n_prompt: int, n_gen: int, seq: int | None = None) -> StreamedRequest:
        """Raises GgbenchError for a request that does not fit, or whose prompt cannot be made."""
        n_ctx, n_needed = self._model.n_ctx, n_prompt + n_gen
        if n_ctx is not None and n_needed > n_ctx:
            raise ServerFailed(f"{n_needed:,} tokens do not fit into the server's context of {n_ctx:,}")
        self._prompts += 1
        prompt = server.prompt(self._model.name, n_prompt, self._prompts)
        return StreamedRequest(Generate(self._model.name, prompt, n_gen), server.info.clock, seq)

    def _ended(self, requests: Sequence[StreamedRequest]) -> Ending:
        """Return how requests sent together ended."""
        if self._cancel.is_set():
            return Cancelled()
        for request in requests:
            if request.error is not None:
                return _ending_of(request.error, self._timeout_s)
        for request in requests:
            n_tokens, n_gen = request.timing.n_tokens, request.asked.n_gen
            if n_tokens < n_gen:
                why = shorten(request.said.finish_reason or "", 20) or "no reason given"
                return Failed("decode", f"the server ended after {n_tokens:,} of {n_gen:,} tokens ({why})")
        return Completed()

    def _generate(
        self,
        server: Server,
        n_prompt: int,
        n_gen: int,
        n_seqs: int = 1,
        *,
        has_prompt: bool = True,
        reports: bool = True,
    ) -> _Events:
        """Read a prompt and generate `n_gen` tokens for each sequence; the first token comes with the prompt."""
        seqs = range(n_seqs) if n_seqs > 1 else [None]
        requests = [self._request(server, n_prompt, n_gen, seq) for seq in seqs]
        yield from server.stream(requests, self._cancel)
        if reports:
            yield from _finished(requests, has_prompt=has_prompt)
        ending = self._ended(requests)
        is_untimed = n_gen > 1 and not requests[0].is_timed
        if self._process is not None and isinstance(ending, Completed) and is_untimed:
            return _TOO_OLD
        return ending

    def _take_turn(self, server: Server, turn: TakeTurn) -> _Events:
        """Send the transcript, of which the server has cached what it likes, and keep the answer.

        Without ids of the answer, or with too few, the next prompt has others in their place.
        """
        prompt = server.longer(self._model.name, self._transcript, turn.n_kept, turn.n_prompt)
        request = StreamedRequest(
            Generate(self._model.name, prompt, turn.n_gen + 1, keeps_cache=True), server.info.clock
        )
        yield from server.stream([request], self._cancel)
        yield from request.finish()
        if (wait_ns := request.timing.ttft_ns) is not None:
            yield TurnStarted(request.said.n_cached, wait_ns, request.said.slot, request.said.is_cut)
        ids = tuple(each for piece in request.answer for each in piece.tokens)
        text = prompt.text + "".join(piece.text for piece in request.answer)
        n_tokens = prompt.n_tokens + request.n_tokens
        self._transcript = Prompt(n_tokens, (*prompt.tokens, *ids), text)
        return self._ended([request])

    def _continue(self, server: Server, workload: Continue) -> _Events:
        """Answer a text; it is timed as a whole."""
        asked = Generate(self._model.name, Prompt(0, text=workload.text), workload.n_gen)
        request = StreamedRequest(asked, server.info.clock)
        list(server.stream([request], self._cancel))
        ending, said = self._ended([request]), request.said
        if isinstance(ending, Completed):
            if said.n_gen is None or not said.decode_ns:
                return _TOO_OLD
            yield Continued(said.n_gen, said.decode_ns, said.n_drafted or 0, said.n_accepted or 0)
        return ending

    def _prove(self, server: Server, process: ServerProcess) -> _Events:
        """Fill all slots at the same time with prompts, and generate at their last positions.

        A slot that llama-server cuts to the training context leaves cells free, so the proof is not full.
        """
        n_slot = self._model.n_ctx or process.n_ctx
        n_slots = max(1, min(process.setup.n_seq_max, process.n_ctx // n_slot))
        # it never uses the last cell of a slot
        requests = [self._request(server, n_slot - 2, 2, seq) for seq in range(n_slots)]
        for event in server.stream(requests, self._cancel):
            if isinstance(event, ReadingPrompts):
                yield Proving(event.share)
        ending = self._ended(requests)
        if isinstance(ending, Completed):
            yield ContextProven(full=n_slots * n_slot >= process.n_ctx)
        return ending


def _finished(requests: Sequence[StreamedRequest], *, has_prompt: bool) -> Iterator[Event]:
    """Report the rest of requests sent together, and the time of their prompts if each generated a token."""
    sent_ns = min((each.sent_ns for each in requests if each.sent_ns is not None), default=0)
    for request in requests:
        request.origin_ns = sent_ns
        yield from request.finish()
    firsts = [each.first_token_ns for each in requests if each.first_token_ns is not None]
    if len(firsts) < len(requests) or not has_prompt:
        return
    first, n_seqs = requests[0], len(requests)
    n_prompt, elapsed_ns = first.n_prompt, max(firsts) - sent_ns
    if n_seqs == 1:  # by the server's own clock and count
        n_prompt, elapsed_ns = first.said.n_prompt or n_prompt, first.said.prompt_ns or elapsed_ns
    yield PromptRead(n_prompt, elapsed_ns, n_seqs, n_asked=first.n_prompt)


def _ending_of(error: GgbenchError, timeout_s: float) -> Ending:
    match error:
        case ServerTimeout():
            return TimedOut(timeout_s, "server")
        case NetworkError():
            return Crashed(error.message)
        case _:
            return Failed("decode", error.message)


def _explained(ending: Ending, process: ServerProcess, workload: Workload) -> Ending:
    """Return the server's own ending for a failed request if it has died, or lacked memory."""
    if isinstance(ending, Crashed | Failed) and process.ends_soon():
        return process.ending(workload.stage)
    if isinstance(ending, Failed) and is_out_of_memory(ending.message):
        return OutOfMemory(workload.stage, shorten(ending.message, 200))
    return ending
