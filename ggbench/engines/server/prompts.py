"""Prompts of a given number of tokens, with and without a tokenizer at hand."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ggbench.engines.server.contract import Prompt

_WORDS = (
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by", " on",
    " not", " he", " his", " but", " are", " or", " from", " at", " this", " have", " an", " they", " which", " one",
    " you", " had", " all", " were", " when", " we", " there", " can", " more", " if", " would", " who", " about",
)  # fmt: skip
"""Common words; each is one token, with its space, to GPT-2, Llama, Qwen, Gemma and Mistral."""
_PROBE_WORDS = 32


def repeated(tokens: Sequence[int], n_tokens: int, index: int) -> Prompt:
    """Return the tokens of a text, cut or repeated to length; each index begins one token later."""
    return Prompt(n_tokens, tokens=tuple(tokens[(index + i) % len(tokens)] for i in range(n_tokens)))


def words(n_words: int, seed: int) -> str:
    """Return a text of that many words, the same for the same seed; texts of different seeds begin differently."""
    rng = random.Random(seed)
    return "".join(rng.choices(_WORDS, k=n_words)).lstrip() if n_words else ""


def probe_text() -> tuple[str, int]:
    """Return a text that no cache knows and its number of words."""
    return words(_PROBE_WORDS, _random_seed()), _PROBE_WORDS


def worded(n_tokens: int, added: int) -> Prompt:
    """Return a text of that many tokens, where a server adds some, such as a token for the beginning, to the words.

    It begins differently each time, so that no cache knows it.
    """
    return Prompt(n_tokens, text=words(max(1, n_tokens - added), _random_seed()))


def _random_seed() -> int:
    return random.SystemRandom().getrandbits(48)
