"""Rows as tables, text and plots, from one definition of every column."""

UNKNOWN = "—"
"""What people read where a value is not known."""
ESSENTIAL = 0
"""The priority of a column that no table leaves out."""
FITS, FITS_NOT = "✓", "✗"
"""Whether something fits."""
