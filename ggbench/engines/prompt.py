"""The text that prompts are made of, the same for every engine."""

from __future__ import annotations

PROMPT = (
    "Explain in simple words how a large language model turns a question into an answer, one token after another, and "
    "why the memory of the machine decides how fast it can go. Begin with the tokens, then the weights, then the cache."
)
"""Cut or repeated to length, where a model takes token ids."""
