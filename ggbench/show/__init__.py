"""Rows as tables, text and plots, from one definition of every column."""

UNKNOWN = "—"
"""What people read where a value is not known."""
ESSENTIAL = 0
"""The priority of a column that no table leaves out."""
FITS, FITS_NOT = "✓", "✗"
"""Whether something fits."""


def letter(index: int) -> str:
    """Return the letter of the run or curve at that index, everywhere the same; they repeat after `z`."""
    return chr(ord("a") + index % 26)
