"""A recognized server: its models, prompts of exact length, and several generations at once.

A thread per stream only waits, reads lines and records their arrival times. One loop passes them on, at most every 50
ms, so that processing does not disturb arrivals.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from ggbench.engines.contract import PROMPT
from ggbench.engines.events import Event
from ggbench.engines.http.client import Client, Connection
from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.messages import LOG_HINT, Piece, Prompt, ServerInfo
from ggbench.engines.http.profiles import PROFILES, Profile
from ggbench.engines.http.request import StreamedRequest
from ggbench.engines.http.stream import InvalidStream, ServerReported, read_line
from ggbench.errors import GgbenchError, ServerFailed
from ggbench.text import shorten

_WORDS = (
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by", " on",
    " not", " he", " his", " but", " are", " or", " from", " at", " this", " have", " an", " they", " which", " one",
    " you", " had", " all", " were", " when", " we", " there", " can", " more", " if", " would", " who", " about",
)  # fmt: skip
"""Common words; each is one token, with its space, to GPT-2, Llama, Qwen, Gemma and Mistral."""
_PASS_ON_S = 0.05
_CLOSING_S = 15.0
"""Longest wait for a thread whose connection was closed, as it may still be connecting."""


class Server:
    """A server at an address; methods raise NetworkError, ServerFailed and UsageError with hints."""

    def __init__(self, address: Address, *, timeout_s: float = 600.0, client: Client | None = None) -> None:
        """Recognize the server. `timeout_s` is the longest silence of a stream; a prompt on a slow CPU takes long.

        Raises NetworkError if nothing answers there, ServerFailed for an unknown kind of server or one still loading
        its model, and UsageError if the key is missing.
        """
        self._client = client or Client(address, timeout_s)
        try:
            self._profile, self.info = self._recognize()
        except BaseException:
            self._client.close()
            raise

    def prompt(self, model: str, n_tokens: int, index: int = 0) -> Prompt:
        """Return a prompt of `n_tokens`, different for each index, so that concurrent requests share no prefix.

        With token ids, those of the llama.cpp engine's text, the length is exact. A text has a word for each token but
        the one that most models begin with; `Piece.n_prompt` has its actual length.
        """
        found = None
        if self._profile.tokenize is not None:
            asked = self._profile.tokenize(model, PROMPT)
            found = self._client.ask(asked.path, asked.body).read_as(_TokenIds)
        if found is not None and (tokens := found.tokens):
            return Prompt(n_tokens, tuple(tokens[(index + i) % len(tokens)] for i in range(n_tokens)))
        words = random.SystemRandom().choices(
            _WORDS, k=max(1, n_tokens - 1)
        )  # new ones, which no server has cached
        return Prompt(n_tokens, text="".join(words).lstrip())

    def longer(self, model: str, before: Prompt, n_kept: int, n_tokens: int) -> Prompt:
        """Return a prompt of `n_tokens` that begins with the first `n_kept` of another, and goes on differently each
        time.
        """
        new, kept = self.prompt(model, n_tokens), before.tokens[:n_kept]
        if new.tokens:
            others = random.SystemRandom().sample(new.tokens, n_tokens - len(kept))
            return Prompt(n_tokens, (*kept, *others))
        n_letters = round(len(before.text) * n_kept / max(1, before.n_tokens))
        words = [before.text[:n_letters], *new.text.split()[n_kept:]]
        return Prompt(n_tokens, text=" ".join(words).lstrip())

    def stream(
        self, requests: Sequence[StreamedRequest], cancel: threading.Event | None = None
    ) -> Iterator[Event]:
        """Send all requests at once, and take and report what arrives; why one failed is its `error`.

        Setting `cancel` or closing the iterator closes all connections and ends it. Unexpected exceptions of threads
        are raised here.
        """
        streams = [_Stream(self._client, self._profile, request) for request in requests]
        for stream in streams:
            stream.thread.start()
        try:
            while True:
                is_over = not any(stream.thread.is_alive() for stream in streams)
                for stream in streams:
                    yield from stream.events()
                if is_over or (cancel is not None and cancel.is_set()):
                    return
                _wait(streams)
        finally:
            for stream in streams:
                stream.connection.abort()
            for stream in streams:
                stream.thread.join(_CLOSING_S)

    def _recognize(self) -> tuple[Profile, ServerInfo]:
        """Return its profile and description.

        Raises NetworkError if nothing answers, and ServerFailed for a server of unknown kind or not ready.
        """
        client = self._client
        first = client.ask("/v1/models")
        if first.status in (401, 403, 429) or first.status >= 500:
            client.fail(first.status, first.body)
        for profile in PROFILES:
            info = profile.recognize(client)
            if info is not None:
                return profile, info
        what = "lists no models" if first.read_as(object) is not None else "does not answer as a model server"
        raise ServerFailed(
            f"{client.address.base_url} {what}",
            "give the base URL of llama-server, Ollama, vLLM or another OpenAI-compatible server",
        )

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _TokenIds(msgspec.Struct):
    tokens: list[int]


def _wait(streams: Sequence[_Stream]) -> None:
    """Wait for 50 ms, or less if the last stream ends earlier, then close those without progress."""
    until = time.monotonic() + _PASS_ON_S
    for stream in streams:
        stream.thread.join(max(0.0, until - time.monotonic()))
    now_ns = time.perf_counter_ns()
    for stream in streams:
        stream.watch(now_ns)


class _Stream:
    """A request and the thread that reads its answer."""

    def __init__(self, client: Client, profile: Profile, request: StreamedRequest) -> None:
        self._client, self._profile, self._request = client, profile, request
        self.connection = Connection()
        self._received: deque[tuple[int, Piece | None]] = deque()
        """Times and lines that the request has not taken yet."""
        self._error: Exception | None = None
        """Why the thread ended early."""
        self._is_silent = False
        request.progress_ns = time.perf_counter_ns()
        self.thread = threading.Thread(target=self._run, name="ggbench-stream", daemon=True)

    def events(self) -> Iterator[Event]:
        """Let the request take what was received, and report it. Raises an unexpected exception of the thread."""
        request, ended_early = self._request, self._error
        while self._received and request.error is None:
            try:
                yield from request.take(*self._received.popleft())
            except InvalidStream as error:
                self._fail(error)
            if request.n_tokens > 2 * request.asked.n_gen + 64:
                what = f"the server did not stop after the {request.asked.n_gen} requested tokens"
                self._fail(ServerFailed(what, LOG_HINT))
        if ended_early is not None and request.error is None:
            self._fail(ended_early)

    def watch(self, now_ns: int) -> None:
        """Close the connection of a server that is silent or makes no progress."""
        if now_ns - self._request.progress_ns > self._client.timeout_s * 1e9 and self.thread.is_alive():
            self._is_silent = True
            self.connection.abort()

    def _fail(self, error: Exception) -> None:
        self.connection.abort()
        if isinstance(error, InvalidStream | ServerReported):
            what = "sent an invalid stream" if isinstance(error, InvalidStream) else "reported an error"
            text = shorten(self._client.without_key(str(error)), 200)
            error = ServerFailed(f"the server {what}: {text}", LOG_HINT)
        if not isinstance(error, GgbenchError):
            raise error  # a bug of ggbench's
        self._request.error = self._client.silent(self._client.timeout_s) if self._is_silent else error

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._error = error

    def _read(self) -> None:
        has_ended = False
        for at_ns, line in self._client.stream(self._profile.request(self._request.asked), self.connection):
            if line is None:
                self._received.append((at_ns, None))
            elif (piece := read_line(line)) is not None:
                has_ended = has_ended or piece.finish_reason is not None
                if piece.is_last and not has_ended:
                    raise InvalidStream("the end of a stream without a finish_reason")
                self._received.append((at_ns, piece))
                if piece.is_last:
                    return
        if not has_ended:
            raise ServerFailed("the server closed the stream before its end", LOG_HINT)
        self._received.append((time.perf_counter_ns(), Piece(is_last=True)))
