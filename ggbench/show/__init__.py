"""Runs, plans and models as tables, text, plots and JSON; every column is defined once."""

UNKNOWN = "—"
ESSENTIAL = 0
FITS, FITS_NOT = "✓", "✗"


def letter(index: int) -> str:
    """Return the letter of the run or curve at that index; letters repeat after `z`."""
    return chr(ord("a") + index % 26)
