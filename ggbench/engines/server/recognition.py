"""Which kind of server answers at an address."""

from __future__ import annotations

from ggbench.engines.server.client import Answer, Client
from ggbench.engines.server.contract import ServerInfo
from ggbench.engines.server.kind import Kind, all_kinds
from ggbench.errors import ServerFailed


def recognize(client: Client) -> tuple[Kind, ServerInfo]:
    """Return the kind of server and what it says of itself.

    Raises NetworkError where nothing answers, and ServerFailed for a server that is of no known kind or not ready.
    """
    first = client.get("/v1/models")
    if first.status in (401, 403, 429) or first.status >= 500:
        client.check_answer(first, "")
    for kind in all_kinds():
        info = kind.recognize(client)
        if info is not None:
            return kind, info
    raise _unknown(client, first)


def _unknown(client: Client, models: Answer) -> ServerFailed:
    what = "lists no models" if models.document is not None else "does not answer as a model server"
    return ServerFailed(
        f"{client.address.base_url} {what}",
        "give the base URL of llama-server, Ollama, vLLM, LM Studio, TGI or another OpenAI-compatible server",
    )
