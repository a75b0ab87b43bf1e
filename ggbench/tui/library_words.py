"""What the Library says in words: of the model that is looked at, of what is hidden, and of what a key starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.tui.run_length import n_ctx_words
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.tui.library_models import ModelEntry
    from ggbench.tui.widgets.variants_table import VariantsTable


def hidden_words(table: VariantsTable) -> list[str]:
    """How many quants are not shown, and why."""
    told = [(table.n_hidden, "that do not fit (f)"), (table.n_filtered, "by the filter")]
    return [f"{format_count(count)} hidden {why}" for count, why in told if count]


def start_notices(planned_n_ctx: int | None, n_gen: int, *, is_here: bool) -> list[str]:
    """What differs between a run that is being started and what was planned for."""
    elsewhere = "" if is_here else "this is measured on this machine, not on the card that is planned for"
    return [words for words in (elsewhere, n_ctx_words(planned_n_ctx, n_gen)) if words]


def state_words(
    entry: ModelEntry | None,
    table: VariantsTable,
    n_marked: int,
    n_gen: int,
    *,
    is_machine_known: bool,
    is_planning: bool,
) -> str:
    """The model with how far its plan is, what is shown of it and what is marked, in one line."""
    if entry is None:
        return "choose a model on the left"
    if entry.reason:
        return f"✗ {entry.title}: {entry.reason}"
    if not is_machine_known:
        return f"{entry.title} · planned once this machine is known"
    n_quants = table.n_shown + table.n_hidden + table.n_filtered
    if is_planning and not n_quants:
        return f"{entry.title} · {'reading its headers from the Hub…' if entry.needs_network else 'planning…'}"
    chosen = table.chosen.plan if table.chosen else None
    parts = (
        entry.title,
        f"{format_count(table.n_shown)} quant{'' if table.n_shown == 1 else 's'}" if n_quants else "",
        *hidden_words(table),
        f"{format_count(n_marked)} marked" if n_marked else "",
        f"n {format_count(n_gen)} tokens" if n_quants else "",
        f"* beyond training, {format_count(chosen.n_ctx_train)}" if chosen and chosen.exceeds_training else "",
    )
    return " · ".join(filter(None, parts))
