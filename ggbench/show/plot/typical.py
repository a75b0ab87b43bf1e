"""The typical latency along a curve of single steps: a rolling median that a spike does not move.

Some steps of a decode take twice as long as their neighbours: drawn from the least to the largest, they hide the curve.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggbench.show.figures import Floats, Integers

WINDOW = 256
"""Positions of one median. llama.cpp reads the KV cache in steps of 256 cells (`llama_kv_cache::get_n_kv`), so latency
rises by stairs of that width: a median of one stair keeps their edges where they are."""
_SHORT = 8
"""A median is at most this part of the positions wide, so that a short run is no flat line."""


def rolling_median(x: Integers, y: Floats, at: npt.ArrayLike) -> Floats:
    """Return the median of the values around each x of `at`, over `WINDOW` positions or an eighth of all.

    `x` may come in any order and more than once, as those of repetitions do. Towards an end, and towards a gap in `x`,
    the window becomes narrower to stay centred. Empty without values.
    """
    places = np.asarray(at, np.float64)
    if not len(x):
        return np.empty(0)
    if (np.diff(x) < 0).any():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    steps = np.diff(x)
    n_positions = int(np.count_nonzero(steps)) + 1
    half = min(WINDOW, n_positions // _SHORT) * len(x) // n_positions // 2
    breaks = np.flatnonzero(steps > 1) + 1
    edges = np.concatenate([[0], breaks, [len(x)]])
    middle = _nearest(x, places)
    part = np.searchsorted(breaks, middle, "right")
    reach = np.minimum(half, np.minimum(middle - edges[part], edges[part + 1] - 1 - middle))
    found = np.empty(len(middle))
    is_whole = reach == half
    windows = np.lib.stride_tricks.sliding_window_view(y, 2 * half + 1)
    found[is_whole] = np.median(windows[middle[is_whole] - half], axis=1)
    for index in np.flatnonzero(~is_whole):
        start, stop = middle[index] - reach[index], middle[index] + reach[index] + 1
        found[index] = np.median(y[start:stop])
    return found


def _nearest(x: Integers, places: Floats) -> Integers:
    """The index of the value of a sorted `x` that is nearest to each place."""
    above = np.clip(np.searchsorted(x, places), 1, max(len(x) - 1, 1))
    is_below = (places - x[above - 1]) <= (x[np.minimum(above, len(x) - 1)] - places)
    return np.where(is_below, above - 1, np.minimum(above, len(x) - 1)).astype(np.int64)
