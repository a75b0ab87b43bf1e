"""Plans of a model for several machines, side by side, and which of them to choose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.machine.description import GIVEN_GPU
from ggbench.record import Record
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.changes import cheapest_options
from ggbench.show.document import Document
from ggbench.show.figure import Figure, Value, figures_type
from ggbench.show.names import short_device
from ggbench.show.plan import (
    INTERVALS,
    MACHINE,
    PLACED,
    PLAN_FIGURES,
    ROW,
    assumed_memory,
    at_n_ctx,
    basis_mark,
    beyond_training,
    estimated_from,
    machine_values,
    row_values,
    span_text,
)
from ggbench.show.words import say
from ggbench.sizing.plan_record import Budget, EnginePlan, PlanRow
from ggbench.stats.intervals import Estimate, ratio_interval
from ggbench.stats.speed_curve import inverse
from ggbench.text import in_words
from ggbench.units import format_bandwidth, format_bytes, format_ratio


class MachineChoice(Record):
    """Which of several machines runs a quant best, by name."""

    quant: str
    fitting: tuple[str, ...]
    """Those that it fits on, in the order given."""
    fastest: str | None = None
    """The fastest of them at n_ctx; None unless there are several, each with a known speed."""
    lead: float | None = None
    """Speed of the fastest over that of the first given, or of the second fastest if that is it; None without one."""
    lead_ci95: tuple[float, float] | None = None
    """Its 95 % interval, None without an upper end. It takes both speeds as independent, so it is too wide where both
    are estimates, which share an error.
    """
    verdict: str = ""
    """The choice in a sentence."""
    session: str = ""
    """Name of the session that is compared; empty for the speed at n_ctx."""


def choose_machine(places: Sequence[str], rows: Sequence[PlanRow], session: str = "") -> MachineChoice:
    """Return the choice among the rows of one quant, one for each machine; `places` are from `machine_name`."""
    on_each = list(zip(places, rows, strict=True))
    choice = MachineChoice(rows[0].quant, tuple(name for name, row in on_each if row.fits), session=session)
    values: dict[str, Value] = {
        "quant": choice.quant,
        "n_ctx": rows[0].n_ctx,
        "places": in_words(choice.fitting),
    }
    values["lacking"] = "; ".join(_lack(name, row) for name, row in on_each if not row.fits)
    if len(choice.fitting) < 2:
        return replace(choice, verdict=say("machines.only" if choice.fitting else "machines.none", **values))
    rates = [(_rate(row, session), name) for name, row in on_each if row.fits]
    speeds = [(rate, name) for rate, name in rates if rate is not None]
    if len(speeds) < len(choice.fitting):
        return replace(choice, verdict=say("machines.any", **values))
    return _compared(choice, speeds, values)


def _rate(row: PlanRow, session: str) -> Estimate | None:
    """Return tokens/s, or how many sessions a second has; None if unknown."""
    if not session:
        return row.expected
    total = row.session and row.session.total_s
    return inverse(total, 1.0) if total else None


def _compared(
    choice: MachineChoice, speeds: Sequence[tuple[Estimate, str]], values: dict[str, Value]
) -> MachineChoice:
    """Return which is the fastest, beginning with the one that was asked for."""
    asked, (first, *others) = speeds[0], sorted(speeds, key=lambda each: -each[0].value)
    is_asked = first is asked
    (speed, fastest), (second, other) = first, others[0] if is_asked else asked
    lead = speed.value / second.value
    ends = ratio_interval(speed.value, (speed.low, speed.high), second.value, (second.low, second.high))
    values |= {"asked": asked[1], "other": other if is_asked else fastest, "lead": format_ratio(lead, *ends)}
    key = "fastest" if is_asked else "slower"
    verdict = say(f"machines.{key if ends[0] > 1 else 'undecided'}", **values)
    return replace(
        choice, fastest=fastest, lead=lead, lead_ci95=ends if math.isfinite(ends[1]) else None, verdict=verdict
    )


def _lack(name: str, row: PlanRow) -> str:
    if row.left_bytes is None or row.left_bytes >= 0:
        return say("machines.unsized", place=name)
    return say("machines.lacks", place=name, short=format_bytes(-row.left_bytes))


def machine_name(budget: Budget) -> str:
    """Return a short name of a machine with its memory, as some cards of one name are sold with two sizes.

    `RTX 3060 12.0 GiB`; a GPU described only by its memory has its bandwidth: `GPU 24.0 GiB @ 936 GB/s`.
    """
    name = f"{short_device(budget.device).replace(GIVEN_GPU, 'GPU')} {format_bytes(budget.memory_bytes)}"
    if GIVEN_GPU not in budget.device or budget.bandwidth is None:
        return name
    return f"{name} @ {format_bandwidth(budget.bandwidth.bytes_per_s)}"


def machines_answer(plans: Sequence[EnginePlan], choices: Sequence[MachineChoice]) -> Answer:
    """Return which machine to choose for the largest quant that fits on one, with a row for each quant and machine."""
    places = [machine_name(plan.budget) for plan in plans]
    by_size = sorted(zip(plans[0].rows, choices, strict=True), key=lambda each: -(each[0].weight_bytes or 0))
    shown = next((choice for _, choice in by_size if choice.fitting), by_size[-1][1])
    rows = [row for of_quant in zip(*(plan.rows for plan in plans), strict=True) for row in of_quant]
    place_of = dict(zip(map(id, rows), places * len(choices), strict=True))
    names = (
        PLAN_FIGURES["quant"],
        Figure[PlanRow]("machine", "machine", lambda row: place_of[id(row)]),
        PLACED,
    )
    front = _front(rows, shown.session)
    behind = (PLAN_FIGURES["limit_tok_s"], INTERVALS[0])
    return Answer(
        shown.verdict,
        "",
        [Table((*names, *front), rows, style=lambda row: "" if row.fits else "dim")],
        [
            *dict.fromkeys(assumed_memory(plan.budget, plan.rows) for plan in plans),
            beyond_training(plans[0]),
            estimated_from(plans[0].budget, rows),
            *(_note(place_of[id(row)], row) for row in rows),
        ],
        [
            Facts([("", choice.verdict) for _, choice in by_size if choice is not shown]),
            Table((*names, *behind), rows),
        ],
    )


def _front(rows: Sequence[PlanRow], session: str) -> list[Figure[PlanRow]]:
    """Return the figures of the first table, with the time of a session if one is compared."""
    *before, speed, loss = map(
        PLAN_FIGURES.__getitem__, ("needed_bytes", "left_bytes", "max_n_ctx", "tok_s", "kld")
    )
    times = [Figure[PlanRow]("session", f"{session} session", _total)] if session else []
    return [*before, at_n_ctx(speed, rows), *times, loss]


def _total(row: PlanRow) -> str:
    total = row.session and row.session.total_s
    return f"{basis_mark(total)}{span_text(total)}" if total else "?"


def _note(place: str, row: PlanRow) -> str:
    """Return why a quant has no plan, or the cheapest change with which it fits."""
    if row.outcome is not Outcome.COMPLETED:
        return say("plan.failed", quant=row.quant, why=row.reason)
    options = cheapest_options(row)
    return say("machines.remedy", place=place, quant=row.quant, options=options) if options else ""


_PLANNED: Any = figures_type(
    "PlannedMachine",
    (),
    "The plan for one machine.",
    {"machine": MACHINE, "rows": list[ROW]},  # type: ignore[valid-type]
)
PLAN_MACHINES = Document(
    "plan.machines",
    "plan MODEL [QUANT...] --or GPU",
    "The needs of each quant on several machines, and which of them to choose.",
    figures_type(
        "PlanMachines", (), "", {"model": str, "machines": list[_PLANNED], "choices": list[MachineChoice]}
    ),
)


def machines_record(plans: Sequence[EnginePlan], choices: Sequence[MachineChoice]) -> dict[str, object]:
    """Return plans for several machines for JSON."""
    machines = [
        {"machine": machine_values(plan.budget), "rows": list(map(row_values, plan.rows))} for plan in plans
    ]
    return {"model": plans[0].rows[0].model, "machines": machines, "choices": choices}
