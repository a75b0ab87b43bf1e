"""Plans of a model for several machines, side by side, and which of them to choose."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ggbench.decisions.pick.order import FASTER
from ggbench.decisions.pick.record import placement_options
from ggbench.engines.endings import Outcome
from ggbench.machine.description import GIVEN_GPU
from ggbench.show import FITS_NOT, UNKNOWN
from ggbench.show.changes import remedy_text
from ggbench.show.document import Document, Shape, field, many
from ggbench.show.names import models_title, short_device
from ggbench.show.plan import MEMORY, PLAN_ROW, WHOLE_TRAINING, fit_text, longest_text, training_legend
from ggbench.show.plan_facts import main_memory_text
from ggbench.show.tables import Cells, fitted_table, left, names, notes, right
from ggbench.show.text import SPEED_FROM, planned_speed_text, rows_behind_text
from ggbench.sizing.plan_record import Budget, EnginePlan, PlannedForecast, PlanRow
from ggbench.stats.intervals import ratio_interval
from ggbench.text import sanitize
from ggbench.units import format_bandwidth, format_bytes, format_length, format_ratio


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
    """All of this, and what the others lack, in one line."""


def choose_machine(places: Sequence[str], rows: Sequence[PlanRow]) -> MachineChoice:
    """Return the choice among the rows of one quant, one for each machine; `places` are from `machine_names`."""
    row_of = dict(zip(places, rows, strict=True))
    assert len(row_of) == len(rows), "machines of one name"
    fitting = {name: row for name, row in row_of.items() if row.fits}
    choice = MachineChoice(rows[0].quant, tuple(fitting), longest=_longest(fitting))
    speeds = {name: row.expected for name, row in fitting.items() if row.expected is not None}
    if speeds and len(speeds) == len(fitting):
        fastest, *others = sorted(speeds, key=lambda name: -speeds[name].tok_s)
        choice = replace(choice, fastest=fastest)
        if others:
            first, second = speeds[fastest], speeds[others[0]]
            ends = ratio_interval(first.tok_s, first.tok_s_ci95, second.tok_s, second.tok_s_ci95)
            lead_ci95 = ends if math.isfinite(ends[1]) else None
            choice = replace(choice, second=others[0], lead=first.tok_s / second.tok_s, lead_ci95=lead_ci95)
    return replace(choice, verdict=_verdict(choice, row_of))


def _longest(fitting: Mapping[str, PlanRow]) -> str | None:
    """Return the only machine with the longest context; None if their placements differ."""
    contexts = {name: row.used_of(row.planned_n_ctx or 0) for name, row in fitting.items()}
    found = [name for name, n_ctx in contexts.items() if n_ctx == max(contexts.values())]
    are_alike = len(set(map(_placed, fitting.values()))) == 1
    return found[0] if are_alike and len(found) == 1 else None


def _verdict(choice: MachineChoice, row_of: Mapping[str, PlanRow]) -> str:
    """Return `q4_k_m: RTX 4060 Ti 16.0 GiB holds 16k, 31 tok/s; RTX 3060 12.0 GiB lacks 339.0 MiB`."""
    lacking = [_lack(name, row) for name, row in row_of.items() if not row.fits]
    best = choice.fastest or choice.longest or next(iter(choice.fitting or row_of))
    n_ctx = format_length(row_of[best].n_ctx)
    if not choice.fitting:
        return f"{choice.quant} fits on none of them at {n_ctx}: {'; '.join(lacking)}"
    held = " with ".join(filter(None, (f"{best} holds {n_ctx}", _placed(row_of[best]))))
    if row_of[best].expected is not None:
        held += f", {planned_speed_text(row_of[best].expected)} tok/s"
    parts = [f"{choice.quant}: {held}", _lead_text(choice)]
    if choice.longest is not None and len(choice.fitting) > 1:
        tokens = longest_text(row_of[choice.longest]).removesuffix(WHOLE_TRAINING)
        who = "it also" if choice.longest == best else choice.longest
        parts.append(f"{who} holds the longest context, {tokens} tokens")
    return "; ".join(filter(None, [*parts, *lacking]))


def _lead_text(choice: MachineChoice) -> str:
    """Return by how much the fastest leads; empty if there is only one."""
    if choice.lead is None:
        return "not every speed is known" if choice.fastest is None and len(choice.fitting) > 1 else ""
    if choice.lead <= FASTER:
        return f"about as fast as {choice.second}"
    ends = choice.lead_ci95 or (choice.lead, choice.lead)
    return f"the fastest, {format_ratio(choice.lead, *ends)} times as fast as {choice.second}"


def _placed(row: PlanRow) -> str:
    """Return the options that keep a part in main memory, `-ncmoe 24`; empty if everything is on the GPUs."""
    return " ".join(placement_options(row.setup)) if row.setup is not None and row.is_split else ""


def _lack(name: str, row: PlanRow) -> str:
    if row.left_bytes is not None and row.left_bytes < 0:
        remedy = remedy_text(row)
        fits = f" ({remedy})" if remedy else ""
        where = " of main memory" if row.lacks_main_memory else ""
        return f"{name} lacks {format_bytes(-row.left_bytes)}{where}{fits}"
    return f"{name} is unknown" if row.fits is None else f"{name} is too small"


def _main_memory(plan: EnginePlan) -> str | None:
    """Return the main memory that its speeds are for; None if nothing that could be on a GPU is in it."""
    return main_memory_text(plan.budget.host) or None if any(map(_placed, plan.rows)) else None


PLAN_MACHINES = Document(
    "plan.machines",
    "plan MODEL [QUANT...] --or GPU",
    "The needs of each quant on several machines, and which of them to choose.",
    field("model", str),
    field(
        "machines",
        many(
            Shape(
                "PlannedMachine",
                "The plan for one machine.",
                field("machine", MEMORY, get=lambda plan: plan.budget),
                field(
                    "main_memory", str | None, "For the part that lies there; null without one.", _main_memory
                ),
                field("rows", many(PLAN_ROW)),
            )
        ),
    ),
    field("choices", list[MachineChoice], "By quant."),
)


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


def machines_report(
    plans: Sequence[EnginePlan], choices: Sequence[MachineChoice], *, width: int
) -> RenderableType:
    """Return the verdict of each quant, and a line for each quant and machine."""
    places = machine_names([plan.budget for plan in plans])
    rows = [row for quant in zip(*(plan.rows for plan in plans), strict=True) for row in quant]
    where = places * len(choices)
    table = fitted_table(
        _cells(rows, where),
        labels=[f"{row.quant} on {place}" for row, place in zip(rows, where, strict=True)],
        dim=[row.fits is not True for row in rows],
        title=f"{models_title([row.subject for row in rows])}, by machine",
        width=width,
    )
    verdicts = Text("\n".join(sanitize(choice.verdict) for choice in choices), style="bold")
    return Group(
        Padding(verdicts, (0, 0, 1, 0)), table, *(Text(text, style="dim") for text in _legend(plans, rows))
    )


def _legend(plans: Sequence[EnginePlan], rows: Sequence[PlanRow]) -> Iterator[str]:
    known = [row.expected for row in rows if row.expected is not None]
    if known:
        yield f"expected: {'; '.join(dict.fromkeys(each.basis for each in known))}"
    if behind := rows_behind_text(name for each in known for name in each.rows):
        yield behind
    if any(map(_placed, rows)):
        texts = [text for text in dict.fromkeys(map(_main_memory, plans)) if text is not None]
        yield "; ".join(["options: what stays in main memory", *(f"main memory: {text}" for text in texts)])
    yield from training_legend(rows, list(map(longest_text, rows)))


def _cells(rows: Sequence[PlanRow], where: Sequence[str]) -> list[Cells]:
    n_ctx = {row.n_ctx_slot for row in rows}
    there = f"at {format_length(*n_ctx)}" if len(n_ctx) == 1 else "at n_ctx"
    cells = [
        names("quant", (row.quant for row in rows)),
        names("machine", where),
        left("options", map(_placed, rows), stays=True),
        right("memory", (format_bytes(row.needed_bytes) for row in rows), there, 3, stays=True),
        left("fits", map(fit_text, rows), there, stays=True),
        right("max n_ctx", map(longest_text, rows), "tokens", stays=True),
        right("tok/s", (_speed_text(row.expected_first, row) for row in rows), "at 1", 1, stays=True),
        right("tok/s", (_speed_text(row.expected, row) for row in rows), there, stays=True),
        left(
            "speed from",
            (SPEED_FROM[row.expected.speed_basis] if row.expected else UNKNOWN for row in rows),
            "",
            2,
        ),
        notes(map(_note, rows)),
    ]
    return [each for each in cells if not each.is_empty or each.is_note]


def _speed_text(expected: PlannedForecast | None, row: PlanRow) -> str:
    return planned_speed_text(expected) + (f" {FITS_NOT}" if expected is not None and row.fits is False else "")


def _note(row: PlanRow) -> str:
    """Return why a quant has no plan, or the cheapest change with which it fits."""
    return remedy_text(row) if row.outcome is Outcome.COMPLETED else sanitize(row.reason)
