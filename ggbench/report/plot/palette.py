"""Letters and colours of curves by their index, for every place that draws them.

Letters alone distinguish curves: colour may be missing, or invisible to the reader.
"""

from __future__ import annotations

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SGR = (36, 33, 35, 32, 34, 31)

ON_DARK = ("#5fd7ff", "#ffd75f", "#ff87ff", "#87ff87", "#ff8787", "#afafff")
ON_LIGHT = ("#005f87", "#875f00", "#870087", "#005f00", "#af0000", "#3a3aaf")
ON_WHITE = ("#0b6e99", "#b35c00", "#8a2b8a", "#2e7d32", "#b3261e", "#4646b4")
"""Dark enough on white for lines and letters."""


def letter(index: int, *, except_for: str = "") -> str:
    """Return the letter of the curve at that index, skipping those in `except_for`; they repeat after `z`."""
    letters = [one for one in _LETTERS if one not in except_for]
    return letters[index % len(letters)]


def terminal_color(index: int) -> int:
    """Return the SGR number of an ANSI colour that is readable on black and on white."""
    return _SGR[index % len(_SGR)]


def hex_color(index: int, palette: tuple[str, ...]) -> str:
    """Return the colour of the curve at that index in one of the palettes of this module."""
    return palette[index % len(palette)]
