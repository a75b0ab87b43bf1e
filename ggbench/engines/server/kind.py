"""A kind of server: how it is recognized, asked and read; and prompts of an exact length."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from ggbench.engines.server.client import Client
from ggbench.engines.server.contract import Generate, Post, Prompt, ServerInfo, StreamReader

MakePrompt = Callable[[Client, str, int, int, Callable[[], int]], Prompt]
"""Returns a prompt for a model with this many tokens, different for each index.

Raises NetworkError and ServerFailed. The last argument returns how many tokens the server adds to a text, found by
generating one token.
"""


class ServerKind(msgspec.Struct, frozen=True):
    recognize: Callable[[Client], ServerInfo | None]
    """Returns the server's models; None if it is of another kind. Raises NetworkError and ServerFailed."""
    prompt: MakePrompt
    request: Callable[[Generate], Post]
    reader: Callable[[Generate], StreamReader]


class TokenIds(msgspec.Struct):
    tokens: list[int]


class Version(msgspec.Struct):
    version: str


_WORDS = (
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by", " on",
    " not", " he", " his", " but", " are", " or", " from", " at", " this", " have", " an", " they", " which", " one",
    " you", " had", " all", " were", " when", " we", " there", " can", " more", " if", " would", " who", " about",
)  # fmt: skip
"""Common words; each is one token, with its space, to GPT-2, Llama, Qwen, Gemma and Mistral."""
PROBE_WORDS = 32


def repeated(tokens: Sequence[int], n_tokens: int, index: int) -> Prompt:
    """Return the tokens of a text, cut or repeated to length; each index starts one token later."""
    return Prompt(n_tokens, tokens=tuple(tokens[(index + i) % len(tokens)] for i in range(n_tokens)))


def random_words(n_words: int) -> str:
    """Return a text of `n_words` words, different each time to avoid caches."""
    return "".join(random.SystemRandom().choices(_WORDS, k=n_words)).lstrip()


def worded(n_tokens: int, added: int) -> Prompt:
    """Return a text of this many tokens, for a server that adds some, e.g. one at the start."""
    return Prompt(n_tokens, text=random_words(max(1, n_tokens - added)))


def common_words(client: Client, model: str, n_tokens: int, index: int, added: Callable[[], int]) -> Prompt:
    """Return a text of common words, its length found by a generation."""
    return worded(n_tokens, added())
