"""Draw a pick: the requirements, the recommendation with its reasons, and the candidates as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ggbench.decisions.pick.drafts import draft_remark, possible_draft
from ggbench.decisions.pick.needs import needs_text, workload_text
from ggbench.decisions.pick.record import Candidate, Checked, Pick
from ggbench.decisions.pick.run_commands import RunCommands, commands_lines
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
from ggbench.show.changes import changes_report
from ggbench.show.glossary import UNSTEADY
from ggbench.show.names import model_names
from ggbench.show.plan import longest_text, training_legend
from ggbench.show.plan_facts import draft_text, main_memory_text
from ggbench.show.tables import Cells, Facts, facts_table, fitted_table, left, names, notes, right
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
    parts: list[RenderableType] = [
        Padding(facts_table(_title(pick, budget), _facts(pick, budget)), (0, 0, 1, 0)),
        Text(headline(pick), style="bold"),
        Padding(Text("\n".join(map(sanitize, reason(pick)))), (0, 0, 1, 0)),
        fitted_table(
            _cells(pick, shown),
            labels=[candidate_name(checked.candidate, with_model=pick.n_models > 1) for _, checked in shown],
            dim=[checked.meets is False for _, checked in shown],
            width=width,
        ),
        Text("\n".join([*_unshown_models(pick, shown), _legend(shown, pick.needs.n_slots)]), style="dim"),
    ]
    if pick.nearest_miss is not None and pick.changes:
        nearest = pick.nearest_miss.candidate
        name = candidate_name(nearest, with_model=pick.n_models > 1)
        title = f"what would make {name} fit at n_ctx {format_count(nearest.row.used_of(pick.needs.n_ctx))}"
        parts.append(Padding(changes_report(title, pick.changes, width=width), (1, 0, 0, 0)))
    if commands is not None:
        parts.append(Text("\n".join(["", *commands_lines(commands)]), no_wrap=True, overflow="ignore"))
        parts += map(Text, ["", *commands.notes] if commands.notes else [])
    return Group(*parts)


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
        ("bandwidth", f"{format_bandwidth(bandwidth.bytes_per_s)} ({bandwidth.source})" if bandwidth else "not known"),
        ("main memory", main_memory_text(pick.main_memory) if is_split else ""),
        ("draft", draft_text(budget, [each.candidate.row for each in pick.checked])),
        ("prompts", _batch_remark(pick)),
        ("could draft", draft_remark(possible_draft(pick, budget), is_here=budget.is_here)),
        ("candidates", _counts_text(pick)),
        *(("left out", text) for text in _left_out(pick)),
    ]


def _counts_text(pick: Pick) -> str:
    trained = [each for each in pick.checked if not pick.needs.exceeds(each.candidate.row.n_ctx_train)]
    n_met, n_open = sum(each.meets is True for each in trained), sum(each.meets is None for each in trained)
    return f"{len(pick.checked)}: {n_met} meet the needs" + (f", {n_open} may" if n_open else "")


def _left_out(pick: Pick) -> dict[str, None]:
    """Return what could not be sized, with the reason, in order."""
    rows = [each.candidate.row for each in pick.checked]
    return dict.fromkeys(f"{row.quant}: {row.reason}" for row in rows if row.outcome is Outcome.FAILED)


def _batch_remark(pick: Pick) -> str:
    """Return the option of a larger physical batch, its gain and its price; empty for none."""
    found = pick.larger_batch
    if found is None or pick.recommended is None:
        return ""
    own = pick.recommended.candidate
    options, answers = f"-b {found.n_batch} -ub {found.n_ubatch}", ""
    if found.n_cpu_moe > own.setup.n_cpu_moe:
        options += f" -ncmoe {found.n_cpu_moe}"
        answers = f"; answers at {format_number(found.tok_s)} tok/s"
    left = format_bytes((own.row.left_bytes or 0) - found.more_bytes)
    return (
        f"{options} reads {format_count(found.n_prompt)} tokens in about {format_number(found.prompt_s)} s rather than"
        f" {format_number(found.usual_s)}, as each batch copies experts from main memory{answers}; {left} stay free"
    )


def _cells(pick: Pick, shown: Sequence[tuple[str, Checked]]) -> list[Cells]:
    candidates = [checked.candidate for _, checked in shown]

    def cell(header: str, text: Callable[[Candidate], str], unit: str = "", priority: int = ESSENTIAL) -> Cells:
        return right(header, map(text, candidates), unit, priority, stays=priority == ESSENTIAL)

    rows = [each.row for each in candidates]
    misses_some = not all(row.fits for row in rows)
    cells = [
        names("", (label for label, _ in shown)),
        names("model", model_names([row.subject for row in rows]) if pick.n_models > 1 else [""] * len(rows)),
        names("quant", (each.quant for each in candidates)),
        left("options", map(_options_text, candidates), stays=True),
        left("KV", map(cache_text, candidates), stays=True),
        cell("loss", loss_text, "nats"),
        cell("answer", tok_s_text, "tok/s"),
        left("speed from", map(_speed_from, candidates), priority=4),
        cell("turn", turn_text, "s", 1),
        cell("memory", lambda each: format_bytes(each.row.needed_bytes), "", 3),
        right("left", map(left_text, rows), "", 2, stays=misses_some),
        cell("max n_ctx", _longest, "tokens"),
        cell("file", lambda each: format_bytes(each.row.file_bytes), "", 5),
        cell("download", _download_text, "", 6),
        cell("BPW", lambda each: format_number(each.row.bpw), "bits", 7),
        notes(_note(checked) for _, checked in shown),
    ]
    return [each for each in cells if not each.is_empty or each.is_note]


def _options_text(candidate: Candidate) -> str:
    return " ".join(candidate.options)


def _speed_from(candidate: Candidate) -> str:
    return SPEED_FROM[candidate.speed.basis] if candidate.speed else UNKNOWN


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
    parts += filter(None, (loss_source(candidate), speed_source(candidate)))
    if candidate.is_split and candidate.speed is not None and candidate.speed.turn_s is None:
        parts.append("turn unknown: nobody timed prompts with this part in main memory")
    if candidate.probed_by is not None:
        parts.append(f"max n_ctx found by run {candidate.probed_by}")
    return "; ".join(parts)


def _unshown_models(pick: Pick, shown: Sequence[tuple[str, Checked]]) -> Iterator[str]:
    """Yield the models without a row in the table, and why."""
    keys = {checked.candidate.model_key for _, checked in shown}
    of_key: dict[str, list[Checked]] = {}
    for checked in pick.checked:
        if checked.candidate.model_key not in keys:
            of_key.setdefault(checked.candidate.model_key, []).append(checked)
    missing = [key for key, each in of_key.items() if all(checked.meets is False for checked in each)]
    lower = [key for key in of_key if key not in missing]
    for found, why in ((missing, "no quant meets the needs"), (lower, "ranks lower")):
        if found:
            yield f"not shown: {in_words(list(map(sanitize, found)))}: {why} (--all)"


def _legend(shown: Sequence[tuple[str, Checked]], n_slots: int) -> str:
    candidates = [checked.candidate for _, checked in shown]
    lines = [*_loss_legend(candidates), *_speed_legend(candidates, n_slots)]
    if any(label in ("", "dominated") for label, _ in shown):
        lines.append("max n_ctx of dominated and of unnamed rows: to about 2 %")
    lines += training_legend([each.row for each in candidates], list(map(_longest, candidates)))
    if any(each.probed_by is not None for each in candidates):
        lines.append("†: found by real allocations")
    if behind := rows_behind_text(name for each in candidates if each.speed is not None for name in each.speed.rows):
        lines.append(behind)
    return "\n".join([*lines, "rules: ggbench pick --help"])


def _loss_legend(candidates: Sequence[Candidate]) -> Iterator[str]:
    yield "loss: mean KL divergence of the weights plus that of the KV cache"
    losses = " ".join(map(loss_text, candidates))
    models = dict.fromkeys(name for each in candidates if each.weights_loss for name in each.weights_loss.of)
    if "~" in losses and models:
        yield f"~: typical of the types, published for {in_words(list(models))}"
    if any(each.cache_loss and each.cache_loss.basis == "published typical" for each in candidates):
        yield "what a quantized KV cache loses depends on the model"
    if "?" in losses:
        yield "+ ?: plus the unknown loss of the KV cache"


def _speed_legend(candidates: Sequence[Candidate], n_slots: int) -> Iterator[str]:
    if n_slots > 1:
        yield f"answer, turn: of each of {n_slots} users who ask at once; context and memory: of all"
    bounds = [each.speed for each in candidates if each.speed is not None and each.speed.is_bound]
    if bounds:
        yield "≤: upper bound from the memory bandwidth; it can only rule a candidate out"
    if not all(each.is_steady for each in bounds):
        yield f"{UNSTEADY} ≤: the bandwidth was measured on a busy machine, so this may be too low"
