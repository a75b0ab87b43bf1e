"""The candidates of a pick in a terminal: loss over speed, with the memory they take as the size of the mark."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.decisions.pick.record import Candidate, Checked, Pick
from ggbench.decisions.pick.show import candidate_name, loss_text, tok_s_text
from ggbench.show.plot.axes import Axis, tick_decimals, tick_step, ticks_within
from ggbench.show.plot.braille import BrailleCanvas
from ggbench.show.plot.curves import legend_lines
from ggbench.show.plot.palette import letter, terminal_color
from ggbench.show.plot.terminal import colored, framed
from ggbench.units import format_bytes, format_fixed

_MIN_WIDTH, _MIN_HEIGHT = 40, 8
_SIZES = "·∙•●"
"""Marks by the share of the memory that a candidate takes."""
_PICK, _UNKNOWN = "★", "?"
_ROOM = 0.05


def lettered(pick: Pick) -> tuple[Checked, ...]:
    """Return those that the plot gives letters, in the order of these: of the front what misses no need."""
    front = {each.name for each in pick.front}
    return tuple(each for each in _open_to_choice(pick) if each.candidate.name in front)


def pick_plot(pick: Pick, width: int, height: int, *, color: bool, has_legend: bool = True) -> str:
    """Return the front and the recommendation as letters with a mark, and a legend; dots of those that are dominated.

    A loss of which only a part is known stands at that part, with `?` in place of the mark. Empty where fewer than two
    candidates have a speed and a loss.
    """
    open_to_choice, shown = _open_to_choice(pick), lettered(pick)
    if len(open_to_choice) < 2:
        return ""
    points = [place for each in open_to_choice if (place := _place(each.candidate)) is not None]
    x, y = (_axis([point[index] for point in points]) for index in (0, 1))
    rows = max(_MIN_HEIGHT, height) - 4
    step = tick_step(y.low, y.high, max(2, rows // 3))
    labels = {tick: format_fixed(tick, tick_decimals(step)) for tick in ticks_within(y.low, y.high, step)}
    margin = max(map(len, labels.values()), default=1)
    canvas = BrailleCanvas(max(_MIN_WIDTH, width) - margin - 2, rows)
    legend = []
    for each in open_to_choice:
        _put(canvas, x, y, each, _SIZES[0])
    for index, each in enumerate(shown):
        sgr = terminal_color(index)
        is_pick = pick.recommended is not None and each.candidate.name == pick.recommended.candidate.name
        mark = _PICK if is_pick else _mark(each.candidate)
        _put(canvas, x, y, each, mark, sgr)
        _put(canvas, x, y, each, letter(index), sgr, shift=1)
        name = candidate_name(each.candidate, with_model=pick.n_models > 1)
        figures = f"{loss_text(each.candidate)} nats, {tok_s_text(each.candidate)} tok/s"
        memory = format_bytes(each.candidate.row.needed_bytes)
        legend.append(colored(f"{mark} {letter(index)} {name}: {figures}, {memory}", sgr, color=color))
    at_row = {int(canvas.rows - 1 - y.bins(tick, canvas.rows)): text for tick, text in labels.items()}
    ticks = [tick for tick in x.ticks(max(2, canvas.columns // 12)) if tick == round(tick)]
    places = [(int(x.bins(tick, canvas.columns)), tick) for tick in ticks]
    lines = framed(canvas, at_row, places, ("loss [nats]", "answer [tok/s]"), margin, color=color)
    key = f"{_SIZES[1:]} more memory, {_PICK} the pick, {_UNKNOWN} loses an unknown amount more, {_SIZES[0]} dominated"
    return "\n".join([*lines, *(legend_lines([key], width, "") + legend if has_legend else [])])


def _open_to_choice(pick: Pick) -> list[Checked]:
    """Those with a place in the plot that miss no need."""
    return [each for each in pick.checked if each.meets is not False and _place(each.candidate) is not None]


def _put(
    canvas: BrailleCanvas, x: Axis, y: Axis, checked: Checked, character: str, sgr: int = 0, shift: int = 0
) -> None:
    place = _place(checked.candidate)
    if place is not None:
        column, row = int(x.bins(place[0], canvas.columns)), int(canvas.rows - 1 - y.bins(place[1], canvas.rows))
        canvas.put(min(column + shift, canvas.columns - 1), row, character, sgr)


def _place(candidate: Candidate) -> tuple[float, float] | None:
    """Speed and loss."""
    loss, speed = candidate.least_loss, candidate.speed
    return None if loss is None or speed is None else (speed.tok_s.value, loss.value)


def _mark(candidate: Candidate) -> str:
    """By the share of the budget that it takes; `?` where the loss is not wholly known."""
    if candidate.loss is None:
        return _UNKNOWN
    needed, budget = candidate.row.needed_bytes, candidate.row.budget_bytes
    share = needed / budget if needed and budget else 0.0
    return _SIZES[1:][min(max(int(share * 3), 0), 2)]


def _axis(values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    room = (high - low or high or 1.0) * _ROOM
    return Axis(max(0.0, low - room), high + room)
