"""Text for people: make untrusted text safe for a terminal and a line, and put lists into words."""

from __future__ import annotations

import re
import shlex
import signal
import unicodedata
from collections import Counter
from collections.abc import Sequence

_SPACES = {"\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\x85"}
_DROPPED = {"Cc", "Cf", "Cs", "Cn"}
"""Control characters, invisible and bidirectional marks, and characters that cannot be encoded."""


_USERINFO = re.compile(r"(?<=\w\w)(:/{1,2})[^/\s]+@")
"""The user and password of a URL, also where a path has made one slash of two."""


def sanitize(text: str) -> str:
    """Return the text on one line without control characters, invisible marks, lone surrogates, and what a URL has
    before its host: a password.
    """
    plain = text if text.isprintable() else "".join(map(_plain_character, text))
    return _USERINFO.sub(r"\1***@", plain)


def shorten(text: str, width: int) -> str:
    """Return plain text of at most `width` characters, with an ellipsis if it is cut."""
    text = sanitize(text[: width * 4])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def without_password(address: str) -> str:
    """Return an address for display: without the user name, password or token before its host."""
    return re.sub(r"^(\w+://|(?!\w+://)/*)(?:[^/]*|[^@]*:.*)@", r"\1***@", address.strip())


def shorten_middle(text: str, width: int) -> str:
    """Return plain text of at most `width` characters, cut in the middle, as file names differ at either end."""
    text, head = sanitize(text[:4096]), width // 2
    return text if len(text) <= width else f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"


def _plain_character(character: str) -> str:
    category = unicodedata.category(character)
    if character in _SPACES or category.startswith("Z"):
        return " "
    return "" if category in _DROPPED else character


def has_words(text: str, words: str) -> bool:
    """Return whether the text contains all the words, in any case and order."""
    text = text.casefold()
    return all(word in text for word in words.casefold().split())


def counted_names(names: Sequence[str]) -> str:
    """Return each name once, with its number: `2 x RTX 3090 and RTX 4090`."""
    counts = Counter(names)
    return in_words([name if count == 1 else f"{count} x {name}" for name, count in counts.items()])


def in_words(parts: Sequence[str]) -> str:
    return "".join(parts) if len(parts) < 2 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def shell_path(path: str) -> str:
    """Quote a path for a POSIX shell, but not a leading `~`, which a shell would no longer expand."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def signal_name(number: int) -> str:
    """Return `SIGKILL`; `signal 35` for a real-time signal, which has no name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
