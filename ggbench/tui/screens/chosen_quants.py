"""What is chosen in the Library, and the keys that run or download it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.tui.host import host_of
from ggbench.tui.run_requests import RunRequest, decode_request, search_request
from ggbench.tui.screens.card_picker import CardChoice
from ggbench.tui.screens.library_choice import LibraryChoice
from ggbench.tui.screens.models_screen import ModelsScreen

if TYPE_CHECKING:
    from ggbench.records.plan import Budget
    from ggbench.tui.library_quants import QuantRow


class ChosenQuantsScreen(ModelsScreen):
    """Each key takes the marked quants of all models, or without marks the one at the cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.choice = LibraryChoice()
        self.card = CardChoice()

    @property
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor."""
        raise NotImplementedError

    @property
    def machine_budget(self) -> Budget | None:
        """The memory of this machine; None before it was read."""
        raise NotImplementedError

    def show_rows(self) -> None:
        """Draw the quants as they are now."""
        raise NotImplementedError

    def _start(self, request: RunRequest | None) -> None:
        """Run the marked quants or the chosen one; without a request, download them."""
        if selection := self.choice.selection(self.chosen):
            self.find_targets(request, selection, self.catalog, is_here=self.card.is_here)

    def show_started(self) -> None:
        """Unmark what was started."""
        self.choice.clear_marks()
        self.show_rows()

    def action_decode(self) -> None:
        """Measure the marked quants, or the chosen one."""
        setup = self.choice.planned_setup(self.choice.selection(self.chosen))
        self._start(decode_request(setup, host_of(self).n_gen))

    def action_search(self) -> None:
        """Search the largest context of the marked quants, or of the chosen one."""
        selection, budget = self.choice.selection(self.chosen), self.machine_budget
        if selection and budget is not None:
            self.ask_to_search(selection, budget, lambda setup: self._start(search_request(setup)))

    def action_quality(self) -> None:
        """Ask what to score with the marked quants, or the chosen one, and start."""
        entry, selection = self.choice.entry, self.choice.selection(self.chosen)
        if entry is not None and selection:
            self.ask_for_quality(selection, {entry.model: self.choice.names_here()}, self._start)

    def action_speed(self) -> None:
        """Ask which cases to measure of the marked quants, or of the chosen one, and start."""
        if selection := self.choice.selection(self.chosen):
            self.ask_for_speed(selection, self._start)

    def action_pull(self) -> None:
        """Download the marked quants, or the chosen one."""
        self._start(None)
