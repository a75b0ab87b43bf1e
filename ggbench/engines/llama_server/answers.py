"""Answers of a llama-server that may draft: a request, and its counts of drafts.

A request's timings have the drafted and accepted tokens; the steps, and the acceptance at each position, are totals of
the server in /metrics. Source: server-common.cpp and server-task.cpp of llama.cpp at commit 0c1e570.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

from ggbench.engines.contract import Continue
from ggbench.engines.endings import Cancelled, Ending, Failed
from ggbench.engines.events import Continued
from ggbench.engines.llama_server.build import NAME
from ggbench.engines.server.client import Client
from ggbench.engines.server.contract import Ended, Generate, GenerationFailed, Item, Prompt, Tokens
from ggbench.engines.server.server import Server

_COUNTER = re.compile(
    rb'^llamacpp:spec_decode_(?P<name>\w+)_total(?:\{position="(?P<at>\d+)"\})? (?P<value>[\d.e+]+)$', re.MULTILINE
)
_Counters = Mapping[tuple[str, int], int]
"""Totals by name and position; -1 for all positions."""


def answer(client: Client, server: Server, model: str, asked: Continue, cancel: threading.Event) -> Continued | Ending:
    """Continue a text, or return why not. Raises NetworkError and ServerFailed."""
    before = _counters(client)
    request = Generate(model, Prompt(0, text=asked.text), asked.n_gen)
    text, last = "", None
    for _, item in server.stream([request], cancel):
        text += item.text if isinstance(item, Tokens) else ""
        last = item
    return _continued(text, last, before, _counters(client)) if not cancel.is_set() else Cancelled()


def _continued(text: str, last: Item | None, before: _Counters, after: _Counters) -> Continued | Ending:
    if isinstance(last, GenerationFailed):
        raise last.error
    if not isinstance(last, Ended) or last.n_gen is None or not last.decode_ns:
        return Failed("decode", f"this {NAME} is too old: it does not time its tokens")
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    return Continued(
        text,
        n_tokens=last.n_gen,
        decode_ns=last.decode_ns,
        n_drafted=last.n_drafted or 0,
        n_accepted=last.n_accepted or 0,
        n_steps=grown.get(("num_drafts", -1)),
        accepted_at=tuple(n for (_, at), n in sorted(grown.items()) if at >= 0),
    )


def _counters(client: Client) -> _Counters:
    """Return the totals of drafts since the server's start; empty without /metrics."""
    response = client.get("/metrics")
    found = _COUNTER.finditer(response.body) if response.status == 200 else ()
    return {(each["name"].decode(), int(each["at"] or -1)): int(float(each["value"])) for each in found}
