"""The Library's status line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.tui.library_choice import LibraryChoice
    from ggbench.tui.widgets.quants_pane import QuantsTable


def status_text(
    choice: LibraryChoice, table: QuantsTable, n_gen: int, *, is_machine_known: bool, is_planning: bool
) -> str:
    """Return one line: the model, the state of its plan, and how many quants are shown, hidden and marked."""
    entry, n_marked = choice.entry, choice.n_marked
    if entry is None:
        return "choose a model on the left"
    if entry.reason:
        return f"✗ {entry.title}: {entry.reason}"
    if not is_machine_known:
        return f"{entry.title} · planned once this machine is known"
    n_quants = table.n_quants
    if is_planning and not n_quants:
        return f"{entry.title} · {'reading headers from the Hub…' if entry.needs_network else 'planning…'}"
    chosen = table.chosen.plan if table.chosen else None
    parts = (
        entry.title,
        f"{format_count(table.n_shown)} quant{'' if table.n_shown == 1 else 's'}" if n_quants else "",
        *table.hidden,
        f"{format_count(n_marked)} marked" if n_marked else "",
        f"n_gen {format_count(n_gen)}" if n_quants else "",
        f"* exceeds the trained {format_count(chosen.n_ctx_train)}" if chosen and chosen.exceeds_training else "",
    )
    return " · ".join(filter(None, parts))
