"""A canvas of braille characters, eight dots to a character, with single characters laid over the dots.

The dots of one character share one colour, and without colour all dots look alike: letters distinguish the curves.
"""

from __future__ import annotations

from itertools import groupby

DOTS_ACROSS = 2
DOTS_DOWN = 4
BLANK = 0x2800
# Source: Unicode block "Braille Patterns": the bit of each dot, by row and column.
BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_RESET = "\x1b[0m"


class BrailleCanvas:
    """`columns` x `rows` characters; dots and characters count from the top left, and what lies outside is cut off."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._dots = [[0] * columns for _ in range(rows)]
        self._over = [[""] * columns for _ in range(rows)]
        self._sgr = [[0] * columns for _ in range(rows)]

    def draw_line(self, x0: int, y0: int, x1: int, y1: int, sgr: int = 0) -> None:
        """Draw dots from one dot to another, both included; `sgr` is the number of an ANSI colour, 0 for none."""
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            x, y = x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps)
            column, row = x // DOTS_ACROSS, y // DOTS_DOWN
            if 0 <= column < self.columns and 0 <= row < self.rows:
                self._dots[row][column] |= BITS[y % DOTS_DOWN][x % DOTS_ACROSS]
                self._sgr[row][column] = sgr

    def add_dots(self, column: int, row: int, character: str, sgr: int = 0) -> None:
        """Add the dots of a braille character to those that are there."""
        self._dots[row][column] |= ord(character) - BLANK
        self._sgr[row][column] = sgr

    def put(self, column: int, row: int, character: str, sgr: int = 0) -> None:
        """Put one character in place of whatever dots are there."""
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self._over[row][column] = character
            self._sgr[row][column] = sgr

    def put_where_blank(self, column: int, row: int, character: str, sgr: int = 0) -> None:
        """Put one character where there are neither dots nor a character."""
        if 0 <= column < self.columns and 0 <= row < self.rows and self._character(column, row) == " ":
            self.put(column, row, character, sgr)

    def line(self, row: int, *, color: bool) -> str:
        """Return one row of text, as wide as the canvas."""
        cells = [
            (self._character(column, row), self._sgr[row][column] if color else 0) for column in range(self.columns)
        ]
        runs = (
            (sgr, "".join(character for character, _ in run)) for sgr, run in groupby(cells, key=lambda cell: cell[1])
        )
        return "".join(f"\x1b[{sgr}m{text}{_RESET}" if sgr else text for sgr, text in runs)

    def _character(self, column: int, row: int) -> str:
        dots = self._dots[row][column]
        return self._over[row][column] or (chr(BLANK + dots) if dots else " ")
