"""Text for people: untrusted text that can neither control the terminal nor break its line, and lists in words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_SPACES = {"\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\x85"}
_DROPPED = {"Cc", "Cf", "Cs", "Cn"}
"""Control characters, invisible and bidirectional marks, and characters that cannot be encoded."""

_ASCII: dict[str, str | int | None] = {
    "±": "+-", "×": "x", "²": "2", "≥": ">=", "≤": "<=", "→": "->", "←": "<-", "°": "", "Δ": "d", "µ": "u", "…": "~",
    "‹": "<", "○": "o",
}  # fmt: skip
for _like, _ascii in (
    ("—–−‒─╌━┄", "-"), ("│┃║‖", "|"), ("┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝╠╣", "+"), ("✓★●◆•∙·▪", "*"), ("✗╳†", "x"), ("›❯▶", ">"),
    ("▲↑", "^"), ("▼↓", "v"), ("“”", '"'), ("‘’", "'"),
):  # fmt: skip
    _ASCII |= dict.fromkeys(_like, _ascii)
_ASCII |= dict(zip("▁▂▃▄▅▆▇█░▒▓", "_.-:=+*#.:#", strict=True))
_ASCII |= {chr(0x2800 + dots): "*" if dots else " " for dots in range(256)}
_SPELLED = str.maketrans(_ASCII)
"""The nearest ASCII, of equal width, for each character that ggbench writes in tables and plots."""


def sanitize(text: str) -> str:
    """Return the text on one line without control characters, invisible marks and lone surrogates."""
    if text.isprintable():
        return text
    return "".join(filter(None, map(_plain_character, text)))


def shorten(text: str, width: int) -> str:
    """Return plain text of at most `width` characters, with an ellipsis where it is cut."""
    text = sanitize(text[: width * 4])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def shorten_middle(text: str, width: int) -> str:
    """Return plain text of at most `width` characters, cut in the middle: names of files differ at either end."""
    text = sanitize(text[:4096])
    head = width // 2
    return text if len(text) <= width else f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"


def shorten_alike(texts: Sequence[str], width: int) -> tuple[str, ...]:
    """Return plain texts of at most `width` characters, long ones cut at the place that keeps most of them apart."""
    whole = [sanitize(text[:4096]) for text in texts]
    cut = {text for text in whole if len(text) > width}

    def at(text: str, head: int) -> str:
        return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}" if text in cut else text

    middle = width // 2
    heads = sorted(range(1, width), key=lambda head: abs(head - middle)) if cut else [middle]
    best = max(heads, key=lambda head: len({at(text, head) for text in cut}))
    return tuple(at(text, best) for text in whole)


def in_ascii(text: str) -> str:
    r"""Return text with its symbols as ASCII spells them, and other characters as `\u901a`."""
    return text.translate(_SPELLED).encode("ascii", "backslashreplace").decode()


def _plain_character(character: str) -> str:
    category = unicodedata.category(character)
    if character in _SPACES or category.startswith("Z"):
        return " "
    return "" if category in _DROPPED else character


def in_words(parts: Sequence[str]) -> str:
    """Return a list in words: `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
