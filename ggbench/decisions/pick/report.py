"""A pick in a terminal: what was asked, the recommendation and why, what stands beside it as a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ggbench.decisions.pick.needs import needs_text, workload_text
from ggbench.decisions.pick.record import Candidate, Checked, Pick
from ggbench.decisions.pick.run_commands import RunCommands, commands_lines
from ggbench.decisions.pick.show import (
    candidate_name,
    headline,
    loss_source,
    loss_text,
    reason,
    speed_source,
    tok_s_text,
    turn_text,
)
from ggbench.engines.endings import Outcome
from ggbench.show import FITS_NOT, UNKNOWN
from ggbench.show.names import model_names
from ggbench.show.plot.axes import Axis, tick_decimals, tick_step, ticks_within
from ggbench.show.plot.braille import BrailleCanvas
from ggbench.show.plot.curves import legend_lines
from ggbench.show.plot.palette import letter, terminal_color
from ggbench.show.plot.terminal import colored, framed
from ggbench.show.terminal.changes import changes_report
from ggbench.show.terminal.plan import longest_text
from ggbench.show.terminal.tables import Cells, Facts, facts_table, fitted_table, left, names, notes, right
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.text import in_words, plain
from ggbench.units import format_bandwidth, format_bytes, format_count, format_fixed, format_number


def pick_report(
    pick: Pick, budget: Budget, commands: RunCommands | None, *, width: int, show_all: bool = False
) -> RenderableType:
    """Return what was asked, the recommendation, why, the table, no wider than `width`, and the commands.

    `show_all` shows every candidate, else the pick, its alternatives and what stands nearest.
    """
    shown = (*pick.listed, *pick.unlisted) if show_all else pick.listed
    parts: list[RenderableType] = [
        Padding(facts_table(_title(pick, budget), _facts(pick, budget)), (0, 0, 1, 0)),
        Text(headline(pick), style="bold"),
        Padding(Text("\n".join(map(plain, reason(pick)))), (0, 0, 1, 0)),
        fitted_table(
            _cells(pick, shown),
            labels=[candidate_name(checked.candidate, with_model=pick.n_models > 1) for _, checked in shown],
            dim=[checked.meets is False for _, checked in shown],
            width=width,
        ),
        Text(_legend(shown), style="dim"),
    ]
    if pick.nearest_miss is not None and pick.changes:
        name = candidate_name(pick.nearest_miss.candidate, with_model=pick.n_models > 1)
        title = f"what would make {name} fit at n_ctx {format_count(pick.needs.n_ctx)}"
        parts.append(Padding(changes_report(title, pick.changes, width=width), (1, 0, 0, 0)))
    return Group(*parts, *([] if commands is None else [commands_text(commands)]))


def commands_text(commands: RunCommands) -> RenderableType:
    """Return the lines that download and run it, each whole on a line of its own."""
    whole = Text("\n".join(["", *commands_lines(commands)]), no_wrap=True, overflow="ignore")
    return Group(whole, *map(Text, ["", *commands.notes] if commands.notes else []))


def _title(pick: Pick, budget: Budget) -> str:
    subjects = [each.candidate.row.subject for each in pick.checked]
    model = model_names(subjects)[0] if pick.n_models == 1 else f"{pick.n_models} models"
    return f"{plain(model)} on {budget.device}"


def _facts(pick: Pick, budget: Budget) -> Facts:
    needs, bandwidth = pick.needs, budget.bandwidth
    reserve = f"{format_bytes(budget.reserve_bytes)} kept free ({budget.reserve_source}; --reserve)"
    n_met = sum(each.meets is True for each in pick.checked)
    n_open = sum(each.meets is None for each in pick.checked)
    return [
        ("workload", workload_text(needs)),
        ("needs", needs_text(needs)),
        ("memory", f"{format_bytes(budget.memory_bytes)} ({budget.memory_source}), {reserve}"),
        ("bandwidth", f"{format_bandwidth(bandwidth.bytes_per_s)} ({bandwidth.source})" if bandwidth else "not known"),
        (
            "candidates",
            f"{len(pick.checked)}: {n_met} meet the needs, {n_open} may, "
            f"{len(pick.checked) - n_met - n_open} do not; {len(pick.front)} are not dominated",
        ),
    ]


def _cells(pick: Pick, shown: Sequence[tuple[str, Checked]]) -> list[Cells]:
    candidates = [checked.candidate for _, checked in shown]
    rows = [each.row for each in candidates]
    models = [names("model", model_names([each.subject for each in rows]))] if pick.n_models > 1 else []
    speeds = (each.speed.basis if each.speed else UNKNOWN for each in candidates)
    cells = [
        names("", (label for label, _ in shown)),
        *models,
        names("quant", (each.selector or each.row.quant for each in candidates)),
        left("KV", ("/".join(dict.fromkeys(each.cache)) for each in candidates), stays=True),
        right("loss", map(loss_text, candidates), "nats", stays=True),
        right("answer", map(tok_s_text, candidates), "tok/s", stays=True),
        left("speed is", speeds, priority=4),
        right("turn", map(turn_text, candidates), "s", 1),
        right("memory", (format_bytes(each.needed_bytes) for each in rows), "", 3),
        right("left", map(_left_text, rows), "", 2),
        right("max n_ctx", map(_longest, candidates), "tokens", stays=True),
        right("file", (format_bytes(each.file_bytes) for each in rows), "", 5),
        right("download", map(_download_text, candidates), "", 6),
        right("BPW", (format_number(each.bpw) for each in rows), "bits", 7),
        notes(_note(checked) for _, checked in shown),
    ]
    return [each for each in cells if not each.is_empty or each.is_note]


def _left_text(row: PlanRow) -> str:
    """`1.50 GiB`; `✗ -1.40 GiB` where as much is missing."""
    if row.left_bytes is None or row.fits is None:
        return UNKNOWN
    return format_bytes(row.left_bytes) if row.fits else f"{FITS_NOT} {format_bytes(row.left_bytes)}"


def _download_text(candidate: Candidate) -> str:
    """Nothing of what is on this disk."""
    return "" if candidate.download_bytes == 0 else format_bytes(candidate.download_bytes)


def _longest(candidate: Candidate) -> str:
    if candidate.probed_by is not None:
        return f"{format_count(candidate.max_n_ctx)}†"
    return longest_text(candidate.row)


def _note(checked: Checked) -> str:
    """What it misses besides memory, and the runs that its figures are from."""
    candidate = checked.candidate
    if candidate.row.outcome is not Outcome.COMPLETED:
        return candidate.row.reason
    parts = [f"{FITS_NOT} {check.need}" for check in checked.missed if check.need != "memory"]
    parts += [text for text in (loss_source(candidate), speed_source(candidate)) if text]
    if candidate.probed_by is not None:
        parts.append(f"max n_ctx found by run {candidate.probed_by}")
    return "; ".join(parts)


def _legend(shown: Sequence[tuple[str, Checked]]) -> str:
    candidates = [checked.candidate for _, checked in shown]
    losses = [loss_text(each) for each in candidates]
    lines = ["loss: mean KL divergence, that of the weights and that of the KV cache added"]
    typical = [each.weights_loss for each in candidates if each.weights_loss and each.weights_loss.published]
    if any("~" in text for text in losses) and typical:
        models = dict.fromkeys(one.of.partition(",")[0] for loss in typical for one in loss.published)
        lines.append(f"~: typical of the quant's type, as published of {in_words(list(models))}; not of this model")
    if any("?" in text for text in losses):
        lines.append("+ ?: and what the KV cache loses, which is unknown")
    bounds = [each.speed for each in candidates if each.speed is not None and each.speed.is_bound]
    if bounds:
        lines.append("≤: the best that the bandwidth allows; it can prove only that a need is missed")
    if any(checked.candidate.row.exceeds_training for _, checked in shown):
        trained = sorted({n for each in candidates if (n := each.row.n_ctx_train)})
        lines.append(f"*: beyond the training context of {in_words(list(map(format_count, trained)))}")
    if any(each.probed_by is not None for each in candidates):
        lines.append("†: found by real allocations")
    return "\n".join([*lines, "how it is chosen: ggbench pick --help"])


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
