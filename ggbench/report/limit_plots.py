"""Theoretical curves as terminal plots: read and compute time of prefill with the knees, and decode latency.

Prefill has logarithmic axes, since read and compute time are close to each other over decades of lengths.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggbench.plain import plain
from ggbench.report.braille import DOTS_ACROSS, DOTS_DOWN, BrailleCanvas
from ggbench.report.limits_document import knees_text
from ggbench.theory.hardware import Hardware
from ggbench.theory.limits import DECODE_POSITIONS, SchemeLimits
from ggbench.theory.roofline import decode_latency_ms
from ggbench.units import format_count, format_ms, format_number

_SGR = (36, 33, 35, 32, 34, 31)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LETTER_EVERY = 14
_MIN_WIDTH, _MIN_HEIGHT = 40, 8
_AROUND_KNEES = 6
"""The prefill plot starts at the first knee divided by this and ends at the last knee times this."""
_WITHOUT_KNEES = 4096
_FOREGROUND = 0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Line:
    letter: str
    sgr: int
    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True)
class _Scale:
    """Mapping of the values of an axis to a fraction of its length."""

    low: float
    high: float
    is_log: bool

    def share(self, value: npt.ArrayLike) -> Floats:
        if self.is_log:
            return np.log(np.asarray(value, np.float64) / self.low) / math.log(self.high / self.low)
        return (np.asarray(value, np.float64) - self.low) / (self.high - self.low)

    def ticks(self, count: int) -> list[float]:
        """Return about `count` round numbers within the axis."""
        if not self.is_log:
            rough = (self.high - self.low) / count
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
            return [step * index for index in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        few = len(decades) > count
        steps = (1,) if few else (1, 3) if 2 * len(decades) > count else (1, 2, 5)
        return [
            step * 10.0**decade for decade in decades for step in steps if self.low <= step * 10.0**decade <= self.high
        ]


def prefill_plot(rows: Sequence[SchemeLimits], width: int, height: int, color: bool) -> str:
    """Plot compute time and, for each scheme, read time of a prompt (lm_head once), with knees marked ◆ and a legend.

    Only rows with the first row's batch size are plotted. Empty if no row has curves.
    """
    drawn = [row for row in rows if row.exact is not None and row.batch_size == rows[0].batch_size]
    if not drawn:
        return ""
    curves = [row.exact for row in drawn if row.exact is not None]
    knees = [knee for curve in curves for knee in curve.knees()]
    longest = int(curves[0].n[-1])
    first = max(1, min(knees) // _AROUND_KNEES) if knees else 1
    last = min(longest, max(knees) * _AROUND_KNEES if knees else _WITHOUT_KNEES)
    at = np.unique(np.geomspace(first, last, 4 * width).astype(np.int64)) - 1
    lines = [_Line("c", _FOREGROUND, curves[0].n[at].astype(np.float64), curves[0].compute_ms[at])]
    letters = [letter for letter in _LETTERS if letter != "c"]
    marks = []
    for index, curve in enumerate(curves):
        sgr = _SGR[index % len(_SGR)]
        lines.append(_Line(letters[index % len(letters)], sgr, curve.n[at].astype(np.float64), curve.read_ms[at]))
        marks += [(float(knee), float(curve.compute_ms[knee - 1]), sgr) for knee in curve.knees() if knee <= last]
    legend = [("c", _FOREGROUND, "compute")]
    for line, row, curve in zip(lines[1:], drawn, curves, strict=True):
        name = "knee" if len(curve.knees()) == 1 else "knees"
        legend.append((line.letter, line.sgr, f"read {plain(row.scheme)}, {name} ◆ {knees_text(curve)}"))
    return _plot("first token [ms]", "prompt [tokens]", lines, marks, legend, (width, height), color=color, is_log=True)


def decode_plot(rows: Sequence[SchemeLimits], hardware: Hardware, width: int, height: int, color: bool) -> str:
    """Plot the latency of one step by position, one line for each scheme; ◆ marks the longest context that fits."""
    drawn = [row for row in rows if row.b_ms is not None and row.batch_size == rows[0].batch_size]
    if not drawn or hardware.bandwidth_bytes_per_s is None:
        return ""
    lines, marks, legend = [], [], []
    for index, row in enumerate(drawn):
        last = min(DECODE_POSITIONS[-1], row.max_n_ctx or DECODE_POSITIONS[-1])
        x = np.linspace(1, max(2, last), 4 * width)
        y = decode_latency_ms(
            row.weights,
            row.kv,
            hardware.bandwidth_bytes_per_s,
            hardware.compute_flop_per_s,
            x,
            row.batch_size,
        )
        letter, sgr = _LETTERS[index % len(_LETTERS)], _SGR[index % len(_SGR)]
        lines.append(_Line(letter, sgr, x, y))
        note = "" if row.fits is not False else ", does not fit"
        if last < DECODE_POSITIONS[-1]:
            marks.append((float(x[-1]), float(y[-1]), sgr))
            note = f", fits {format_count(row.max_n_ctx)} ◆"
        w = format_number(row.w_tokens_per_ms, 4)
        legend.append((letter, sgr, f"{plain(row.scheme)}: W {w} tokens/ms, B {format_ms(row.b_ms)} ms{note}"))
    return _plot("latency of one step [ms]", "position [tokens]", lines, marks, legend, (width, height), color=color)


def _plot(
    title: str,
    x_title: str,
    lines: Sequence[_Line],
    marks: Sequence[tuple[float, float, int]],
    legend: Sequence[tuple[str, int, str]],
    size: tuple[int, int],
    *,
    color: bool,
    is_log: bool = False,
) -> str:
    width, rows = max(_MIN_WIDTH, size[0]), max(_MIN_HEIGHT, size[1]) - 4
    x_scale = _Scale(min(float(line.x[0]) for line in lines), max(float(line.x[-1]) for line in lines), is_log)
    y_low = min(float(line.y.min()) for line in lines) if is_log else 0.0
    y_scale = _Scale(y_low, max(float(line.y.max()) for line in lines) * 1.001, is_log)
    ticks = y_scale.ticks(rows // 3)
    labels = [format_number(tick, 1) for tick in ticks]
    margin = max(map(len, labels), default=1)
    columns = width - margin - 2
    canvas = BrailleCanvas(columns, rows)

    def dots(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        across = np.rint(x_scale.share(x) * (columns * DOTS_ACROSS - 1)).astype(np.int64)
        down = np.rint((1 - y_scale.share(y)) * (rows * DOTS_DOWN - 1)).astype(np.int64)
        return across, down

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
    text = [title]
    for row in range(rows):
        rule = "┤" if row in at_row else "│"
        text.append(f"{at_row.get(row, ''):>{margin}} {rule}{canvas.line(row, color=color)}".rstrip())
    text += _x_axis(x_scale, lambda x: int(dots([x], [y_scale.high])[0][0]) // DOTS_ACROSS, columns, margin)
    text.append(f"{' ' * (margin + 2)}{x_title}")
    for letter, sgr, label in legend:
        text.append(f"\x1b[{sgr}m{letter}\x1b[0m {label}" if color and sgr else f"{letter} {label}")
    return "\n".join(text)


def _x_axis(scale: _Scale, column_of: Callable[[float], int], columns: int, margin: int) -> list[str]:
    rule, numbers = ["─"] * columns, [" "] * columns
    free_from = 0
    for tick in scale.ticks(max(2, columns // 10)):
        column, label = column_of(tick), format_count(round(tick))
        start = max(0, min(column - len(label) // 2, columns - len(label)))
        if start >= free_from:
            rule[column] = "┬"
            numbers[start : start + len(label)] = label
            free_from = start + len(label) + 1
    indent = " " * (margin + 1)
    return [f"{indent}└{''.join(rule)}", f"{indent} {''.join(numbers)}".rstrip()]
