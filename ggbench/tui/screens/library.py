"""The Library: models on the left, plans of their quants on the right, before any download.

Finding models and planning are slow, so both run in threads. The latest request wins: results of earlier ones are
dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import DataTable, Input, Static

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.models.added_places import (
    add_place,
    add_server,
    forget_place,
    forget_server,
    remembered_servers,
    typed_path,
    typed_server,
)
from ggbench.models.disk import path_argument
from ggbench.tui.host import ModelsChanged, RunStored, host_of
from ggbench.tui.library import LatestResults, QuantRow, quants_on_disk
from ggbench.tui.model_list import ModelEntry, found_models, list_models
from ggbench.tui.screens.dialogs import CardChoice, CardPicker
from ggbench.tui.screens.starting import MachineToPlan, StartScreen
from ggbench.tui.widgets.bars import FilterInput, KeysFooter, MachineBar, MemoryBar, StatusMessage
from ggbench.tui.widgets.models_pane import ModelsPane
from ggbench.tui.widgets.quants_table import QuantsTable
from ggbench.units import KV_CELLS, counted

if TYPE_CHECKING:
    from ggbench.hub.repo_records import RepoSummary
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import PlannedQuant, Planner


_FIRST_START = (
    "No GGUF file found. Press / and type the path of a folder, or p to download;",
    "P recommends a quant of a model; twin: models need no file. ? lists all keys.",
)
"""First steps for a new user, in lines of at most 80 columns."""
_TASKS = ("place", "plan", "start", "search", "machine", "models", "results")
"""If several failed, the screen shows the error of the first."""
_NOTICE_S = 10.0
_MAX_FOUND = 20
"""Number of repos to list from a Hub search."""
_LARGEST_N_CTX = 1 << 20


class LibraryScreen(StartScreen):
    """Choose a model, mark its quants, measure or download them."""

    CSS_PATH = "library.tcss"
    HELP = (
        "Choose a model on the left. The table shows how much memory each of its quants needs, its maximum n_ctx and "
        "its predicted speed, before any download. P picks the one to run. Mark quants and run them. Twins need no "
        "download. A path typed or pasted into the filter adds a folder or a file of yours to the list, a URL adds a "
        "server; if it needs an API key, start with: ggbench tui --api-key-env VARIABLE."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "pick", "Pick", tooltip="Recommend a quant to run, with reasons and commands"),
        Binding("space", "mark", "Mark", key_display="␣", tooltip="Mark or unmark the quant, and move to the next"),
        Binding(
            "b", "measure", "Measure", tooltip="Measure the marked quants, or the chosen one: speed, quality and more"
        ),
        Binding("a", "apply_tuned", "Apply tuned", show=False, tooltip="Set the options to those found by a tune (b)"),
        Binding("p", "pull", "Pull", tooltip="Download the marked quants, or the chosen one"),
        Binding("slash", "filter", "Filter", show=False, key_display="/", tooltip="Filter the models or the quants"),
        Binding("o", "choose_options", "Options", tooltip="Memory limit, KV types, n_ctx and more, of plans and runs"),
        Binding("O", "reset_options", "Reset the options", show=False, tooltip="Set every option to its default"),
        Binding("f", "toggle_fits", "Fits", show=False, tooltip="Hide or show quants that do not fit"),
        Binding("s", "sort", "Sort", show=False, tooltip="Sort by the next column"),
        Binding("S", "reverse_sort", "Reverse the sort", show=False, tooltip="Reverse the sort order"),
        Binding("tab,shift+tab", "other_part", show=False),
        Binding("g", "choose_card", "Other card", show=False, tooltip="Plan for another GPU, or for a size of memory"),
        Binding("r", "reload", "Reload", show=False, tooltip="Read disk, free memory and headers again"),
        Binding("escape", "leave", "Back", show=False, tooltip="Clear the filter, or go back to the models"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._results = LatestResults()
        self._is_planning = self._is_draw_due = self._has_no_models = False
        self._notice = ""
        """Outcome of the last key; cleared after a few seconds."""
        self._notice_timer: Timer | None = None
        self._offered = False, False
        """Whether there are quants, and any to download: redrawing the footer is expensive."""

    def compose(self) -> ComposeResult:
        yield MachineBar(id="machine")
        with Horizontal(id="middle"):
            yield ModelsPane(id="left")
            with Vertical(id="right"):
                yield FilterInput("filter these quants by name", id="quant-filter")
                yield QuantsTable(id="quants")
                yield Static(id="none-shown", markup=False)
        yield StatusMessage(id="message")
        yield Static(id="legend", markup=False)
        yield Static(id="state", markup=False)
        yield MemoryBar(id="memory")
        yield KeysFooter()

    def on_mount(self) -> None:
        """Read models, machine and results, and open the model given at the start."""
        self._left.models.focus()
        self.show_status()
        self._read_machine()
        self._read_results()
        opens = host_of(self).opens
        if isinstance(opens, str) and typed_server(opens) is not None:
            self._left.enter(opens)
        elif opens is not None:
            self._left.open(opens)
        self._read_models()

    def on_unmount(self) -> None:
        if self.machine is not None:
            self.machine.planner.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        library = self.library
        if isinstance(self.focused, Input):
            return action in ("leave", "other_part")
        if action == "pick":
            return library.entry is not None and not library.entry.reason
        if action == "mark":
            return bool(library.rows) and self._table.has_focus
        if action == "pull":
            return library.can_pull
        if action == "reset_options":
            return host_of(self).setup != LlamaConfig()
        if action in ("measure", "apply_tuned", "sort", "reverse_sort"):
            return bool(library.rows)
        return True

    @on(ModelsChanged)
    def _read_models(self) -> None:
        """List the models; the first time, those of the catalog before the disk was scanned."""
        services, is_first = host_of(self).services, self.catalog is None

        def read() -> Iterator[tuple[Catalog, Sequence[str], Sequence[LocalModel] | None]]:
            catalog, servers = services.load_catalog(), remembered_servers()
            if is_first:
                yield catalog, servers, None
            yield catalog, servers, services.local_models()

        def take(read: tuple[Catalog, Sequence[str], Sequence[LocalModel] | None]) -> None:
            self.catalog, servers, scanned = read
            local, is_complete = scanned or (), scanned is not None
            self._has_no_models = is_complete and not local and not servers
            self.library.update(on_disk=quants_on_disk(local, self.catalog))
            self.show_rows()
            self._left.list_models(list_models(self.catalog, local, servers), is_complete=is_complete)

        self.perform("models", read, take)

    def _read_machine(self) -> None:
        """Read memory and devices; make a planner if there is none yet."""
        services, setup = host_of(self).services, host_of(self).setup
        planner = None if self.machine is None else self.machine.planner

        def read() -> Iterator[MachineToPlan]:
            made = planner
            for budget in services.machine_budgets(setup):
                made = made or services.make_planner(services)
                yield MachineToPlan(made, budget, services.read_machine())

        def take(machine: MachineToPlan) -> None:
            self.machine = machine
            self._replan()

        self.perform("machine", read, take)

    @on(RunStored)
    def _read_results(self) -> None:
        def read() -> Iterator[LatestResults]:
            from ggbench.runs.comparable import runs_of_all

            with host_of(self).services.open_store() as store:
                yield LatestResults(runs_of_all(store))

        def take(results: LatestResults) -> None:
            self._results = results
            self._show_results()

        self.perform("results", read, take)

    def _show_results(self) -> None:
        """Show measurements of this machine, unless another card is planned for."""
        self.library.update(results=self._results if self.card.is_here else LatestResults())
        self.show_rows()

    @on(events.Paste)
    def _paste(self, event: events.Paste) -> None:
        """Put text pasted or dropped anywhere on the screen into the filter of the models."""
        if lines := event.text.strip().splitlines():
            self._left.input.value = lines[0]
            self._left.input.focus()

    def _search(self, text: str) -> None:
        hub = host_of(self).services.hub

        def search() -> list[Sequence[RepoSummary]]:
            from ggbench.hub.listing import search_repos
            from ggbench.models.reference import engine_of_scheme, parse_model

            if engine_of_scheme(text.partition(":")[0].lower()):
                parse_model(text).require_gguf()  # raises UsageError: these are measured on the command line
            return [search_repos(hub, text, _MAX_FOUND)]

        self.perform("search", search, lambda found: self._left.show_found(text, found_models(found)))
        self.show_status()

    @on(ModelsPane.TextEntered)
    def _take_text(self, message: ModelsPane.TextEntered) -> None:
        """Search the Hub, or add a folder, a file or a server that has models, and remember it."""
        services, text = host_of(self).services, message.text
        if message.is_search:
            self._search(text)
            return
        server = typed_server(text)

        def add() -> Iterator[tuple[str | Path, str, str]]:
            if server is not None:
                n_models = len(services.resolve(server))
                add_server(server)
                yield server, server, counted(n_models, "model")
                return
            found = add_place(typed_path(text) or Path(text))
            name = path_argument(found[0].place or found[0].paths[0])
            yield found[0].paths[0], name, counted(len(found), "quant")

        def take(added: tuple[str | Path, str, str]) -> None:
            opened, name, count = added
            self._show_notice(f"added {name}: {count}; d in the list on the left removes it")
            self._left.open(opened)
            self._read_models()

        self.perform("place", add, take)

    def action_remove_place(self) -> None:
        """Remove the chosen place or server from the list."""
        entry = self._left.models.chosen_entry
        if entry is None or (entry.place is None and entry.server is None):
            return

        def remove() -> Iterator[str]:
            if entry.server is not None:
                forget_server(entry.server)
                yield f"removed {entry.server} from the list"
            elif entry.place is not None:
                forget_place(entry.place)
                yield f"removed {entry.place} from the list; its files stay"

        def take(notice: str) -> None:
            self._show_notice(notice)
            self._read_models()

        self.perform("place", remove, take)

    @on(Input.Changed, "#model-filter")
    def _forget_problems(self) -> None:
        for task in ("place", "search"):
            self.problems.pop(task, None)
        self.show_status()

    def _show_notice(self, text: str) -> None:
        """Show the outcome of a key in the message line for a few seconds; no text clears it."""
        if self._notice_timer is not None:
            self._notice_timer.stop()
        self._notice = text
        self._notice_timer = self.set_timer(_NOTICE_S, lambda: self._show_notice("")) if text else None
        self.show_status()

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show why a task failed; for a search, only while its text is present."""
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
        """Plan a model when it is highlighted or, if it needs the network, when it is entered."""
        is_wanted = message.entered or not message.entry.needs_network
        if is_wanted and self.library.choose(message.entry):
            self.show_rows()
            self._replan()
        if message.entered:
            host = host_of(self)
            self._table.wanted, host.opens_quant = host.opens_quant, None
            self._table.focus()

    @on(DataTable.RowHighlighted, "#quants")
    def _show_memory(self) -> None:
        chosen = self.chosen
        self.query_one(MemoryBar).shown = None if chosen is None else (chosen.title, chosen.plan)

    def action_change_n_ctx(self, factor: float, added: int) -> None:
        """Change the planned n_ctx within the useful range of the model."""
        chosen = self.chosen
        if chosen is not None and (n_ctx := self.library.setup.n_ctx or chosen.plan.n_ctx) is not None:
            largest = max(_LARGEST_N_CTX, chosen.plan.n_ctx_train or 0)
            self.library.n_ctx = min(max(round(n_ctx * factor) + added, KV_CELLS), largest)
            self._replan()

    @on(DataTable.RowSelected, "#quants")
    def action_mark(self) -> None:
        if (chosen := self.chosen) is not None:
            self.library.toggle_mark(chosen.name)
            self._table.show(self.library)
            self._table.action_cursor_down()
        self.show_status()

    def action_filter(self) -> None:
        """Open the filter of the quants if their table has the focus, else that of the models."""
        if self._table.has_focus:
            self.query_one("#right").add_class("-filter")
            self._quant_filter.focus()
        else:
            self._left.input.focus()

    def action_leave(self) -> None:
        """Clear the filter of the quants, or go from the quants to the models, or clear the filter of the models."""
        if self._quant_filter.has_focus or (self._table.has_focus and self._quant_filter.value):
            self._close_quant_filter()
            return
        if self._left.models.has_focus or self._left.input.has_focus:
            self._left.input.clear()
        self._left.models.focus()

    def _close_quant_filter(self) -> None:
        self._quant_filter.clear()
        self.query_one("#right").remove_class("-filter")
        self._table.focus()

    @on(Input.Submitted, "#quant-filter")
    def _leave_quant_filter(self) -> None:
        """Go to the quants; a path or a URL is for the models."""
        text = self._quant_filter.value
        if _is_place(text):
            self._close_quant_filter()
            self._left.enter(text)
        else:
            self._table.focus()

    def action_other_part(self) -> None:
        """Switch between the models and the quants, skipping the filters."""
        if self._table.has_focus or self._quant_filter.has_focus:
            self._left.models.focus()
        else:
            self._table.focus()

    def action_toggle_fits(self) -> None:
        self.library.is_fits_only = not self.library.is_fits_only
        self.show_rows()

    @on(Input.Changed, "#quant-filter")
    def _filter_quants(self, event: Input.Changed) -> None:
        self.library.words = event.value
        self.show_rows()

    def action_sort(self) -> None:
        self.library.order.sort_by_next()
        self._table.show(self.library)

    def action_reverse_sort(self) -> None:
        self.library.order.reverse()
        self._table.show(self.library)

    def action_choose_card(self) -> None:
        self.app.push_screen(CardPicker(self.card), self._take_card)

    def _take_card(self, choice: CardChoice | None) -> None:
        if choice is not None:
            self.card, self.library.rows = choice, {}
            self._show_results()
            self._replan()

    def take_options(self) -> None:
        """Plan with the new options, which may change the free memory."""
        self.library.options, self.library.n_ctx, self.library.rows = host_of(self).setup, None, {}
        self.drop("plan")  # otherwise rows with the former options would arrive
        self._is_planning = True
        self.show_rows()
        self._read_machine()

    def action_reload(self) -> None:
        """Read headers, disk, memory and results again."""
        if self.machine is not None:
            self.machine.planner.forget()
        self._read_models()
        self._read_machine()
        self._read_results()

    @property
    def chosen(self) -> QuantRow | None:
        return self._table.chosen

    @property
    def _left(self) -> ModelsPane:
        return self.query_one(ModelsPane)

    @property
    def _quant_filter(self) -> Input:
        return self.query_one("#quant-filter", Input)

    @property
    def _table(self) -> QuantsTable:
        return self.query_one(QuantsTable)

    def _replan(self) -> None:
        """Plan the chosen model, starting with the quant at the cursor."""
        self.drop("plan")
        self.problems.pop("start", None)
        self._is_planning = False
        machine, entry, budget = self.machine, self.library.entry, self.budget
        if machine is not None and budget is not None:
            self.query_one(MachineBar).show(budget, machine.reading, is_here=self.card.is_here)
            if entry is not None and entry.model:
                self._plan(machine.planner, entry, budget)
        self.show_status()

    def _plan(self, planner: Planner, entry: ModelEntry, budget: Budget) -> None:
        first, setup = self.chosen.name if self.chosen else None, self.library.setup

        def rows() -> Iterator[PlannedQuant | None]:
            with closing(planner.rows(entry.model, entry.quants, budget, setup, first)) as planned:
                yield from planned
            yield None

        def take(quant: PlannedQuant | None) -> None:
            if quant is None:  # the end
                self._is_planning = False
                self.show_status()
                return
            self.library.add(quant)
            if not self._is_draw_due:
                self._is_draw_due = True
                self.call_later(self.show_rows)  # once for all rows that have arrived by then

        self._is_planning = True
        self.perform("plan", rows, take)

    def show_rows(self) -> None:
        self._is_draw_due = False
        self._table.show(self.library)
        self._show_memory()
        self.show_status()
        offered = bool(self.library.rows), self.library.can_pull
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def show_status(self) -> None:
        """Update the error message, the legend and the status line."""
        library, filtered = self.library, self._quant_filter.value
        status = library.status(is_machine_known=self.machine is not None, is_planning=self._is_planning)
        has_bandwidth = self.budget is None or self.budget.bandwidth is not None or self.card.is_here
        self.query_one("#legend", Static).update(library.legend(has_bandwidth=has_bandwidth))
        is_empty = bool(library.rows) and not library.listed()
        self.query_one("#right").set_class(is_empty, "-empty")
        if is_empty:
            adds = ["enter adds this to the models"] if _is_place(filtered) else []
            self.query_one("#none-shown", Static).update("\n".join([*library.hidden, *adds]))
        self.query_one("#state", Static).update(Text(status, no_wrap=True, overflow="ellipsis"))
        problem = next((self.problems[task] for task in _TASKS if task in self.problems), None)
        if problem is not None:
            self.query_one(StatusMessage).show_error(problem)
        elif self._notice:
            self.query_one(StatusMessage).show(self._notice)
        else:
            self.query_one(StatusMessage).show(*(_FIRST_START if self._has_no_models else ()))


def _is_place(text: str) -> bool:
    """Return whether it is a path or a server's URL, unlike any quant's name."""
    return typed_path(text) is not None or typed_server(text) is not None
