"""A curve of one line: a block character for each column, for values whose course matters more than their size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return at most `width` characters from the least value to the largest; of more values, the mean of each column.

    Values that do not vary are a line at the bottom; no values are no characters.
    """
    if not values:
        return ""
    n = min(width, len(values))
    edges = [index * len(values) // n for index in range(n + 1)]
    means = [fmean(values[begin:end]) for begin, end in pairwise(edges)]
    low, high = min(values), max(values)
    span = high - low or 1.0
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, int((mean - low) / span * len(_BLOCKS)))] for mean in means)
