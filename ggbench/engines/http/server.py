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
from ggbench.engines.http.client import Client, Connection
from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.messages import (
    LOG_HINT,
    Arrival,
    Generate,
    Piece,
    Prompt,
    ServerInfo,
)
from ggbench.engines.http.profiles import PROFILES, Profile
from ggbench.engines.http.stream import InvalidStream, ServerReported, read_line
from ggbench.errors import GgbenchError, ServerFailed
from ggbench.text import shorten

_WORDS = (
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by", " on",
    " not", " he", " his", " but", " are", " or", " from", " at", " this", " have", " an", " they", " which", " one",
    " you", " had", " all", " were", " when", " we", " there", " can", " more", " if", " would", " who", " about",
)  # fmt: skip
"""Common words; each is one token, with its space, to GPT-2, Llama, Qwen, Gemma and Mistral."""
_PROBE_WORDS = 32
_PASS_ON_S = 0.05
_CLOSING_S = 15.0
"""Longest wait for a thread whose connection was closed, as it may still be connecting."""


class Server:
    """A server at an address; methods raise NetworkError, ServerFailed and UsageError with hints."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = 600.0,
        cancel: threading.Event | None = None,
        client: Client | None = None,
    ) -> None:
        """Recognize the server. `timeout_s` is the longest silence of a stream; a prompt on a slow CPU takes long.

        Setting `cancel` stops the generation that counts the tokens of a text, with ServerFailed. Raises NetworkError
        if nothing answers there, ServerFailed for an unknown kind of server or one still loading its model, and
        UsageError if the key is missing.
        """
        self._added: dict[str, int] = {}
        self._cancel = cancel
        self._client = client or Client(address, timeout_s=timeout_s)
        try:
            self._profile, self.info = self._recognize()
        except BaseException:
            self._client.close()
            raise

    def prompt(self, model: str, n_tokens: int, index: int = 0) -> Prompt:
        """Return a prompt of `n_tokens`, different for each index, so that concurrent requests share no prefix.

        With token ids, those of the llama.cpp engine's text, the length is exact. For a text it follows from the
        server's count of a short text (generating one token); `Piece.n_prompt` has the actual length.
        """
        tokens = self._token_ids(model)
        if tokens:
            return Prompt(n_tokens, tuple(tokens[(index + i) % len(tokens)] for i in range(n_tokens)))
        return Prompt(n_tokens, text=_random_words(max(1, n_tokens - self._tokens_added(model))))

    def _token_ids(self, model: str) -> list[int]:
        """Return the ids of a text's tokens; none from a server that has none to tell."""
        if self._profile.tokenize is None:
            return []
        found = self._client.post(self._profile.tokenize(model, PROMPT)).read_as(_TokenIds)
        return [] if found is None else found.tokens

    def stream(
        self, requests: Sequence[Generate], cancel: threading.Event | None = None
    ) -> Iterator[tuple[int, Arrival]]:
        """Send all requests at once and yield (index, arrival) as they come; the last of each has an end or an error.

        Setting `cancel` or closing the iterator closes all connections and ends it without further ones. Unexpected
        exceptions of threads are raised here.
        """
        streams = [_Stream(self._client, self._profile, request) for request in requests]
        for stream in streams:
            stream.thread.start()
        try:
            while True:
                is_over = not any(stream.thread.is_alive() for stream in streams)
                yield from _arrived(streams)
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
        first = client.get("/v1/models")
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

    def _tokens_added(self, model: str) -> int:
        """Return how many tokens the server adds to a text for this model, counted once."""
        if model not in self._added:
            probe = Generate(model, Prompt(_PROBE_WORDS, text=_random_words(_PROBE_WORDS)), 1)
            n_prompt, has_ended = None, False
            for _, arrival in self.stream([probe], self._cancel):
                if arrival.error is not None:
                    raise arrival.error
                piece = arrival.piece or Piece()
                n_prompt, has_ended = piece.n_prompt or n_prompt, piece.is_last
            if not has_ended:
                raise ServerFailed("the count of a prompt's tokens was cancelled", "run the command again")
            if n_prompt is None:
                what = f"{self.info.title} does not report prompt token counts"
                raise ServerFailed(what, "update it, or use another server")
            self._added[model] = n_prompt - _PROBE_WORDS
        return self._added[model]

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _TokenIds(msgspec.Struct):
    tokens: list[int]


