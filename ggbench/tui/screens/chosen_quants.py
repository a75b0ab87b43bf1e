"""What is chosen in the Library, and the keys that run or download it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.tui.host import host_of
from ggbench.tui.run_requests import RunRequest, decode_request, search_request
from ggbench.tui.screens.card_picker import CardChoice
from ggbench.tui.screens.library_choice import LibraryChoice
from ggbench.tui.screens.models_screen import ModelsScreen

if TYPE_CHECKING:
    from ggbench.decisions.pick.needs import Needs
    from ggbench.decisions.pick.record import Candidate, Pick
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.library_quants import QuantRow
    from ggbench.tui.planner import Planner
    from ggbench.tui.screens.pick import PickTask


class ChosenQuantsScreen(ModelsScreen):
    """Each key takes the marked quants of all models, or without marks the one at the cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.choice = LibraryChoice()
        self.card = CardChoice()
        self._needs: Needs | None = None
        """What was last asked of a pick."""

    @property
    @abstractmethod
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor."""

    @property
    @abstractmethod
    def machine_budget(self) -> Budget | None:
        """The memory of this machine; None before it was read."""

    @property
    @abstractmethod
    def planned_budget(self) -> Budget | None:
        """The memory that is planned for: this machine's, or that of the chosen card; None before it was read."""

    @property
    @abstractmethod
    def planner(self) -> Planner | None:
        """What sizes quants; None before this machine was read."""

    @abstractmethod
    def show_rows(self) -> None:
        """Draw the quants as they are now."""

    def _start(self, request: RunRequest | None) -> None:
        """Run the marked quants or the chosen one; without a request, download them."""
        if selection := self.choice.selection(self.chosen):
            self.find_targets(request, selection, self.catalog, is_here=self.card.is_here)

    def show_started(self) -> None:
        self.choice.clear_marks()
        self.show_rows()

    def action_pick(self) -> None:
        from ggbench.decisions.pick.needs import Needs
        from ggbench.tui.screens.pick import PickScreen
        from ggbench.tui.screens.pick_dialog import PickDialog

        task = self._pick_task()
        if task is None:
            return

        def keep(needs: Needs) -> None:
            self._needs = needs

        def take(needs: Needs | None) -> None:
            if needs is not None:
                keep(needs)
                self.app.push_screen(PickScreen(task, needs, keep))

        self.app.push_screen(PickDialog([task.title], self._needs or Needs()), take)

    def _pick_task(self) -> PickTask | None:
        """What to pick from; None where no model is chosen, or this machine is not known."""
        from ggbench.tui.screens.pick import PickTask

        entry, budget, planner = self.choice.entry, self.planned_budget, self.planner
        if entry is None or not entry.model or budget is None or planner is None:
            return None
        setup, services = self.choice.options, host_of(self).services

        def choose(needs: Needs) -> Pick:
            from ggbench.decisions.pick.candidates import CACHE_TYPES, PickRequest, caches_of

            caches = caches_of([(name, name) for name in CACHE_TYPES], setup)
            with services.open_store() as store:
                return planner.pick(entry.model, entry.quants, PickRequest(needs, budget, setup, caches), store)

        def measure(candidate: Candidate) -> None:
            planned = replace(setup, type_k=candidate.row.type_k, type_v=candidate.row.type_v, n_ctx=candidate.n_ctx)
            selection = [(entry.model, (candidate.selector or candidate.row.quant,))]
            request = decode_request(planned, host_of(self).n_gen)
            self.find_targets(request, selection, self.catalog, is_here=self.card.is_here)

        def pull(candidate: Candidate) -> None:
            if (file := candidate.to_run) is not None:  # of a twin the published file
                self.find_targets(None, [(file.model, (file.quant,))], self.catalog, is_here=self.card.is_here)

        return PickTask(entry.title, budget, setup, choose, measure, pull)

    def action_decode(self) -> None:
        setup = self.choice.planned_setup(self.choice.selection(self.chosen))
        self._start(decode_request(setup, host_of(self).n_gen))

    def action_search(self) -> None:
        selection, budget = self.choice.selection(self.chosen), self.machine_budget
        if selection and budget is not None:
            self.ask_to_search(selection, budget, lambda setup: self._start(search_request(setup)))

    def action_quality(self) -> None:
        entry, selection = self.choice.entry, self.choice.selection(self.chosen)
        if entry is not None and selection:
            self.ask_for_quality(selection, {entry.model: self.choice.names_here()}, self._start)

    def action_speed(self) -> None:
        if selection := self.choice.selection(self.chosen):
            self.ask_for_speed(selection, self._start)

    def action_tune(self) -> None:
        if selection := self.choice.selection(self.chosen):
            self.ask_to_tune(selection, self._start)

    def action_apply_tuned(self) -> None:
        if selection := self.choice.selection(self.chosen):
            self.apply_tuned(selection, self.catalog)

    def action_pull(self) -> None:
        self._start(None)
