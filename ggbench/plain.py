"""Text from files and the Hub, made safe to print: it may not steer a terminal, nor break out of its line."""

from __future__ import annotations

import unicodedata

_SPACES = {"\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\x85"}
_DROPPED = {"Cc", "Cf", "Cs", "Cn"}
"""Controls, marks that reorder or hide what follows, and what cannot be encoded."""


def plain(text: str) -> str:
    """The text on one line without control characters, invisible marks and lone surrogates."""
    if text.isprintable():
        return text
    return "".join(filter(None, map(_plain_character, text)))


def shorten(text: str, width: int) -> str:
    """Plain text of at most that many characters, an ellipsis for the rest."""
    text = plain(text[: width * 4])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _plain_character(character: str) -> str:
    category = unicodedata.category(character)
    if character in _SPACES or category.startswith("Z"):
        return " "
    return "" if category in _DROPPED else character
