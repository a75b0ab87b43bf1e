"""Draw a pick: the requirements, the recommendation with its reasons, and the candidates as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.decisions.pick.needs import needs_text, workload_text
from ggbench.decisions.pick.record import Candidate, Checked, Pick
from ggbench.decisions.pick.run_commands import RunCommands, server_lines
from ggbench.decisions.pick.sentences import headline, reason
from ggbench.decisions.pick.wording import (
    cache_text,
    candidate_name,
    loss_source,
    loss_text,
    speed_source,
    tok_s_text,
    turn_text,
)
from ggbench.engines.endings import Outcome
from ggbench.show import ESSENTIAL, FITS_NOT, UNKNOWN
from ggbench.show.changes import changes_table
from ggbench.show.glossary import UNSTEADY
from ggbench.show.names import model_names
from ggbench.show.plan import draft_text, longest_text, main_memory_text, training_legend
from ggbench.show.tables import (
    Cells,
    Facts,
    facts_table,
    fitted_table,
    left,
    names,
    notes,
    right,
    row_names,
    spaced,
)
from ggbench.show.text import SPEED_FROM, rows_behind_text
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.text import in_words, sanitize
from ggbench.units import format_bandwidth, format_bytes, format_count, format_number


def pick_report(
    pick: Pick, budget: Budget, commands: RunCommands | None, *, width: int, show_all: bool = False
) -> RenderableType:
    """Return the requirements, the recommendation with its reasons, a table no wider than `width`, and the commands.

    `show_all` shows every candidate instead of the pick, its alternatives and the nearest others.
    """
    shown = (*pick.listed, *pick.unlisted) if show_all else pick.listed
    legend = [*_unshown_models(pick, shown), *_legend([each.candidate for _, each in shown])]
    if show_all:
        legend.append("max n_ctx of dominated and of unnamed rows: to about 2 %")
    parts: list[RenderableType] = [
        facts_table(_title(pick, budget), _facts(pick, budget)),
        Group(Text(headline(pick), style="bold"), Text("\n".join(map(sanitize, reason(pick))))),
        fitted_table(
            _cells(pick, shown),
            labels=[candidate_name(checked.candidate, with_model=pick.n_models > 1) for _, checked in shown],
            dim=[checked.meets is False for _, checked in shown],
            width=width,
            caption="\n".join(filter(None, legend)),
        ),
    ]
    if pick.nearest_miss is not None and pick.changes:
        nearest = pick.nearest_miss.candidate
        name = candidate_name(nearest, with_model=pick.n_models > 1)
        title = f"what would make {name} fit at n_ctx {format_count(nearest.row.used_of(pick.needs.n_ctx))}"
        parts.append(changes_table(title, pick.changes))
    if commands is not None:
        parts.append(Text("\n".join(server_lines(commands)), no_wrap=True, overflow="ignore"))
        parts += map(Text, commands.notes)
    return spaced(parts)


def _title(pick: Pick, budget: Budget) -> str:
    subjects = [each.candidate.row.subject for each in pick.checked]
    model = model_names(subjects)[0] if pick.n_models == 1 else f"{pick.n_models} models"
    return f"{sanitize(model)} on {budget.device}"


def _facts(pick: Pick, budget: Budget) -> Facts:
    needs, bandwidth = pick.needs, budget.bandwidth
    reserve = f"{format_bytes(budget.reserve_bytes)} kept free ({budget.reserve_source}; --reserve)"
    is_split = any(each.candidate.is_split for _, each in pick.listed)
    return [
        ("workload", workload_text(needs)),
        ("needs", needs_text(needs)),
        ("memory", f"{format_bytes(budget.memory_bytes)} ({budget.memory_source}), {reserve}"),
        (
            "bandwidth",
            f"{format_bandwidth(bandwidth.bytes_per_s)} ({bandwidth.source})" if bandwidth else "not known",
        ),
        ("main memory", main_memory_text(pick.main_memory) if is_split else ""),
        ("draft", draft_text(budget, [each.candidate.row for each in pick.checked])),
        ("candidates", _candidates_text(pick)),
        *(("left out", text) for text in _left_out(pick)),
    ]


def _candidates_text(pick: Pick) -> str:
    """Return how many candidates meet the needs; none does with a context longer than the model was trained for."""
    trained = [each for each in pick.checked if not pick.needs.exceeds(each.candidate.row.n_ctx_train)]
    n_met = sum(each.meets is True for each in trained)
    n_open = sum(each.meets is None for each in trained)
    return f"{len(pick.checked)}: {n_met} meet the needs, {n_open} may, {len(pick.checked) - n_met - n_open} do not"


def _left_out(pick: Pick) -> dict[str, None]:
    """Return what could not be sized, with the reason, in order."""
    rows = [each.candidate.row for each in pick.checked]
    return dict.fromkeys(f"{row.quant}: {row.reason}" for row in rows if row.outcome is Outcome.FAILED)


def _cells(pick: Pick, shown: Sequence[tuple[str, Checked]]) -> list[Cells]:
    candidates = [checked.candidate for _, checked in shown]

    def cell(header: str, text: Callable[[Candidate], str], unit: str = "", priority: int = ESSENTIAL) -> Cells:
        return right(header, map(text, candidates), unit, priority, stays=priority == ESSENTIAL)

    cells = [
        names("", (label for label, _ in shown)),
        *row_names([each.row.subject for each in candidates])[:-1],
        names("quant", (each.quant for each in candidates)),
        left("options", (" ".join(each.options) for each in candidates), stays=True),
        left("KV", map(cache_text, candidates), stays=True),
        cell("loss", loss_text, "nats"),
        cell("answer", tok_s_text, "tok/s"),
        left("speed from", map(_speed_from, candidates), priority=4),
        cell("turn", turn_text, "s", 1),
        cell("memory", lambda each: format_bytes(each.row.needed_bytes), "", 3),
        right("left", (left_text(each.row) for each in candidates), "", 2),
        cell("max n_ctx", _longest, "tokens"),
        cell("file", lambda each: format_bytes(each.row.file_bytes), "", 5),
        cell("download", _download_text, "", 6),
        cell("BPW", lambda each: format_number(each.row.bpw), "bits", 7),
        notes(_note(checked) for _, checked in shown),
    ]
    return [each for each in cells if not each.is_empty or each.is_note]


def _speed_from(candidate: Candidate) -> str:
    return UNKNOWN if candidate.speed is None else SPEED_FROM[candidate.speed.basis]


def left_text(row: PlanRow) -> str:
    """Return e.g. `1.50 GiB`, `✗ -1.40 GiB`, `✗ -4.40 GiB of main memory`."""
    if row.left_bytes is None or row.fits is None:
        return UNKNOWN
    of = " of main memory" if row.lacks_main_memory else ""
    return format_bytes(row.left_bytes) if row.fits else f"{FITS_NOT} {format_bytes(row.left_bytes)}{of}"


def _download_text(candidate: Candidate) -> str:
    return "" if candidate.download_bytes == 0 else format_bytes(candidate.download_bytes)


def _longest(candidate: Candidate) -> str:
    if candidate.probed_by is not None:
        return f"{longest_text(candidate.row, candidate.max_n_ctx)}†"
    return longest_text(candidate.row)


def _note(checked: Checked) -> str:
    """Return the missed needs other than memory of GPUs, and the sources of the numbers."""
    candidate = checked.candidate
    if candidate.row.outcome is not Outcome.COMPLETED:
        return candidate.row.reason
    parts = [f"{FITS_NOT} {check.need}" for check in checked.missed if check.need != "memory"]
    parts += [f"{FITS_NOT} main memory" for check in checked.missed if check.of_main_memory]
    parts += [loss_source(candidate), speed_source(candidate)]
    if candidate.probed_by is not None:
        parts.append(f"max n_ctx found by run {candidate.probed_by}")
    return "; ".join(filter(None, parts))


def _unshown_models(pick: Pick, shown: Sequence[tuple[str, Checked]]) -> list[str]:
    """Return the models without a row in the table."""
    keys = {checked.candidate.model_key for _, checked in shown}
    left_out = dict.fromkeys(
        each.candidate.model_key for each in pick.checked if each.candidate.model_key not in keys
    )
    return [f"not shown: {in_words(list(map(sanitize, left_out)))} (--all)"] if left_out else []


def _legend(candidates: Sequence[Candidate]) -> list[str]:
    losses, speeds = " ".join(map(loss_text, candidates)), [each.speed for each in candidates if each.speed]
    meanings = {
        f"~: typical of the types, published for {in_words(_published_models(candidates))}": "~" in losses,
        "+ ?: plus the unknown loss of the KV cache": "?" in losses,
        "≤: upper bound from the memory bandwidth; it can only rule a candidate out": any(
            speed.is_bound for speed in speeds
        ),
        f"{UNSTEADY}: measured on a busy machine, so this may be too low": not all(
            speed.is_steady for speed in speeds
        ),
    }
    return [
        "loss: mean KL divergence of the weights plus that of the KV cache",
        *(text for text, is_shown in meanings.items() if is_shown),
        *training_legend([each.row for each in candidates], map(_longest, candidates)),
        rows_behind_text(name for speed in speeds for name in speed.rows),
    ]


def _published_models(candidates: Sequence[Candidate]) -> list[str]:
    losses = [each.weights_loss for each in candidates if each.weights_loss is not None]
    return list(dict.fromkeys(name for loss in losses for name in loss.of)) or ["other models"]