def _random_words(n_words: int) -> str:
    """Return a text of `n_words` words, different each time to avoid caches."""
    return "".join(random.SystemRandom().choices(_WORDS, k=n_words)).lstrip()


def _arrived(streams: Sequence[_Stream]) -> Iterator[tuple[int, Arrival]]:
    for index, stream in enumerate(streams):
        while stream.arrivals:
            yield index, stream.arrivals.popleft()
        if stream.unexpected is not None:
            raise stream.unexpected


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

    def __init__(self, client: Client, profile: Profile, request: Generate) -> None:
        self._client, self._profile, self._request = client, profile, request
        self.connection = Connection()
        self.arrivals: deque[Arrival] = deque()
        self.unexpected: Exception | None = None
        self._progress_ns = time.perf_counter_ns()
        """Time of the last progress."""
        self._is_silent = False
        self._n_gen = 0
        """Tokens so far; chunks if the server does not count."""
        self._is_counted = True
        """Whether it counts: not once the first text came without a count."""
        self._has_ended = False
        self.thread = threading.Thread(target=self._run, name="ggbench-stream", daemon=True)

    def watch(self, now_ns: int) -> None:
        """Close the connection of a server that is silent or makes no progress."""
        if now_ns - self._progress_ns > self._client.timeout_s * 1e9 and self.thread.is_alive():
            self._is_silent = True
            self.connection.abort()

    def _run(self) -> None:
        try:
            self._read()
        except GgbenchError as error:
            self._fail(self._client.silent(self._client.timeout_s) if self._is_silent else error)
        except (InvalidStream, ServerReported) as error:
            what = "sent an invalid stream" if isinstance(error, InvalidStream) else "reported an error"
            text = shorten(self._client.without_key(str(error)), 200)
            self._fail(ServerFailed(f"the server {what}: {text}", LOG_HINT))
        except Exception as error:  # a bug of ggbench's, for the calling thread
            self.unexpected = error

    def _read(self) -> None:
        for at_ns, line in self._client.stream(self._profile.request(self._request), self.connection):
            if line is None:
                self._progress_ns = at_ns
                self.arrivals.append(Arrival(at_ns))
            elif (piece := read_line(line)) is not None:
                self._take(piece, at_ns)
                if piece.is_last:
                    return
        if not self._has_ended:
            done = f"{self._n_gen} of {self._request.n_gen} tokens"
            raise ServerFailed(f"the server closed the stream after {done}", LOG_HINT)
        self.arrivals.append(Arrival(time.perf_counter_ns(), Piece(is_last=True)))

    def _take(self, piece: Piece, at_ns: int) -> None:
        """Raises InvalidStream for an end without a reason, and ServerFailed for far more tokens than requested."""
        self._has_ended = self._has_ended or piece.finish_reason is not None
        if piece.is_last and not self._has_ended:
            raise InvalidStream("the end of a stream without a finish_reason")
        n_new = self._count(piece)
        if n_new is None or n_new or piece.n_read is not None:
            self._progress_ns = at_ns
        if self._n_gen > 2 * self._request.n_gen + 64:
            what = f"the server did not stop after the {self._request.n_gen} requested tokens"
            raise ServerFailed(what, LOG_HINT)
        self.arrivals.append(Arrival(at_ns, piece, n_new))

    def _count(self, piece: Piece) -> int | None:
        """Return the new tokens; None for a text of a server that does not count."""
        n_gen = piece.n_gen
        if n_gen is None and piece.text and not self._n_gen:
            self._is_counted = False
        if not self._is_counted:
            self._n_gen += bool(piece.text)
            return None if piece.text else 0
        if n_gen is None:
            return 0
        if n_gen < self._n_gen:
            raise InvalidStream(f"a count of tokens that went from {self._n_gen} to {n_gen}")
        n_new, self._n_gen = n_gen - self._n_gen, n_gen
        return n_new

    def _fail(self, error: GgbenchError) -> None:
        self.arrivals.append(Arrival(time.perf_counter_ns(), error=error))
