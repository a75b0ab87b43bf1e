"""The plan behind the Library: the quants of the chosen model on this machine or another card, for the needs.

Planning is slow, so it runs in threads, and only the chosen model is planned. The latest request wins: results of
earlier ones are dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from textual import on

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.errors import GgbenchError
from ggbench.tui.host import RunStored, TaskScreen, host_of
from ggbench.tui.library import Library
from ggbench.tui.quant_rows import QuantRow
from ggbench.tui.screens.dialogs import CardChoice, CardPicker
from ggbench.tui.screens.forms import PICK, SettingsDialog, options_form
from ggbench.tui.widgets.bars import machine_text

if TYPE_CHECKING:
    from ggbench.models.catalog import Catalog
    from ggbench.runs.store.database import Store
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import LibraryPlanner

_LARGEST_N_CTX = 1 << 20


class MachineToPlan(msgspec.Struct, frozen=True):
    planner: LibraryPlanner
    budget: Budget


class PlanScreen(TaskScreen):
    """Plans the chosen model again when the needs, the card, the options or the stored runs change."""

    def __init__(self) -> None:
        super().__init__()
        self.library = Library()
        self.card = CardChoice()
        self.catalog: Catalog | None = None
        self.machine: MachineToPlan | None = None
        """None until it is read."""
        self.is_planning = False
        self._best_for: tuple[Needs, Budget] | None = None
        """What the best models were last found for."""
        self._is_draw_due = False
        self._is_stale = False
        """Whether a run was stored or a file downloaded since the plan, while another mode was shown."""

    @property
    @abstractmethod
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor; None if the table is empty."""

    @abstractmethod
    def show_rows(self) -> None:
        """Draw the quants, and the state of the plan."""

    @abstractmethod
    def show_best(self, pick: Pick) -> None:
        """Show the pick among the current models."""

    @property
    def budget(self) -> Budget | None:
        """The memory to plan for: the chosen card's, or this machine's; None until read."""
        if not self.card.is_here:
            return self.card.budget(host_of(self).setup.memory_limit_bytes)
        return None if self.machine is None else self.machine.budget

    def on_mount(self) -> None:
        self.app.mode_change_signal.subscribe(self, lambda _mode: self._plan_if_stale())

    def on_unmount(self) -> None:
        if self.machine is not None:
            self.machine.planner.close()

    def read_machine(self) -> None:
        """Read memory and devices, then plan; the first call makes the planner."""
        services, setup = host_of(self).services, host_of(self).setup
        planner = None if self.machine is None else self.machine.planner

        def read() -> Iterator[MachineToPlan]:
            made = planner
            for budget in services.machine_budgets(setup):
                made = made or services.make_planner(services)
                yield MachineToPlan(made, budget)

        def take(machine: MachineToPlan) -> None:
            self.machine = machine
            self.replan()

        self.perform("machine", read, take)

    @on(RunStored)
    def _take_results(self, message: RunStored) -> None:
        """Plan again with what was measured, once the Library is shown; a run that began is not to be disturbed."""
        if message.is_over:
            self.plan_when_shown()

    def plan_when_shown(self) -> None:
        self._is_stale = True
        self._plan_if_stale()

    def _plan_if_stale(self) -> None:
        """Plan if this screen is shown, if only below a dialog."""
        if self._is_stale and self in self.app.screen_stack:
            self.replan()

    def action_change_n_ctx(self, way: int) -> None:
        """Double (1) or halve (-1) the needed context; at least to what a turn of the workload takes."""
        needs = self.library.needs
        n_ctx = self.library.setup.n_ctx or needs.n_ctx
        wanted = n_ctx * 2 if way > 0 else n_ctx // 2
        least = whole_steps(needs.workload.n_turn)
        self._take_needs(replace(needs, given_n_ctx=min(max(wanted, least), _LARGEST_N_CTX)))

    def action_edit_needs(self) -> None:
        self.app.push_screen(SettingsDialog(PICK, self.library.needs), self._take_needs)

    def _take_needs(self, needs: Needs | None) -> None:
        if needs is not None and needs != self.library.needs:
            self.library.needs = needs
            self.library.rows = {name: replace(row, is_old=True) for name, row in self.library.rows.items()}
            self.replan()

    def action_choose_card(self) -> None:
        self.app.push_screen(CardPicker(), self._take_card)

    def _take_card(self, choice: CardChoice | None) -> None:
        if choice is not None:
            self.card = choice
            self.library.forget()
            self.replan()

    def action_choose_options(self) -> None:
        self.app.push_screen(SettingsDialog(options_form(), host_of(self).setup), self.take_options)

    def take_options(self, setup: LlamaConfig | None) -> None:
        """Plan with other options, which may change the free memory."""
        library = self.library
        if setup is None or setup == host_of(self).setup:
            return
        host_of(self).setup = setup
        if setup.n_ctx != library.options.n_ctx:
            library.needs = replace(library.needs, given_n_ctx=None)
        library.options = setup
        library.forget()
        self.drop("plan")  # otherwise rows with the former options would arrive
        self.is_planning = True
        self.show_rows()
        self.refresh_bindings()
        self.read_machine()

    def replan(self, *, begins: bool = True) -> None:
        """Plan the chosen model or, unless it `begins`, only stop planning another."""
        self.drop("plan")
        self.problems.pop("start", None)
        self.is_planning = self._is_stale = False
        machine, budget = self.machine, self.budget
        if machine is not None and budget is not None:
            host_of(self).machine_text = machine_text(budget, is_here=self.card.is_here)
            if begins and self.library.entry is not None and self.library.entry.model:
                self._plan(machine.planner, self.library.entry.model, self.library.entry.quants, budget)
        self.show_rows()
        self.find_best()

    def forget_best(self) -> None:
        """Have the next plan find the best models again."""
        self._best_for = None

    def find_best(self) -> None:
        """Find the models to run on this machine for the needs, once the list of models is read: that comes first."""
        machine, budget, library = self.machine, self.budget, self.library
        if machine is None or budget is None or self.catalog is None:
            return
        planner, asked = machine.planner, (library.all_needs, budget)
        if asked == self._best_for:
            return
        self._best_for = asked

        def steps() -> Iterator[Pick | None]:
            with self._results() as store:
                yield from planner.best_here(library.request(budget), store)

        self.perform("best", steps, lambda pick: self.show_best(pick) if pick is not None else None)

    def _plan(self, planner: LibraryPlanner, model: str, quants: Sequence[str], budget: Budget) -> None:
        library = self.library

        def steps() -> Iterator[Candidate | Pick | None]:
            from ggbench.decisions.pick.checks import check
            from ggbench.decisions.pick.choose import best_way

            request, pick = library.request(budget), None

            def sized(
                made: Generator[tuple[Candidate, ...], None, Pick | None],
            ) -> Iterator[tuple[Candidate, ...]]:
                nonlocal pick
                pick = yield from made

            with self._results() as store, closing(planner.decide(model, quants, request, store)) as made:
                for candidates in sized(made):
                    yield best_way([check(each, request.needs) for each in candidates], request.needs)
            yield pick
            yield None

        def take(step: Candidate | Pick | None) -> None:
            if step is None:  # the end
                self.is_planning = False
            elif isinstance(step, Candidate):
                library.add(step)
            else:
                library.take(step)
            if not self._is_draw_due:
                self._is_draw_due = True
                self.call_later(self._draw)  # once for all rows that have arrived by then

        self.is_planning = True
        self.perform("plan", steps, take)

    def _draw(self) -> None:
        self._is_draw_due = False
        self.show_rows()

    @contextmanager
    def _results(self) -> Iterator[Store | None]:
        """Open the results; if they cannot be read, say so and plan without them."""
        try:
            store = host_of(self).services.open_store()
        except GgbenchError as error:
            self.call_later(self.fail, "start", error)
            yield None
        else:
            with store:
                yield store
