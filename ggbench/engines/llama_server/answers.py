"""Answers of a llama-server that may draft: a request, and its counts of drafts.

Source: server-common.cpp and server-task.cpp of llama.cpp at commit 0c1e570.
"""

from __future__ import annotations

import threading

from ggbench.engines.contract import Continue
from ggbench.engines.endings import Cancelled, Ending, Failed
from ggbench.engines.events import Continued
from ggbench.engines.http.program import NAME
from ggbench.engines.server.contract import Ended, Generate, GenerationFailed, Item, Prompt, Tokens
from ggbench.engines.server.server import Server


def answer(server: Server, model: str, asked: Continue, cancel: threading.Event) -> Continued | Ending:
    """Continue a text, or return why not. Raises NetworkError and ServerFailed."""
    request = Generate(model, Prompt(0, text=asked.text), asked.n_gen)
    text = ""
    last: Item | None = None
    for _, last in server.stream([request], cancel):
        text += last.text if isinstance(last, Tokens) else ""
    if cancel.is_set():
        return Cancelled()
    if isinstance(last, GenerationFailed):
        raise last.error
    if not isinstance(last, Ended) or last.n_gen is None or not last.decode_ns:
        return Failed("decode", f"this {NAME} is too old: it does not time its tokens")
    return Continued(text, last.n_gen, last.decode_ns, last.n_drafted or 0, last.n_accepted or 0)
