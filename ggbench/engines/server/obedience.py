"""What a server was asked and did not do, as one line each."""

from __future__ import annotations

from ggbench.engines.server.contract import Generate
from ggbench.text import shorten


def disobeyed(
    asked: Generate, *, n_prompt: int | None, n_cached: int | None, n_gen: int | None, finish_reason: str
) -> tuple[str, ...]:
    """Return what differs from what was asked; a count that the server does not report cannot differ."""
    found: list[str] = []
    if n_gen is not None and n_gen != asked.n_gen:
        reason = f" (it ended with {shorten(finish_reason, 20)!r})" if finish_reason else ""
        found.append(f"generated {n_gen} tokens where {asked.n_gen} were asked for{reason}")
    if n_prompt is not None and n_prompt != asked.prompt.n_tokens:
        found.append(f"read a prompt of {n_prompt} tokens where {asked.prompt.n_tokens} were meant")
    if n_cached:
        found.append(f"took {n_cached} of the prompt's tokens from a cache")
    return tuple(found)
