"""Plans of a model for several machines, side by side, and which of them to choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

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
from ggbench.show.changes import change_options
from ggbench.show.document import Document, Shape, field, many
from ggbench.show.names import models_title, short_device
from ggbench.show.plan import MEMORY, PLAN_ROW, WHOLE_TRAINING, fit_text, longest_text, training_legend
from ggbench.show.plan_facts import main_memory_text
from ggbench.show.tables import fitted_table, left, names, notes, right
from ggbench.show.text import planned_speed_text, rows_behind_text
from ggbench.sizing.plan_record import Budget, EnginePlan, PlannedForecast, PlanRow
from ggbench.stats.intervals import ratio_interval
from ggbench.text import in_words, sanitize
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
    is_clear: bool | None = None
    """Whether the intervals of both do not overlap, which asks for more than is needed in the same way."""
    longest: str | None = None
    """The one with the longest context; None if several have it, or if their placements differ."""
    verdict: str = ""
    """All of this, and what the others lack, in one line."""


def choose_machine(places: Sequence[str], rows: Sequence[PlanRow]) -> MachineChoice:
    """Return the choice among the rows of one quant, one for each machine; `places` are from `machine_names`."""
    row_of = dict(zip(places, rows, strict=True))
    assert len(row_of) == len(rows), "machines of one name"
    fitting = {name: row for name, row in row_of.items() if row.fits}
    choice = MachineChoice(rows[0].quant, tuple(fitting))
    if fitting:
        contexts = {name: row.used_of(row.planned_n_ctx or 0) for name, row in fitting.items()}
        with_longest = [name for name, n_ctx in contexts.items() if n_ctx == max(contexts.values())]
        speeds = sorted(
            ((row.expected, name) for name, row in fitting.items() if row.expected is not None),
            key=lambda each: -each[0].tok_s,
        )
        is_alike = len(set(map(_placed, fitting.values()))) == 1
        choice = replace(choice, longest=with_longest[0] if is_alike and len(with_longest) == 1 else None)
        if len(speeds) == len(fitting):
            choice = replace(choice, fastest=speeds[0][1])
            if len(speeds) > 1:
                (first, _), (next_best, second) = speeds[:2]
                ends = ratio_interval(first.tok_s, first.tok_s_ci95, next_best.tok_s, next_best.tok_s_ci95)
                choice = replace(
                    choice,
                    second=second,
                    lead=first.tok_s / next_best.tok_s,
                    lead_ci95=ends if math.isfinite(ends[1]) else None,
                    is_clear=first.tok_s_ci95[0] > next_best.tok_s_ci95[1],
                )
    return replace(choice, verdict=_verdict(choice, row_of))


def _verdict(choice: MachineChoice, row_of: Mapping[str, PlanRow]) -> str:
    """Return `q4_k_m: RTX 4060 Ti 16.0 GiB holds 16k, 31 tok/s; RTX 3060 12.0 GiB lacks 339.0 MiB`."""
    lacking = [_lack(name, row) for name, row in row_of.items() if not row.fits]
    best = choice.fastest or choice.longest or next(iter(choice.fitting or row_of))
    row = row_of[best]
    n_ctx = format_length(row.n_ctx) if row.n_ctx is not None else UNKNOWN
    if not choice.fitting:
        there = "" if row.n_ctx is None else f" at {n_ctx}"
        return f"{choice.quant} fits on none of them{there}: {'; '.join(lacking)}"
    parts = [f"{choice.quant}: {best} holds {n_ctx}"]
    if placed := _placed(row):
        parts[0] += f" with {placed}"
    if row.expected is not None:
        parts[0] += f", {planned_speed_text(row.expected)} tok/s"
    if choice.lead is not None:
        ends = choice.lead_ci95 or (choice.lead, choice.lead)
        overlap = "" if choice.is_clear else ", though the intervals overlap"
        lead = f"the fastest, {format_ratio(choice.lead, *ends)} times as fast as {choice.second}{overlap}"
        parts.append(lead if choice.lead > FASTER else f"about as fast as {choice.second}")
    elif choice.fastest is None and len(choice.fitting) > 1:
        parts.append("not every speed is known")
    if choice.longest is not None and len(choice.fitting) > 1:
        tokens = longest_text(row_of[choice.longest]).removesuffix(WHOLE_TRAINING)
        who = "it also" if choice.longest == best else choice.longest
        parts.append(f"{who} holds the longest context, {tokens} tokens")
    return "; ".join([*parts, *lacking])


def _placed(row: PlanRow) -> str:
    """Return the options that keep a part in main memory, `-ncmoe 24`; empty if everything is on the GPUs."""
    return " ".join(placement_options(row.setup)) if row.setup is not None and row.is_split else ""


def _lack(name: str, row: PlanRow) -> str:
    if row.left_bytes is not None and row.left_bytes < 0:
        fits = f" ({remedy})" if (remedy := _remedy(row)) else ""
        return f"{name} lacks {format_bytes(-row.left_bytes)}{' of main memory' * row.lacks_main_memory}{fits}"
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
                field("main_memory", str | None, "For the part that lies there; null without one.", _main_memory),
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


def machines_report(plans: Sequence[EnginePlan], choices: Sequence[MachineChoice], *, width: int) -> RenderableType:
    """Return the verdict of each quant, and a line for each quant and machine."""
    places = machine_names([plan.budget for plan in plans])
    lines = [(place, row) for quant in zip(*(plan.rows for plan in plans), strict=True)
             for place, row in zip(places, quant, strict=True)]  # fmt: skip
    rows = [row for _, row in lines]
    placed = [_placed(row) for row in rows]
    n_ctx = {row.n_ctx_slot for row in rows if row.n_ctx_slot is not None}
    there = f"at {format_length(*n_ctx)}" if len(n_ctx) == 1 else "at n_ctx"
    cells = [
        *([names("quant", (row.quant for row in rows))] if len(choices) > 1 else []),
        names("machine", (place for place, _ in lines)),
        *([left("options", placed, stays=True)] if len(set(placed)) > 1 else []),
        right("memory", (format_bytes(row.needed_bytes) for row in rows), there, 3, stays=True),
        left("fits", map(fit_text, rows), there, stays=True),
        right("max n_ctx", map(longest_text, rows), "tokens", stays=True),
        right("tok/s", (_speed_text(row.expected_first, row) for row in rows), "at 1", 1, stays=True),
        right("tok/s", (_speed_text(row.expected, row) for row in rows), there, stays=True),
        left("basis", (row.expected.speed_basis if row.expected else UNKNOWN for row in rows), "", 2),
        notes(map(_note, rows)),
    ]
    table = fitted_table(
        cells,
        labels=[place if len(choices) == 1 else f"{row.quant} on {place}" for place, row in lines],
        dim=[row.fits is not True for row in rows],
        title=f"{models_title([row.subject for row in rows])}, by machine",
        width=width,
    )
    sources = dict.fromkeys(row.expected.basis for row in rows if row.expected is not None)
    below = [Text(f"expected: {'; '.join(sources)}", style="dim")] if sources else []
    behind = rows_behind_text(name for row in rows if row.expected is not None for name in row.expected.rows)
    below += [Text(behind, style="dim")] if behind else []
    sizes = [format_bytes(plan.budget.reserve_bytes) for plan in plans]
    reserves = [f"{size} on {place}" for size, place in zip(sizes, places, strict=True)]
    reserve = in_words(reserves) if len(set(sizes)) > 1 else f"{sizes[0]} on each"
    below.append(Text(f"left: beside a reserve of {reserve} (--reserve)", style="dim"))
    if any(placed):
        below.append(Text(_split_legend(plans, set(placed)), style="dim"))
    below += [Text(text, style="dim") for text in training_legend(rows, list(map(longest_text, rows)))]
    verdicts = Text("\n".join(sanitize(choice.verdict) for choice in choices), style="bold")
    return Group(Padding(verdicts, (0, 0, 1, 0)), table, *below)


def _split_legend(plans: Sequence[EnginePlan], placed: Set[str]) -> str:
    """Return what the options mean, and the main memory that the speeds are for."""
    texts = [text for text in dict.fromkeys(map(_main_memory, plans)) if text is not None]
    memory = f"; main memory: {in_words(texts)}" if texts else ""
    if len(placed) == 1:
        return f"{next(iter(placed))} on each{memory}"
    return f"options: the least that has to stay in main memory for it to fit{memory}"


def _speed_text(expected: PlannedForecast | None, row: PlanRow) -> str:
    return planned_speed_text(expected) + (f" {FITS_NOT}" if expected is not None and row.fits is False else "")


def _note(row: PlanRow) -> str:
    """Return why a quant has no plan, or the cheapest change with which it fits."""
    return _remedy(row) if row.outcome is Outcome.COMPLETED else sanitize(row.reason)


def _remedy(row: PlanRow) -> str:
    """Return `fits with -ctk q8_0 -ctv q8_0`, the cheapest change with which it does; empty if none is enough."""
    change = next((each for each in row.changes if each.fits and change_options(each)), None)
    return f"fits with {change_options(change)}" if change is not None else ""
