"""Theoretical curves as terminal plots: read and compute time of prefill with the knees, and decode latency.

Prefill has logarithmic axes, since read and compute time are close to each other over decades of lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.show.limits_document import knees_text
from ggbench.show.plot.axes import Axis
from ggbench.show.plot.braille import DOTS_ACROSS, DOTS_DOWN, BrailleCanvas
from ggbench.show.plot.curves import Floats
from ggbench.show.plot.palette import letter, terminal_color
from ggbench.show.plot.terminal import colored, framed
from ggbench.sizing.theory.hardware import Hardware
from ggbench.sizing.theory.limits import DECODE_POSITIONS, SchemeLimits, decode_latency_ms
from ggbench.text import plain
from ggbench.units import format_count, format_ms, format_number

_LETTER_EVERY = 14
_MIN_WIDTH, _MIN_HEIGHT = 40, 8
_AROUND_KNEES = 6
"""The prefill plot starts at the first knee divided by this and ends at the last knee times this."""
_WITHOUT_KNEES = 4096
_FOREGROUND = 0


class _Line(msgspec.Struct, frozen=True):
    letter: str
    sgr: int
    x: Floats
    y: Floats
    label: str
    """What the legend says of it."""


def prefill_plot(rows: Sequence[SchemeLimits], width: int, height: int, color: bool) -> str:
    """Plot compute time and, for each scheme, read time of a prompt with knees marked ◆ and a legend.

    Only rows with the first row's batch size are plotted. Empty if no row has curves.
    """
    drawn = [row for row in rows if row.prefill is not None and row.batch_size == rows[0].batch_size]
    if not drawn:
        return ""
    curves = [row.prefill for row in drawn if row.prefill is not None]
    knees = [knee for curve in curves for knee in curve.knees()]
    longest = curves[0].longest
    first = max(1, min(knees) // _AROUND_KNEES) if knees else 1
    last = min(longest, max(knees) * _AROUND_KNEES if knees else _WITHOUT_KNEES)
    x = np.unique(np.geomspace(first, last, 4 * width).astype(np.int64)).astype(np.float64)
    lines = [_Line("c", _FOREGROUND, x, np.array([curves[0].compute_ms(n) for n in x]), "compute")]
    marks = []
    for index, (row, curve) in enumerate(zip(drawn, curves, strict=True)):
        name, sgr = letter(index, except_for="c"), terminal_color(index)
        knees_name = "knee" if len(curve.knees()) == 1 else "knees"
        label = f"read {plain(row.scheme)}, {knees_name} ◆ {knees_text(curve)}"
        lines.append(_Line(name, sgr, x, np.array([curve.read_ms(n) for n in x]), label))
        marks += [(float(knee), curve.compute_ms(knee), sgr) for knee in curve.knees() if knee <= last]
    return _plot("first token [ms]", "prompt [tokens]", lines, marks, (width, height), color=color, is_log=True)


def decode_plot(rows: Sequence[SchemeLimits], hardware: Hardware, width: int, height: int, color: bool) -> str:
    """Plot the latency of one step by position, one line for each scheme; ◆ marks the longest context that fits."""
    drawn = [row for row in rows if row.b_ms is not None and row.batch_size == rows[0].batch_size]
    if not drawn or hardware.bandwidth_bytes_per_s is None:
        return ""
    lines, marks = [], []
    for index, row in enumerate(drawn):
        last = min(DECODE_POSITIONS[-1], row.max_n_ctx or DECODE_POSITIONS[-1])
        x = np.linspace(1, max(2, last), 4 * width)
        rates = hardware.bandwidth_bytes_per_s, hardware.compute_flop_per_s
        y = np.array([decode_latency_ms(row.weights, row.kv, *rates, n, row.batch_size) for n in x])
        sgr = terminal_color(index)
        note = "" if row.fits is not False else ", does not fit"
        if last < DECODE_POSITIONS[-1]:
            marks.append((float(x[-1]), float(y[-1]), sgr))
            note = f", fits {format_count(row.max_n_ctx)} ◆"
        w = format_number(row.w_tokens_per_ms, 4)
        label = f"{plain(row.scheme)}: W {w} tokens/ms, B {format_ms(row.b_ms)} ms{note}"
        lines.append(_Line(letter(index), sgr, x, y, label))
    return _plot("latency of one step [ms]", "position [tokens]", lines, marks, (width, height), color=color)


def _plot(
    title: str,
    x_title: str,
    lines: Sequence[_Line],
    marks: Sequence[tuple[float, float, int]],
    size: tuple[int, int],
    *,
    color: bool,
    is_log: bool = False,
) -> str:
    width, rows = max(_MIN_WIDTH, size[0]), max(_MIN_HEIGHT, size[1]) - 4
    x_scale = Axis(min(float(line.x[0]) for line in lines), max(float(line.x[-1]) for line in lines), is_log)
    y_low = min(float(line.y.min()) for line in lines) if is_log else 0.0
    y_scale = Axis(y_low, max(float(line.y.max()) for line in lines) * 1.001, is_log)
    ticks = y_scale.ticks(rows // 3)
    labels = [format_number(tick, 1) for tick in ticks]
    margin = max(map(len, labels), default=1)
    columns = width - margin - 2
    canvas = BrailleCanvas(columns, rows)

    def dots(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        n_dots_down = rows * DOTS_DOWN
        return x_scale.dots(x, columns * DOTS_ACROSS), n_dots_down - 1 - y_scale.dots(y, n_dots_down)

    for line in lines:
        path = [(int(x), int(y)) for x, y in zip(*dots(line.x, line.y), strict=True)]
        for (x0, y0), (x1, y1) in itertools.pairwise(path):
            canvas.draw_line(x0, y0, x1, y1, line.sgr)
    for order, line in enumerate(lines):
        across, down = dots(line.x, line.y)
        start = _LETTER_EVERY * order // len(lines) + 2
        for column in range(start, columns, _LETTER_EVERY):
            nearest = int(np.argmin(np.abs(across - column * DOTS_ACROSS)))
            if abs(int(across[nearest]) - column * DOTS_ACROSS) <= DOTS_ACROSS:
                canvas.put(column, int(down[nearest]) // DOTS_DOWN, line.letter, line.sgr)
    for x, y, sgr in marks:
        across, down = dots([x], [y])
        canvas.put(int(across[0]) // DOTS_ACROSS, int(down[0]) // DOTS_DOWN, "◆", sgr)
    at_row = {
        int(dots([x_scale.low], [tick])[1][0]) // DOTS_DOWN: label for tick, label in zip(ticks, labels, strict=True)
    }
    x_ticks = x_scale.ticks(max(2, columns // 10))
    places = [int(dot) // DOTS_ACROSS for dot in x_scale.dots(x_ticks, columns * DOTS_ACROSS)]
    x_places = list(zip(places, x_ticks, strict=True))
    text = framed(canvas, at_row, x_places, (title, x_title), margin, color=color)
    for line in lines:
        text.append(f"{colored(line.letter, line.sgr, color=color)} {line.label}")
    return "\n".join(text)
