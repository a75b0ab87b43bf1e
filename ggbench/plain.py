"""Sanitize untrusted text for printing, so that it cannot control the terminal or break its line."""

from __future__ import annotations

import unicodedata

_SPACES = {"\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\x85"}
_DROPPED = {"Cc", "Cf", "Cs", "Cn"}
"""Control characters, invisible and bidirectional marks, and characters that cannot be encoded."""


def plain(text: str) -> str:
    """Return the text on one line without control characters, invisible marks and lone surrogates."""
    if text.isprintable():
        return text
    return "".join(filter(None, map(_plain_character, text)))


def shorten(text: str, width: int) -> str:
    """Return plain text of at most `width` characters, with an ellipsis where it is cut."""
    text = plain(text[: width * 4])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def shorten_middle(text: str, width: int) -> str:
    """Return plain text of at most `width` characters, cut in the middle: names of files differ at either end."""
    text = plain(text[:4096])
    head = width // 2
    return text if len(text) <= width else f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"


def _plain_character(character: str) -> str:
    category = unicodedata.category(character)
    if character in _SPACES or category.startswith("Z"):
        return " "
    return "" if category in _DROPPED else character
