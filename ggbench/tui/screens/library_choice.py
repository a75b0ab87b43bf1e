"""What is chosen in the Library: a model with the plans of its quants, a context, and marked quants of any model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.tui.library_models import ModelEntry
from ggbench.tui.library_quants import QuantRow, complete
from ggbench.tui.library_results import LatestResults
from ggbench.tui.setup_fields import describe_setup
from ggbench.units import counted, format_count

if TYPE_CHECKING:
    from ggbench.tui.planner import PlannedQuant
    from ggbench.tui.widgets.quants_pane import QuantsTable

Selection = Sequence[tuple[str, tuple[str, ...]]]
"""Models, each with its quants."""


class LibraryChoice:
    """Changed by the screen, which shows it."""

    def __init__(self) -> None:
        self.entry: ModelEntry | None = None
        self.rows: dict[str, QuantRow] = {}
        """Quants of the chosen model, by name, in the order in which they were planned."""
        self.n_ctx: int | None = None
        """The planned context where the arrow keys changed it; None is that of the options."""
        self.options = LlamaConfig()
        """How every model is loaded."""
        self._marks: dict[str, dict[str, None]] = {}
        """Names of quants by model, in the order in which they were marked."""
        self._on_disk: Collection[tuple[str, str]] = frozenset()
        self._results = LatestResults()

    @property
    def setup(self) -> LlamaConfig:
        """How the quants are planned to be loaded."""
        return replace(self.options, n_ctx=self.n_ctx or self.options.n_ctx)

    @property
    def marks(self) -> dict[str, None]:
        """The marked quants of the chosen model; whoever marks one changes it."""
        return {} if self.entry is None else self._marks.setdefault(self.entry.model, {})

    @property
    def n_marked(self) -> int:
        """Number of marked quants, of all models."""
        return sum(map(len, self._marks.values()))

    @property
    def can_pull(self) -> bool:
        """Whether any quant of the chosen model can be downloaded."""
        return any(not row.is_here and not row.is_twin for row in self.rows.values())

    def choose(self, entry: ModelEntry) -> bool:
        """Choose a model; return False if it is the one that is chosen and planned."""
        if self.entry is not None and entry.key == self.entry.key and self.rows:
            return False
        self.entry, self.rows, self.n_ctx = entry, {}, None
        return True

    def add(self, planned: PlannedQuant) -> None:
        """Add the plan of a quant, or replace it."""
        self.rows[planned.name] = self._completed(QuantRow(planned.name, planned.row))

    def set_on_disk(self, on_disk: Collection[tuple[str, str]]) -> None:
        """Take in which quants are on this disk, from `quants_on_disk`."""
        self._on_disk = on_disk
        self._complete_rows()

    def set_results(self, results: LatestResults) -> None:
        """Take in what was measured; nothing where another card is planned for."""
        self._results = results
        self._complete_rows()

    def clear_marks(self) -> None:
        """Unmark every quant of every model."""
        self._marks.clear()

    def selection(self, cursor: QuantRow | None) -> Selection:
        """Return the marked quants, else the one at the cursor."""
        marked = [(model, tuple(names)) for model, names in self._marks.items() if names]
        if marked or cursor is None or self.entry is None:
            return marked
        return [(self.entry.model, (cursor.name,))]

    def names_here(self) -> tuple[str, ...]:
        """Return the QUANT arguments of the chosen model's quants that are on this disk, the largest first."""
        here = [row for row in self.rows.values() if row.is_here and not row.is_twin]
        return tuple(row.name for row in sorted(here, key=lambda row: -(row.plan.file_bytes or 0)))

    def planned_setup(self, selection: Selection) -> LlamaConfig:
        """Return how a selection is planned to be loaded: the arrow keys' n_ctx is that of the chosen model alone."""
        planned = {self.entry.model} if self.entry is not None else set()
        return self.setup if {model for model, _ in selection} <= planned else self.options

    def status(self, table: QuantsTable, n_gen: int, *, is_machine_known: bool, is_planning: bool) -> str:
        """Return one line: the model, the state of its plan, and how many quants are shown, hidden and marked."""
        entry, n_marked = self.entry, self.n_marked
        if entry is None:
            return "choose a model on the left"
        if entry.reason:
            return f"✗ {entry.title}: {entry.reason}"
        if not is_machine_known:
            return f"{entry.title} · planned once this machine is known"
        n_quants = table.n_quants
        if is_planning and not n_quants:
            return f"{entry.title} · {'reading headers from the Hub…' if entry.needs_network else 'planning…'}"
        parts = (
            entry.title,
            counted(table.n_shown, "quant") if n_quants else "",
            *table.hidden,
            f"{format_count(n_marked)} marked" if n_marked else "",
            describe_setup(self.options),
            f"n_gen {format_count(n_gen)}" if n_quants else "",
        )
        return " · ".join(filter(None, parts))

    def _completed(self, row: QuantRow) -> QuantRow:
        return row if self.entry is None else complete(row, self.entry, self._on_disk, self._results, self.setup)

    def _complete_rows(self) -> None:
        self.rows = {name: self._completed(row) for name, row in self.rows.items()}
