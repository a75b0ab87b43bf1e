"""Plans of a model for several machines, side by side, and which of them to choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.record import placement_options
from ggbench.engines.endings import Outcome
from ggbench.machine.description import GIVEN_GPU
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.changes import cheapest_options
from ggbench.show.document import Document
from ggbench.show.figure import Figure, Value, facts_of, figures_type
from ggbench.show.names import short_device
from ggbench.show.plan import (
    FIRST_SPEED,
    HOST_FIGURES,
    INTERVALS,
    MACHINE,
    PLAN_FIGURES,
    ROW,
    assumed_memory,
    at_n_ctx,
    beyond_training,
    estimated_from,
    machine_values,
    row_values,
)
from ggbench.show.text import SPEED_FROM, rows_behind_text
from ggbench.show.words import say
from ggbench.sizing.plan_record import Budget, EnginePlan, PlanRow
from ggbench.stats.intervals import ratio_interval
from ggbench.text import in_words
from ggbench.units import format_bandwidth, format_bytes, format_ratio


class MachineChoice(msgspec.Struct, frozen=True):
    """Which of several machines runs a quant best, by name."""

    quant: str
    fitting: tuple[str, ...]
    """Those that it fits on, in the order given."""
    fastest: str | None = None
    """The fastest of them at n_ctx; None unless the speed of each is known."""
    second: str | None = None
    lead: float | None = None
    """Speed of the fastest over the second."""
    lead_ci95: tuple[float, float] | None = None
    """Its 95 % interval, None without an upper end. It takes both speeds as independent, so it is too wide where both
    are estimates: these share the error of what was fitted for the model, its quant and the family of their cards.
    """
    longest: str | None = None
    """The one with the longest context; None if several have it, or if their placements differ."""
    verdict: str = ""
    """The choice in a sentence."""


def choose_machine(places: Sequence[str], rows: Sequence[PlanRow]) -> MachineChoice:
    """Return the choice among the rows of one quant, one for each machine; `places` are from `machine_names`."""
    row_of = dict(zip(places, rows, strict=True))
    assert len(row_of) == len(rows), "machines of one name"
    fitting = {name: row for name, row in row_of.items() if row.fits}
    choice = MachineChoice(rows[0].quant, tuple(fitting), longest=_longest(fitting))
    speeds = {name: row.expected for name, row in fitting.items() if row.expected is not None}
    if speeds and len(speeds) == len(fitting):
        fastest, *others = sorted(speeds, key=lambda name: -speeds[name].value)
        choice = replace(choice, fastest=fastest)
        if others:
            first, second = speeds[fastest], speeds[others[0]]
            ends = ratio_interval(first.value, (first.low, first.high), second.value, (second.low, second.high))
            lead_ci95 = ends if math.isfinite(ends[1]) else None
            choice = replace(choice, second=others[0], lead=first.value / second.value, lead_ci95=lead_ci95)
    return replace(choice, verdict=_verdict(choice, row_of))


def _longest(fitting: Mapping[str, PlanRow]) -> str | None:
    """Return the only machine with the longest context; None if their placements differ."""
    contexts = {name: row.used_of(row.planned_n_ctx or 0) for name, row in fitting.items()}
    found = [name for name, n_ctx in contexts.items() if n_ctx == max(contexts.values())]
    are_alike = len(set(map(_placed, fitting.values()))) == 1
    return found[0] if are_alike and len(found) == 1 else None


def _verdict(choice: MachineChoice, row_of: Mapping[str, PlanRow]) -> str:
    """Return the choice in a sentence."""
    values: dict[str, Value] = {"quant": choice.quant, "n_ctx": next(iter(row_of.values())).n_ctx}
    lacking = "; ".join(_lack(name, row) for name, row in row_of.items() if not row.fits)
    match choice:
        case MachineChoice(fitting=()):
            return say("machines.none", lacking=lacking, **values)
        case MachineChoice(fitting=(only,)):
            return say("machines.only", best=only, lacking=lacking, **values)
        case MachineChoice(fastest=str(), lead=float(lead)):
            ends = choice.lead_ci95 or (lead, lead)
            values |= {"best": choice.fastest, "second": choice.second, "lead": format_ratio(lead, *ends)}
            if ends[0] > 1:
                return say("machines.fastest", **values)
            if choice.longest is None:
                return say("machines.undecided", **values)
            return say("machines.undecided_longest", **values, **_longest_of(choice.longest, row_of))
        case MachineChoice(longest=str(longest)):
            return say("machines.longest", **values, **_longest_of(longest, row_of))
    return say("machines.any", places=in_words(choice.fitting), **values)


def _longest_of(place: str, row_of: Mapping[str, PlanRow]) -> dict[str, str]:
    return {"place": place, "longest": PLAN_FIGURES["max_n_ctx"].text(row_of[place])}


def _lack(name: str, row: PlanRow) -> str:
    if row.left_bytes is None or row.left_bytes >= 0:
        return say("machines.unsized", place=name)
    return say("machines.lacks", place=name, short=format_bytes(-row.left_bytes))


def _placed(row: PlanRow) -> str:
    """Return the options that keep a part in main memory, `-ncmoe 24`; empty if everything is on the GPUs."""
    return " ".join(placement_options(row.setup)) if row.setup is not None and row.is_split else ""


def machine_names(budgets: Sequence[Budget]) -> list[str]:
    """Return short, distinct names of the machines, with their memory: some cards of one name are sold with two sizes.

    A GPU described only by its memory has its bandwidth instead of a name; of equal machines, the second has a `(2)`.
    """
    found = [_machine_name(budget) for budget in budgets]
    counts = [found[:index].count(name) + 1 for index, name in enumerate(found)]
    return [name if count == 1 else f"{name} ({count})" for name, count in zip(found, counts, strict=True)]


def _machine_name(budget: Budget) -> str:
    """Return `RTX 3060 12.0 GiB`, `GPU 24.0 GiB @ 936 GB/s`."""
    name = f"{short_device(budget.device).replace(GIVEN_GPU, 'GPU')} {format_bytes(budget.memory_bytes)}"
    if GIVEN_GPU not in budget.device or budget.bandwidth is None:
        return name
    return f"{name} @ {format_bandwidth(budget.bandwidth.bytes_per_s)}"


_BASIS = Figure[PlanRow](
    "speed_basis", "speed from", lambda row: SPEED_FROM[row.expected.basis] if row.expected else None
)


def machines_answer(plans: Sequence[EnginePlan], choices: Sequence[MachineChoice]) -> Answer:
    """Return which machine to choose for the largest quant that fits on one, with a row for each quant and machine."""
    places = machine_names([plan.budget for plan in plans])
    by_size = sorted(zip(plans[0].rows, choices, strict=True), key=lambda each: -(each[0].weight_bytes or 0))
    shown = next((choice for _, choice in by_size if choice.fitting), by_size[-1][1])
    rows = [row for of_quant in zip(*(plan.rows for plan in plans), strict=True) for row in of_quant]
    place_of = dict(zip(map(id, rows), places * len(choices), strict=True))
    names = (
        PLAN_FIGURES["quant"],
        Figure[PlanRow]("machine", "machine", lambda row: place_of[id(row)]),
        Figure[PlanRow]("options", "options", _placed),
    )
    front = [*map(PLAN_FIGURES.__getitem__, ("needed_bytes", "left_bytes", "max_n_ctx", "tok_s", "kld"))]
    front[3] = at_n_ctx(front[3], rows)
    behind = (FIRST_SPEED, PLAN_FIGURES["limit_tok_s"], INTERVALS[0], _BASIS)
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
            Facts(_facts(plans, rows)),
        ],
    )


def _facts(plans: Sequence[EnginePlan], rows: Sequence[PlanRow]) -> list[tuple[str, str]]:
    """Return the memory of the host, and the rows behind speeds."""
    known = [row.expected for row in rows if row.expected is not None]
    return [
        *dict.fromkeys(fact for plan in plans for fact in facts_of(HOST_FIGURES, plan.budget)),
        ("speeds", rows_behind_text(name for each in known for name in each.rows)),
    ]


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
