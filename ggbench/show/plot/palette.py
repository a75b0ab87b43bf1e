"""Letters and colours of curves by their index, for every place that draws them.

Letters alone distinguish curves: colour may be missing, or invisible to the reader.
"""

from __future__ import annotations

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SGR = (36, 33, 35, 32, 34, 31)

ON_DARK = ("#5fd7ff", "#ffd75f", "#ff87ff", "#87ff87", "#ff8787", "#afafff")
ON_LIGHT = ("#005f87", "#875f00", "#870087", "#005f00", "#af0000", "#3a3aaf")
ON_PAPER = ("#0072b2", "#c04f00", "#00805c", "#a64d84", "#8a6500", "#2b2b9e", "#5c5c5c", "#b0182f")
"""Of charts on white: Okabe and Ito's colours (https://jfly.uni-koeln.de/color), which people with any colour vision
can distinguish, darkened until each has a contrast of 4.5 (WCAG 2.2, 1.4.3), as letters and thin lines need.
"""
ON_SLATE = ("#56b4e9", "#f0954f", "#2fc99b", "#e2a0c6", "#e6c200", "#a9a9ff", "#bdbdbd", "#ff8a94")
"""The same hues on a dark page, as light."""


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
