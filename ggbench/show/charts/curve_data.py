"""Curves reduced to what a picture can show: a line, the band behind it, and marks for steps beyond the top.

10,000 steps are more than a screen has pixels: each of at most `BINS` bins keeps its least and largest step, so that no
spike is lost, and the typical one, which the eye follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ggbench.show.axes import Axis, from_a_tick, x_axis, y_axis
from ggbench.show.figures import Curve, Figure, Line
from ggbench.show.plot.frame import min_max_columns, typical_columns

BINS = 800
"""About the pixels across a figure; a zoomed one shows them as they are."""
TICKS = 8, 6
"""Across and up, at most."""
_DIGITS = 5
"""Of a value in a picture: finer than a pixel."""

Row = dict[str, Any]


class CurveData(msgspec.Struct, frozen=True):
    """The rows of one figure; each has `s`, the index of its run."""

    x: Axis
    y: Axis
    bins: list[Row]
    """`x`, `y` and the band from `lo` to `hi`."""
    lines: list[Row]
    """The two ends of fits (`k` is `fit`) and limits (`limit`)."""
    slow: list[Row]
    """Bins with a step beyond the top: `x`, and its latency `v`."""
    ends: list[Row]
    """Where the letter of each curve stands."""


def curve_data(figure: Figure) -> CurveData:
    """Reduce a figure that is not empty."""
    curves = [curve for curve in figure.curves if len(curve.x)]
    whole = x_axis(curves, figure.x_end)
    x = from_a_tick(whole, TICKS[0])
    y = from_a_tick(y_axis(curves, whole, figure.least_range, figure.y_low), TICKS[1])
    data = CurveData(x, y, [], [], [], [])
    for index, curve in enumerate(figure.curves):
        if len(curve.x):
            _add(data, index, curve, whole)
    return data


def _add(data: CurveData, index: int, curve: Curve, whole: Axis) -> None:
    rows = list(_bins(index, curve, whole))
    data.bins.extend(rows)
    if curve.error is None:
        data.slow.extend({"s": index, "x": row["x"], "v": row["hi"]} for row in rows if row["hi"] > data.y.high)
    first, last = float(curve.x.min()), float(curve.x.max())
    for kind, line in (("fit", curve.fit), ("limit", curve.limit)):
        if line is not None:
            data.lines.extend(_ends(index, kind, line, (first, last)))
    data.ends.append({"s": index, "x": rows[-1]["x"], "y": rows[-1]["y"]})


def _bins(index: int, curve: Curve, whole: Axis) -> Iterator[Row]:
    if curve.error is not None:
        for x, y, error in zip(curve.x.tolist(), curve.y.tolist(), curve.error.tolist(), strict=True):
            yield {"s": index, "x": x, "y": _short(y), "lo": _short(y - error), "hi": _short(y + error)}
        return
    n_bins = BINS if len(curve.x) > BINS else max(1, int(whole.high - whole.low) + 1)
    n_bins = min(n_bins, BINS)
    band, typical = min_max_columns(curve, whole, n_bins), typical_columns(curve, whole, n_bins)
    middle = whole.low + (band.column + 0.5) / n_bins * (whole.high - whole.low)
    columns = (middle.tolist(), typical.least.tolist(), band.least.tolist(), band.largest.tolist())
    for x, y, low, high in zip(*columns, strict=True):
        yield {"s": index, "x": round(x), "y": _short(y), "lo": _short(low), "hi": _short(high)}


def _ends(index: int, kind: str, line: Line, positions: Sequence[float]) -> list[Row]:
    return [
        {"s": index, "k": kind, "x": round(position), "y": _short(float(line.ms(position)))} for position in positions
    ]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
