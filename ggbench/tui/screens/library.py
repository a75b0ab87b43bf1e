"""The Library: models on the left, the plan of each of their quants on the right, before any download.

The latest request wins: an answer that a thread gives to an earlier one is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, Input, Static

from ggbench.catalog.models import Catalog
from ggbench.errors import GgbenchError
from ggbench.records.plan import Budget
from ggbench.records.setup import LlamaSetup
from ggbench.tui.download_consent import download_question, refusal
from ggbench.tui.library_choice import LibraryChoice
from ggbench.tui.library_models import ModelEntry, found_models, list_models
from ggbench.tui.library_quants import quants_on_disk
from ggbench.tui.messages import ModelsChanged, PullRequested, RunRequested, RunStored
from ggbench.tui.run_requests import RunRequest, decode_request, next_length, search_request
from ggbench.tui.screens import library_messages as messages
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.library_text import hidden_counts, start_notices, status_text
from ggbench.tui.screens.library_workers import LibraryWorkers
from ggbench.tui.widgets.machine_bar import MachineBar
from ggbench.tui.widgets.memory_bar import MemoryBar
from ggbench.tui.widgets.models_pane import ModelsPane
from ggbench.tui.widgets.quants_pane import QuantsPane
from ggbench.tui.widgets.quants_table import QuantsTable
from ggbench.tui.widgets.status_message import StatusMessage
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.tui.screens.card_picker import CardChoice


class LibraryScreen(LibraryWorkers):
    """Choose a model, mark its quants, measure or download them."""

    CSS_PATH = "library.tcss"
    HELP = (
        "Choose a model on the left. The table shows how much memory each of its quants needs, its maximum n_ctx and "
        "its predicted speed, before any download. Mark quants and run them. Twins need no download."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark", tooltip="Mark or unmark the quant, move to the next"),
        Binding("b", "decode", "Run", tooltip="Measure the marked quants, or the chosen one"),
        Binding("m", "search", "Maxctx", tooltip="Search the maximum n_ctx that works"),
        Binding("p", "pull", "Pull", tooltip="Download the marked quants, or the chosen one"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter the models or the quants"),
        Binding("f", "toggle_fits", "Fits", tooltip="Hide or show quants that do not fit"),
        Binding("s", "sort", "Sort", tooltip="Sort by the next column"),
        Binding("S", "reverse_sort", "Reverse the sort order", show=False),
        Binding("n", "change_length", "n_gen, tokens of a run: 300, 1,000, 3,000 or 10,000", show=False),
        Binding("tab,shift+tab", "other_part", show=False),
        Binding("g", "choose_card", "Plan for another card", show=False),
        Binding("r", "reload", "Reload disk, memory and headers", show=False),
        Binding("escape", "leave", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._choice = LibraryChoice()
        self._catalog: Catalog | None = None
        self._machine: messages.MachineRead | None = None
        self._card: Budget | None = None
        """The card to plan for; None plans for this machine."""
        self._request = 0
        self._is_planning = self._is_draw_due = False
        self._offered = False, False
        """Whether there are quants, and any to download: the footer depends on it, and redrawing it is expensive."""
        self._problems: dict[messages.Task, GgbenchError] = {}

    def compose(self) -> ComposeResult:
        """Lay out the machine bar, models and quants, the message and status lines, and the memory bar."""
        yield MachineBar(id="machine")
        with Horizontal(id="middle"):
            yield ModelsPane(id="left")
            yield QuantsPane(id="right")
        yield StatusMessage(id="message")
        yield Static(id="state", markup=False)
        yield MemoryBar(id="memory")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Read models, machine and results, each in a thread."""
        self._left.models.focus()
        self._show_status()
        self._read_models(at_first=True)
        self._read_machine(None)
        self._read_results()

    def on_unmount(self) -> None:
        """End the planner's worker."""
        if self._machine is not None:
            self._machine.planner.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable a key only where it has an effect."""
        if isinstance(self.focused, Input):
            return action in ("leave", "other_part")
        if action == "mark":
            return bool(self._choice.rows) and self._table.has_focus
        if action == "pull":
            return self._choice.can_pull
        if action in ("decode", "search", "sort", "reverse_sort"):
            return bool(self._choice.rows)
        return True

    @on(messages.ModelsRead)
    def _take_models(self, message: messages.ModelsRead) -> None:
        self._problems.pop("models", None)
        self._catalog = message.catalog
        self._choice.set_on_disk(quants_on_disk(message.local, message.catalog))
        self._left.list_models(list_models(message.catalog, message.local), is_complete=message.is_complete)
        self._show_rows()

    @on(messages.MachineRead)
    def _take_machine(self, message: messages.MachineRead) -> None:
        self._problems.pop("machine", None)
        self._machine = message
        self._replan()

    @on(messages.ResultsRead)
    def _take_results(self, message: messages.ResultsRead) -> None:
        self._problems.pop("results", None)
        self._choice.set_decodes(message.decodes)
        self._show_rows()

    @on(messages.SearchFinished)
    def _take_found(self, message: messages.SearchFinished) -> None:
        self._problems.pop("search", None)
        self._left.show_found(message.text, found_models(message.found))
        self._show_status()

    @on(messages.QuantPlanned)
    def _take_planned(self, message: messages.QuantPlanned) -> None:
        if message.request != self._request:
            return
        if message.quant is None:
            self._is_planning = False
            self._show_status()
            return
        self._choice.add(message.quant)
        if not self._is_draw_due:
            self._is_draw_due = True
            self.call_later(self._show_rows)  # once for all rows that have arrived by then

    @on(messages.TargetsFound)
    def _start(self, message: messages.TargetsFound) -> None:
        """Ask before a large download, then pass the request to the app."""
        refused = refusal(message.targets, message.download_bytes, is_offline=self._services.hub.offline)
        if refused is not None:
            self._fail("start", refused)
        elif (question := download_question(message.targets, message.download_bytes)) is not None:
            self.app.push_screen(
                ConfirmScreen(question, "Download"), lambda confirmed: self._hand_over(message) if confirmed else None
            )
        else:
            self._hand_over(message)

    def _hand_over(self, message: messages.TargetsFound) -> None:
        self._choice.clear_marks()
        self._show_rows()
        request = message.request
        if request is None:
            self.post_message(PullRequested(message.targets))
            self.query_one(StatusMessage).show(
                f"downloading {format_bytes(message.download_bytes)}; press 4 for progress"
            )
            return
        for notice in start_notices(request, is_here=self._card is None):
            self.notify(notice, markup=False)
        self.post_message(RunRequested(request.jobs(message.targets)))

    @on(messages.TaskFailed)
    def _take_failure(self, message: messages.TaskFailed) -> None:
        if message.task == "plan":
            if message.request != self._request:
                return
            self._is_planning = False
        if message.task == "search":
            if not self._left.input.value:
                return  # the filter was cleared
            self._left.show_failure()
        self._fail(message.task, message.error)

    @on(ModelsChanged)
    def _reload_models(self) -> None:
        self._read_models()

    @on(RunStored)
    def _reload_results(self) -> None:
        self._read_results()

    @on(ModelsPane.ModelChosen)
    def _take_model(self, message: ModelsPane.ModelChosen) -> None:
        """Plan a model when it is highlighted; one that needs the network, only when it is entered."""
        if message.entered or not message.entry.needs_network:
            self._choose(message.entry)
        if message.entered:
            self._table.focus()

    @on(ModelsPane.SearchRequested)
    def _start_search(self, message: ModelsPane.SearchRequested) -> None:
        self._problems.pop("search", None)
        self._show_status()
        self._search(message.text)

    @on(Input.Changed, "#quant-filter")
    def _show_filtered(self) -> None:
        self._show_memory()
        self._show_status()

    @on(Input.Changed, "#model-filter")
    def _forget_search(self) -> None:
        if self._problems.pop("search", None) is not None:
            self._show_status()

    @on(DataTable.RowHighlighted, "#quants")
    def _show_memory(self) -> None:
        chosen, budget = self._table.chosen, self._budget
        if chosen is None or budget is None:
            self.query_one(MemoryBar).show_nothing()
        else:
            self.query_one(MemoryBar).show(chosen.name, chosen.plan, budget)

    @on(DataTable.RowSelected, "#quants")
    def _mark_selected(self) -> None:
        self.action_mark()

    @on(QuantsTable.ContextChangeRequested)
    def _change_n_ctx(self, message: QuantsTable.ContextChangeRequested) -> None:
        chosen = self._table.chosen
        if chosen is not None and (n_ctx := self._choice.n_ctx or chosen.plan.n_ctx) is not None:
            self._choice.n_ctx = message.applied_to(n_ctx, chosen.plan.n_ctx_train)
            self._replan()

    def action_mark(self) -> None:
        """Mark or unmark the chosen quant and move to the next."""
        self._table.toggle_mark()
        self._show_status()

    def action_decode(self) -> None:
        """Measure the marked quants, or the chosen one."""
        planned_n_ctx = self._choice.planned_n_ctx(self._choice.selection(self._table.chosen))
        self._request_start(decode_request(planned_n_ctx, self._host.n_gen))

    def action_search(self) -> None:
        """Search the largest context of the marked quants, or of the chosen one."""
        self._request_start(search_request())

    def action_pull(self) -> None:
        """Download the marked quants, or the chosen one."""
        self._request_start(None)

    def _request_start(self, request: RunRequest | None) -> None:
        """Look for the files of the selection."""
        if selection := self._choice.selection(self._table.chosen):
            self._problems.pop("start", None)
            self._find_targets(request, selection, self._catalog)

    def action_filter(self) -> None:
        """Open the filter of the quants if their table has the focus, else that of the models."""
        if self._table.has_focus:
            self._right.open_filter()
        else:
            self._left.input.focus()

    def action_leave(self) -> None:
        """Leave the filter of the quants, or go from the quants to the models, or clear the filter of the models."""
        if self._right.input.has_focus:
            self._right.close_filter()
        elif self._left.models.has_focus or self._left.input.has_focus:
            self._left.input.clear()
            self._left.models.focus()
        else:
            self._left.models.focus()

    def action_other_part(self) -> None:
        """Switch between the models and the quants, skipping the filters."""
        if self._table.has_focus or self._right.input.has_focus:
            self._left.models.focus()
        else:
            self._table.focus()

    def action_change_length(self) -> None:
        """Choose the next longer run; after the longest, the shortest."""
        self._host.n_gen = next_length(self._host.n_gen)
        self._show_status()

    def action_toggle_fits(self) -> None:
        """Hide or show the quants that do not fit."""
        self._table.toggle_fits()
        self._show_memory()
        self._show_status()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._table.sort_by_next()

    def action_reverse_sort(self) -> None:
        """Reverse the sort order."""
        self._table.reverse_sort()

    def action_choose_card(self) -> None:
        """Choose a card to plan for; it need not be installed."""
        from ggbench.tui.screens.card_picker import CardPicker

        self.app.push_screen(CardPicker(self._card), self._take_card)

    def _take_card(self, choice: CardChoice | None) -> None:
        if choice is not None:
            self._card, self._choice.rows = choice.budget, {}
            self._show_rows()
            self._replan()

    def action_reload(self) -> None:
        """Read headers, disk, memory and results again."""
        planner = None if self._machine is None else self._machine.planner
        if planner is not None:
            planner.forget()
        self._read_models()
        self._read_machine(planner)
        self._read_results()

    @property
    def _left(self) -> ModelsPane:
        return self.query_one(ModelsPane)

    @property
    def _right(self) -> QuantsPane:
        return self.query_one(QuantsPane)

    @property
    def _table(self) -> QuantsTable:
        return self._right.table

    @property
    def _budget(self) -> Budget | None:
        return self._card or (None if self._machine is None else self._machine.budget)

    def _choose(self, entry: ModelEntry) -> None:
        if self._choice.choose(entry):
            self._show_rows()
            self._replan()

    def _replan(self) -> None:
        """Plan the chosen model, starting with the quant at the cursor."""
        self._request += 1
        self._is_planning = False
        for task in ("plan", "start"):
            self._problems.pop(task, None)
        machine, entry, budget = self._machine, self._choice.entry, self._budget
        if machine is not None and budget is not None:
            self.query_one(MachineBar).show(budget, machine.reading, is_here=self._card is None)
            if entry is not None and entry.model:
                self._is_planning = True
                chosen = self._table.chosen
                first, setup = chosen.name if chosen else None, LlamaSetup(n_ctx=self._choice.n_ctx)
                self._plan(self._request, machine.planner, entry, budget, setup, first)
        self._show_status()

    def _show_rows(self) -> None:
        self._is_draw_due = False
        self._table.show(self._choice.rows, self._choice.marks)
        self._show_memory()
        self._show_status()
        offered = bool(self._choice.rows), self._choice.can_pull
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def _fail(self, task: messages.Task, error: GgbenchError) -> None:
        self._problems[task] = error
        self._show_status()

    def _show_status(self) -> None:
        """Update the error message and the status line."""
        table, choice, is_known = self._table, self._choice, self._machine is not None
        status = status_text(choice, table, self._host.n_gen, is_machine_known=is_known, is_planning=self._is_planning)
        self._right.show_empty(hidden_counts(table) if choice.rows and not table.n_shown else ())
        self.query_one("#state", Static).update(Text(status, no_wrap=True, overflow="ellipsis"))
        problem = next((self._problems[task] for task in messages.TASKS if task in self._problems), None)
        if problem is None:
            self.query_one(StatusMessage).clear()
        else:
            self.query_one(StatusMessage).show_error(problem)
