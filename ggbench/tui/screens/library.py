"""The Library: models on the left, the plan of each of their quants on the right, before any download.

The latest request wins: what a thread finds for an earlier one is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

import msgspec
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, Input, Static

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.sizing.plan_record import Budget
from ggbench.tui.host import RunStored, host_of
from ggbench.tui.library_models import ModelEntry
from ggbench.tui.library_quants import QuantRow, legend, quants_on_disk
from ggbench.tui.library_results import LatestResults
from ggbench.tui.run_requests import next_length
from ggbench.tui.screens.card_picker import CardChoice, CardPicker
from ggbench.tui.screens.chosen_quants import ChosenQuantsScreen
from ggbench.tui.screens.models_screen import FIRST_START
from ggbench.tui.widgets.bars import MachineBar, MemoryBar, StatusMessage
from ggbench.tui.widgets.models_pane import ModelsPane
from ggbench.tui.widgets.quants_pane import QuantsPane, QuantsTable

if TYPE_CHECKING:
    from ggbench.machine.records import MachineReading
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel
    from ggbench.tui.planner import PlannedQuant, Planner


_TASKS = ("place", "plan", "start", "search", "machine", "models", "results")
"""By priority: if several have failed, the screen shows the error of the first."""


class _ThisMachine(msgspec.Struct, frozen=True):
    planner: Planner
    budget: Budget
    reading: MachineReading


class LibraryScreen(ChosenQuantsScreen):
    """Choose a model, mark its quants, measure or download them."""

    CSS_PATH = "library.tcss"
    HELP = (
        "Choose a model on the left. The table shows how much memory each of its quants needs, its maximum n_ctx and "
        "its predicted speed, before any download. P picks the one to run. Mark quants and run them. Twins need no "
        "download. A path typed or pasted into the filter adds a folder or a file of yours to the list, a URL adds a "
        "server; if it needs an API key, start with: ggbench tui --api-key-env VARIABLE."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "pick", "Pick", tooltip="Say which quant of the model to run, why, and by which command"),
        Binding("space", "mark", "Mark", key_display="␣", tooltip="Mark or unmark the quant, move to the next"),
        Binding("b", "decode", "Measure", tooltip="Measure the marked quants, or the chosen one"),
        Binding("m", "search", "Maxctx", tooltip="Search the maximum n_ctx that works"),
        Binding(
            "Q", "quality", "Quality", show=False, tooltip="Score a text: perplexity, and KL divergence from a base"
        ),
        Binding("T", "speed", "Speed table", show=False, tooltip="Measure tokens/s by input length and batch size"),
        Binding("t", "tune", "Tune", show=False, tooltip="Search for settings that are faster than the options"),
        Binding("a", "apply_tuned", "Apply tuned", show=False, tooltip="Set the options to what a search (t) found"),
        Binding("p", "pull", "Pull", tooltip="Download the marked quants, or the chosen one"),
        Binding("slash", "filter", "Filter", show=False, key_display="/", tooltip="Filter the models or the quants"),
        Binding("o", "choose_options", "Options", tooltip="Memory limit, KV types, n_ctx and more, of plans and runs"),
        Binding("O", "reset_options", "Reset the options", show=False, tooltip="Set every option to its default"),
        Binding("f", "toggle_fits", "Fits", show=False, tooltip="Hide or show quants that do not fit"),
        Binding("s", "sort", "Sort", show=False, tooltip="Sort by the next column"),
        Binding("S", "reverse_sort", "Reverse the sort", show=False, tooltip="Reverse the sort order"),
        Binding("n", "change_length", "n_gen", show=False, tooltip="Tokens of a run: 300, 1,000, 3,000 or 10,000"),
        Binding("tab,shift+tab", "other_part", show=False),
        Binding("g", "choose_card", "Other card", show=False, tooltip="Plan for another GPU, or for a size of memory"),
        Binding("r", "reload", "Reload", show=False, tooltip="Read disk, free memory and headers again"),
        Binding("escape", "leave", "Back", show=False, tooltip="Clear the filter, or go back to the models"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._machine: _ThisMachine | None = None
        self._results = LatestResults()
        self._is_planning = self._is_draw_due = False
        self._offered = False, False
        """Whether there are quants, and any to download: the footer depends on it, and redrawing it is expensive."""

    def compose(self) -> ComposeResult:
        yield MachineBar(id="machine")
        with Horizontal(id="middle"):
            yield ModelsPane(id="left")
            yield QuantsPane(id="right")
        yield StatusMessage(id="message")
        yield Static(id="legend", markup=False)
        yield Static(id="state", markup=False)
        yield MemoryBar(id="memory")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._left.models.focus()
        self.show_status()
        self._read_machine(None)
        self._read_results()

    def on_unmount(self) -> None:
        if self._machine is not None:
            self._machine.planner.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if isinstance(self.focused, Input):
            return action in ("leave", "other_part")
        if action == "pick":
            return self.choice.entry is not None and not self.choice.entry.reason
        if action == "mark":
            return bool(self.choice.rows) and self._table.has_focus
        if action == "pull":
            return self.choice.can_pull
        if action == "reset_options":
            return host_of(self).setup != LlamaConfig()
        if action in ("decode", "search", "quality", "speed", "tune", "apply_tuned", "sort", "reverse_sort"):
            return bool(self.choice.rows)
        return True

    def take_models(self, local: Sequence[LocalModel], catalog: Catalog) -> None:
        """Show which quants are on this disk."""
        self.choice.set_on_disk(quants_on_disk(local, catalog))
        self.show_rows()

    def _read_machine(self, planner: Planner | None) -> None:
        """Read memory and devices; make a planner if there is none yet."""
        services, setup = host_of(self).services, host_of(self).setup

        def read() -> Iterator[_ThisMachine]:
            budget = services.machine_budget(setup)
            yield _ThisMachine(planner or services.make_planner(), budget, services.read_machine())

        def take(machine: _ThisMachine) -> None:
            self._machine = machine
            self._replan()

        self.perform("machine", read, take)

    @on(RunStored)
    def _read_results(self) -> None:
        def read() -> Iterator[LatestResults]:
            from ggbench.tui.stored_runs import finished_runs

            with host_of(self).services.open_store() as store:
                yield LatestResults.of(finished_runs(store))

        def take(results: LatestResults) -> None:
            self._results = results
            self._show_results()

        self.perform("results", read, take)

    def _show_results(self) -> None:
        """Show what was measured here, unless another card is planned for."""
        self.choice.set_results(self._results if self.card.is_here else LatestResults())
        self.show_rows()

    def _take_planned(self, quant: PlannedQuant | None) -> None:
        """Take in the plan of a quant; None marks the end."""
        if quant is None:
            self._is_planning = False
            self.show_status()
            return
        self.choice.add(quant)
        if not self._is_draw_due:
            self._is_draw_due = True
            self.call_later(self.show_rows)  # once for all rows that have arrived by then

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show why a task failed; a search only while its text is there."""
        if task in ("plan", "machine"):
            self._is_planning = False
        if task == "search":
            if self._left.input.value:
                self._left.show_failure()
            else:
                self.problems.pop(task)
        self.show_status()

    @on(ModelsPane.ModelChosen)
    def _take_model(self, message: ModelsPane.ModelChosen) -> None:
        """Plan a model when it is highlighted; one that needs the network, only when it is entered."""
        is_wanted = message.entered or not message.entry.needs_network
        if is_wanted and self.choice.choose(message.entry):
            self.show_rows()
            self._replan()
        if message.entered:
            host = host_of(self)
            self._table.wanted, host.opens_quant = host.opens_quant, None
            self._table.focus()

    @on(DataTable.RowHighlighted, "#quants")
    def _show_memory(self) -> None:
        chosen, budget = self._table.chosen, self.planned_budget
        shown = None if chosen is None or budget is None else (chosen.title, chosen.plan, budget)
        self.query_one(MemoryBar).shown = shown

    @on(QuantsTable.ContextChangeRequested)
    def _change_n_ctx(self, message: QuantsTable.ContextChangeRequested) -> None:
        chosen = self._table.chosen
        if chosen is not None and (n_ctx := self.choice.setup.n_ctx or chosen.plan.n_ctx) is not None:
            self.choice.n_ctx = message.applied_to(n_ctx, chosen.plan.n_ctx_train)
            self._replan()

    @on(DataTable.RowSelected, "#quants")
    def action_mark(self) -> None:
        self._table.toggle_mark()
        self.show_status()

    def action_filter(self) -> None:
        if self._table.has_focus:
            self._right.open_filter()
        else:
            self._left.input.focus()

    def action_leave(self) -> None:
        """Clear the filter of the quants, or go from the quants to the models, or clear the filter of the models."""
        if self._right.input.has_focus or (self._table.has_focus and self._right.input.value):
            self._right.close_filter()
        elif self._left.models.has_focus or self._left.input.has_focus:
            self._left.input.clear()
            self._left.models.focus()
        else:
            self._left.models.focus()

    def action_other_part(self) -> None:
        if self._table.has_focus or self._right.input.has_focus:
            self._left.models.focus()
        else:
            self._table.focus()

    def action_change_length(self) -> None:
        host_of(self).n_gen = next_length(host_of(self).n_gen)
        self.show_status()

    def action_toggle_fits(self) -> None:
        self._table.toggle_fits()
        self._show_filtered()

    @on(Input.Changed, "#quant-filter")
    def _show_filtered(self) -> None:
        self._show_memory()
        self.show_status()

    def action_sort(self) -> None:
        self._table.sort_by_next()

    def action_reverse_sort(self) -> None:
        self._table.reverse_sort()

    def action_choose_card(self) -> None:
        self.app.push_screen(CardPicker(self.card), self._take_card)

    def _take_card(self, choice: CardChoice | None) -> None:
        if choice is not None:
            self.card, self.choice.rows = choice, {}
            self._show_results()
            self._replan()

    def take_options(self) -> None:
        """Plan with other options, for which other memory may be free."""
        self.choice.options, self.choice.n_ctx, self.choice.rows = host_of(self).setup, None, {}
        self.drop("plan")  # else its rows come with the former options
        self._is_planning = True
        self.show_rows()
        self._read_machine(None if self._machine is None else self._machine.planner)

    def action_reload(self) -> None:
        planner = None if self._machine is None else self._machine.planner
        if planner is not None:
            planner.forget()
        self.read_models()
        self._read_machine(planner)
        self._read_results()

    @property
    def _left(self) -> ModelsPane:
        return self.query_one(ModelsPane)

    @property
    def _right(self) -> QuantsPane:
        return self.query_one(QuantsPane)

    @property
    def chosen(self) -> QuantRow | None:
        return self._table.chosen

    @property
    def _table(self) -> QuantsTable:
        return self._right.table

    @property
    def machine_budget(self) -> Budget | None:
        return None if self._machine is None else self._machine.budget

    @property
    def planner(self) -> Planner | None:
        return None if self._machine is None else self._machine.planner

    @property
    def planned_budget(self) -> Budget | None:
        """The memory of this machine, or of the chosen card."""
        if not self.card.is_here:
            return self.card.budget(host_of(self).setup.memory_limit_bytes)
        return self.machine_budget

    def _replan(self) -> None:
        """Plan the chosen model, starting with the quant at the cursor."""
        self.drop("plan")
        self.problems.pop("start", None)
        self._is_planning = False
        machine, entry, budget = self._machine, self.choice.entry, self.planned_budget
        if machine is not None and budget is not None:
            self.query_one(MachineBar).show(budget, machine.reading, is_here=self.card.is_here)
            if entry is not None and entry.model:
                self._plan(machine.planner, entry, budget)
        self.show_status()

    def _plan(self, planner: Planner, entry: ModelEntry, budget: Budget) -> None:
        chosen, setup = self._table.chosen, self.choice.setup
        first = chosen.name if chosen else None

        def rows() -> Iterator[PlannedQuant | None]:
            with closing(planner.rows(entry.model, entry.quants, budget, setup, first)) as planned:
                yield from planned
            yield None

        self._is_planning = True
        self.perform("plan", rows, self._take_planned)

    def show_rows(self) -> None:
        self._is_draw_due = False
        self._table.show(self.choice.rows, self.choice.marks)
        self._show_memory()
        self.show_status()
        offered = bool(self.choice.rows), self.choice.can_pull
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def show_status(self) -> None:
        """Update the error message and the status line."""
        table, choice, is_known = self._table, self.choice, self._machine is not None
        status = choice.status(table, host_of(self).n_gen, is_machine_known=is_known, is_planning=self._is_planning)
        has_bandwidth = self.planned_budget is None or self.planned_budget.bandwidth is not None or self.card.is_here
        explained = legend(list(choice.rows.values()), has_bandwidth=has_bandwidth) if choice.rows else ""
        self.query_one("#legend", Static).update(explained)
        self._right.show_empty(table.hidden if choice.rows and not table.n_shown else ())
        self.query_one("#state", Static).update(Text(status, no_wrap=True, overflow="ellipsis"))
        problem = next((self.problems[task] for task in _TASKS if task in self.problems), None)
        if problem is None:
            first_start = FIRST_START if self.has_no_models else ()
            self.query_one(StatusMessage).show(*([self.notice] if self.notice else first_start))
        else:
            self.query_one(StatusMessage).show_error(problem)
