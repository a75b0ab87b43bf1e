"""A server that was recognized: what it offers, prompts of exact length, and generations as streams of items."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import TracebackType

from ggbench.engines.server import llama_server, ollama, tgi
from ggbench.engines.server.client import CONNECT_TIMEOUT_S, Client, HttpResponse
from ggbench.engines.server.completions import LLAMA_CPP_PYTHON, LM_STUDIO, OPENAI, VLLM
from ggbench.engines.server.config import Address
from ggbench.engines.server.contract import Ended, Generate, GenerationFailed, Item, NetworkTimes, Prompt, ServerInfo
from ggbench.engines.server.kind import ServerKind, probe_text
from ggbench.engines.server.streams import run_together
from ggbench.errors import ServerFailed

_KINDS = (llama_server.KIND, tgi.KIND, LM_STUDIO, VLLM, LLAMA_CPP_PYTHON, ollama.KIND, OPENAI)
"""In the order in which they are tried: those that others imitate come after those that imitate."""


class Server:
    """One server at one address; its methods raise NetworkError, ServerFailed and UsageError with a hint each."""

    info: ServerInfo
    """What it said of itself when it was recognized."""
    _kind: ServerKind

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = 600.0,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        cancel: threading.Event | None = None,
    ) -> None:
        """Recognize the server. `timeout_s` is the longest silence of a stream: a prompt on a slow CPU takes long.

        Setting `cancel` ends the generation that counts the tokens of a text, with ServerFailed.

        Raises NetworkError where nothing answers there, ServerFailed for what is no server of a known kind or is
        still loading its model, and UsageError where the key is missing.
        """
        self._added: dict[str, int] = {}
        self._cancel = cancel
        self._client = Client(address, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
        try:
            self._kind, self.info = recognize(self._client)
        except BaseException:
            self._client.close()
            raise

    def prompt(self, model: str, n_tokens: int, index: int = 0) -> Prompt:
        """Return a prompt of `n_tokens`; another for each index, so that concurrent requests share no prefix.

        Where the server takes token ids, the length is exact. Where it takes a text, its own count of a short text
        (one generation of one token) gives the length; `Ended.n_prompt` says what it became.
        """
        return self._kind.prompt(self._client, model, n_tokens, index, lambda: self._tokens_added(model))

    def stream(self, requests: Sequence[Generate], cancel: threading.Event | None = None) -> Iterator[tuple[int, Item]]:
        """Send all requests at once and yield (index of the request, item) as they come; each ends in one item.

        Never raises: a failure is the item `GenerationFailed`. Setting `cancel`, or closing the iterator, closes every
        connection, so that the server stops; what has not ended by then yields nothing more.
        """
        return run_together(self._client, self._kind, requests, cancel)

    def _tokens_added(self, model: str) -> int:
        """Return how many tokens the server adds to a text for this model, counted once."""
        if model not in self._added:
            text, n_words = probe_text()
            for _, item in self.stream([Generate(model, Prompt(n_words, text=text), 1)], self._cancel):
                if isinstance(item, GenerationFailed):
                    raise item.error
                if isinstance(item, Ended):
                    if item.n_prompt is None:
                        raise ServerFailed(
                            f"{self.info.title} does not count the tokens of a prompt", "use another server"
                        )
                    self._added[model] = item.n_prompt - n_words
            if model not in self._added:
                raise ServerFailed("the count of a prompt's tokens was cancelled", "run the command again")
        return self._added[model]

    def network_times(self) -> NetworkTimes:
        """Time empty requests over an open connection. Raises NetworkError and ServerFailed."""
        return self._client.network_times(self._kind.empty_path)

    def close(self) -> None:
        """Close all connections; may be called twice and from any thread."""
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def recognize(client: Client) -> tuple[ServerKind, ServerInfo]:
    """Return the kind of server and what it says of itself.

    Raises NetworkError where nothing answers, and ServerFailed for a server that is of no known kind or not ready.
    """
    first = client.get("/v1/models")
    if first.status in (401, 403, 429) or first.status >= 500:
        client.check_answer(first, "")
    for kind in _KINDS:
        info = kind.recognize(client)
        if info is not None:
            return kind, info
    raise _unknown(client, first)


def _unknown(client: Client, models: HttpResponse) -> ServerFailed:
    what = "lists no models" if models.document is not None else "does not answer as a model server"
    return ServerFailed(
        f"{client.address.base_url} {what}",
        "give the base URL of llama-server, Ollama, vLLM, LM Studio, TGI or another OpenAI-compatible server",
    )
