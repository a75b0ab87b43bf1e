"""A recognized server: its models, prompts of exact length, and several generations at once.

A thread per stream only waits, reads lines and records their arrival times. One loop passes them on, at most every 50
ms, so that processing does not disturb arrivals.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from ggbench.engines.server.client import Client, Exchange, StreamLine
from ggbench.engines.server.completions import OPENAI, VLLM
from ggbench.engines.server.config import Address
from ggbench.engines.server.contract import (
    LOG_HINT,
    Ended,
    Generate,
    GenerationFailed,
    InvalidStream,
    Item,
    Prompt,
    PromptProgress,
    ServerInfo,
    ServerReported,
    Tokens,
)
from ggbench.engines.server.kind import PROBE_WORDS, ServerKind, random_words
from ggbench.engines.server.native import LLAMA_SERVER, OLLAMA
from ggbench.errors import GgbenchError, ServerFailed
from ggbench.text import shorten

_KINDS = (LLAMA_SERVER, VLLM, OLLAMA, OPENAI)
"""In the order of trial: imitators before the servers they imitate."""
_PASS_ON_S = 0.05
_CLOSING_S = 15.0
"""Longest wait for a thread whose connection was closed, as it may still be connecting."""


class Server:
    """A server at an address; methods raise NetworkError, ServerFailed and UsageError with hints."""

    def __init__(
        self, address: Address, *, timeout_s: float = 600.0, cancel: threading.Event | None = None
    ) -> None:
        """Recognize the server. `timeout_s` is the longest silence of a stream; a prompt on a slow CPU takes long.

        Setting `cancel` stops the generation that counts the tokens of a text, with ServerFailed. Raises NetworkError
        if nothing answers there, ServerFailed for an unknown kind of server or one still loading its model, and
        UsageError if the key is missing.
        """
        self._added: dict[str, int] = {}
        self._cancel = cancel
        self._client = Client(address, timeout_s=timeout_s)
        try:
            self._kind, self.info = recognize(self._client)
        except BaseException:
            self._client.close()
            raise

    def prompt(self, model: str, n_tokens: int, index: int = 0) -> Prompt:
        """Return a prompt of `n_tokens`, different for each index, so that concurrent requests share no prefix.

        With token ids the length is exact. For a text it follows from the server's count of a short text (generating
        one token); `Ended.n_prompt` has the actual length.
        """
        return self._kind.prompt(self._client, model, n_tokens, index, lambda: self._tokens_added(model))

    def stream(
        self, requests: Sequence[Generate], cancel: threading.Event | None = None
    ) -> Iterator[tuple[int, Item]]:
        """Send all requests at once and yield (index of the request, item) as they arrive, like `run_together`."""
        return run_together(self._client, self._kind, requests, cancel)

    def _tokens_added(self, model: str) -> int:
        """Return how many tokens the server adds to a text for this model, counted once."""
        if model not in self._added:
            probe = Generate(model, Prompt(PROBE_WORDS, text=random_words(PROBE_WORDS)), 1)
            items = [item for _, item in self.stream([probe], self._cancel)]
            last = items[-1] if items else None
            if isinstance(last, GenerationFailed):
                raise last.error
            if not isinstance(last, Ended):
                raise ServerFailed("the count of a prompt's tokens was cancelled", "run the command again")
            if last.n_prompt is None:
                what = f"{self.info.title} does not report prompt token counts"
                raise ServerFailed(what, "update it, or use another server")
            self._added[model] = last.n_prompt - PROBE_WORDS
        return self._added[model]

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def recognize(client: Client) -> tuple[ServerKind, ServerInfo]:
    """Return the kind of server and its description.

    Raises NetworkError if nothing answers, and ServerFailed for a server of unknown kind or not ready.
    """
    first = client.get("/v1/models")
    if first.status in (401, 403, 429) or first.status >= 500:
        client.fail(first.status, first.body)
    for kind in _KINDS:
        info = kind.recognize(client)
        if info is not None:
            return kind, info
    what = "lists no models" if first.read_as(object) is not None else "does not answer as a model server"
    raise ServerFailed(
        f"{client.address.base_url} {what}",
        "give the base URL of llama-server, Ollama, vLLM or another OpenAI-compatible server",
    )


def run_together(
    client: Client, kind: ServerKind, requests: Sequence[Generate], cancel: threading.Event | None
) -> Iterator[tuple[int, Item]]:
    """Yield (index, item) of all requests as they arrive; each request's last item is Ended or Failed.

    Setting `cancel` or closing the iterator closes all connections and ends it without further items. Unexpected
    exceptions of threads are raised here.
    """
    streams = [_Stream(client, kind, request) for request in requests]
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
            stream.exchange.abort()
        for stream in streams:
            stream.thread.join(_CLOSING_S)


def _arrived(streams: Sequence[_Stream]) -> Iterator[tuple[int, Item]]:
    for index, stream in enumerate(streams):
        while stream.items:
            yield index, stream.items.popleft()
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
    def __init__(self, client: Client, kind: ServerKind, request: Generate) -> None:
        self._client = client
        self._request = request
        self._reader = kind.reader(request)
        self.exchange: Exchange = client.exchange(kind.request(request))
        self.items: deque[Item] = deque()
        self.unexpected: Exception | None = None
        self._progress_ns = time.perf_counter_ns()
        """Time of the last progress."""
        self._is_silent = False
        self._n_gen = 0
        self.thread = threading.Thread(target=self._run, name="ggbench-stream", daemon=True)

    def watch(self, now_ns: int) -> None:
        """Close the connection of a server that is silent or makes no progress."""
        if now_ns - self._progress_ns > self._client.timeout_s * 1e9 and self.thread.is_alive():
            self._is_silent = True
            self.exchange.abort()

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
        add, read = self.items.append, self._reader.read
        for part in self.exchange.items():
            if not isinstance(part, StreamLine):
                self._progress_ns = part.at_ns
                add(part)
                continue
            for item in read(part.content, part.at_ns):
                add(item)
                if isinstance(item, Ended):
                    return
                self._note_progress(item)
        ended = self._reader.finish(time.perf_counter_ns())
        if ended is None:
            done = f"{self._n_gen} of {self._request.n_gen} tokens"
            self._fail(ServerFailed(f"the server closed the stream after {done}", LOG_HINT))
        else:
            add(ended)

    def _note_progress(self, item: Tokens | PromptProgress) -> None:
        if isinstance(item, Tokens):
            self._n_gen += 1 if item.n_tokens is None else item.n_tokens
            if self._n_gen > 2 * self._request.n_gen + 64:
                raise ServerFailed(
                    f"the server did not stop after the {self._request.n_gen} requested tokens", LOG_HINT
                )
            if item.n_tokens == 0:
                return
        self._progress_ns = item.at_ns

    def _fail(self, error: GgbenchError) -> None:
        self.items.append(GenerationFailed(time.perf_counter_ns(), error))
