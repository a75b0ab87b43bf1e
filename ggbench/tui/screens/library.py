"""The Library: the needs on top, models on the left, and the quants of one on the right in the order of the pick.

Finding models and planning are slow, so both run in threads, and only the highlighted model is planned. The latest
request wins: results of earlier ones are dropped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import DataTable, Input, Static

from ggbench.decisions.pick.needs import Needs, needs_in_brief
from ggbench.decisions.pick.record import Candidate, Checked, Pick
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
from ggbench.tui.library import QuantRow, quants_on_disk
from ggbench.tui.model_list import ModelEntry, Section, found_models, list_models
from ggbench.tui.screens.dialogs import CardChoice, CardPicker
from ggbench.tui.screens.forms import PICK, SettingsDialog
from ggbench.tui.screens.starting import MachineToPlan, StartScreen
from ggbench.tui.widgets.bars import FilterInput, KeysFooter, MemoryBar, NeedsBar, StatusMessage
from ggbench.tui.widgets.models_pane import ModelsPane
from ggbench.tui.widgets.quants_table import QuantsTable
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.hub.repo_records import RepoSummary
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel
    from ggbench.runs.store.database import Store
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import Planner
    from ggbench.tui.screens.pick import PickScreen


_TASKS = ("place", "plan", "start", "search", "machine", "models")
"""If several failed, the screen shows the error of the first."""
_NOTICE_S = 10.0
_MAX_FOUND = 20
"""Number of repos to list from a Hub search."""
_LARGEST_N_CTX = 1 << 20
_HERE = (Section.ADDED, Section.DISK)


class LibraryScreen(StartScreen):
    """Choose a model, mark its quants, measure or download them."""

    CSS_PATH = "library.tcss"
    HELP = (
        "Choose a model on the left; its quants are planned before any download, each run in the best way for your "
        "needs (e), and listed as they would be picked: ★ is the pick, P says why. Those that miss a need are dim.\n\n"
        "Bold was measured here. ~ is an estimate: a speed from other runs, a loss published for other models. Dim "
        "with ≤ is what the memory's bandwidth allows at most, with ≥ the loss without that of the KV cache.\n\n"
        "tok/s: speed of the answer. context: the longest that fits, k for 1,024 tokens; * is beyond the training. "
        "KLD: loss of quality in nats; people notice 0.05. file: here, or ↓ and its download. A model that is not here "
        "can be measured as a twin.\n\n"
        "A path typed or pasted into the filter adds a folder or a file of yours to the list, a URL adds a server; if "
        "it needs an API key, start with: ggbench tui --api-key-env VARIABLE."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "pick", "Pick", tooltip="The whole decision: all reasons, alternatives, a plot and the commands"),
        Binding("e", "edit_needs", "Needs", tooltip="What the model is for: context, speed, quality"),
        Binding("space", "mark", "Mark", key_display="␣", tooltip="Mark or unmark the quant, and move to the next"),
        Binding(
            "b", "measure", "Measure", tooltip="Measure the marked quants, or the chosen one: speed, quality and more"
        ),
        Binding("a", "apply_tuned", "Apply tuned", show=False, tooltip="Set the options to those found by a tune (b)"),
        Binding("p", "pull", "Pull", tooltip="Download the marked quants, or the chosen one"),
        Binding("slash", "filter", "Filter", show=False, key_display="/", tooltip="Filter the models or the quants"),
        Binding("o", "choose_options", "Options", tooltip="Memory limit, KV types, n_ctx and more, of plans and runs"),
        Binding("O", "reset_options", "Reset the options", show=False, tooltip="Set every option to its default"),
        Binding(
            "greater_than_sign",
            "change_n_ctx(2, 0)",
            "Double the context",
            show=False,
            tooltip="Need twice the context",
        ),
        Binding("less_than_sign", "change_n_ctx(0.5, 0)", "Context÷2", show=False, tooltip="Halve the needed context"),
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
        self._is_planning = self._is_draw_due = False
        self._n_here: int | None = None
        """Models on this disk; None until it was read."""
        self._is_stale = False
        """Whether a run was stored since the plan, while another screen was shown."""
        self._decision: PickScreen | None = None
        """The screen of the whole pick, once it was opened."""
        self._notice = ""
        """Outcome of the last key; cleared after a few seconds."""
        self._notice_timer: Timer | None = None
        self._offered = False, False, False
        """Whether there are quants, any to download, and a pick: redrawing the footer is expensive."""

    def compose(self) -> ComposeResult:
        yield NeedsBar(id="needs")
        with Horizontal(id="middle"):
            yield ModelsPane(id="left")
            with Vertical(id="right"):
                yield Static(id="state", markup=False)
                yield FilterInput("filter these quants by name", id="quant-filter")
                yield QuantsTable(id="quants")
                yield Static(id="none-shown", markup=False)
        yield StatusMessage(id="message")
        yield Static(id="reason", markup=False)
        yield MemoryBar(id="memory")
        yield KeysFooter()

    def on_mount(self) -> None:
        """Read models and machine, and open the model given at the start."""
        self._left.models.focus()
        self.show_status()
        self._read_machine()
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
            return library.pick is not None
        if action == "mark":
            return bool(library.rows)
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

        def read() -> Iterator[tuple[Catalog, Sequence[ModelEntry], Sequence[LocalModel] | None]]:
            catalog, servers = services.load_catalog(), remembered_servers()
            if is_first:
                yield catalog, list_models(catalog, (), servers), None
            local = services.local_models()
            yield catalog, list_models(catalog, local, servers), local

        def take(read: tuple[Catalog, Sequence[ModelEntry], Sequence[LocalModel] | None]) -> None:
            self.catalog, listed, local = read
            if local is not None:
                self._n_here = sum(entry.section in _HERE for entry in listed)
                self.library.update(quants_on_disk(local, self.catalog))
            self.show_rows()
            self._left.list_models(listed, is_complete=local is not None)

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
    def _take_results(self, message: RunStored) -> None:
        """Plan again with what was measured, once this screen is shown; a run that began is not to be disturbed."""
        if message.is_over:
            self._is_stale = True
            self._plan_if_stale()

    @on(events.ScreenResume)
    def _plan_if_stale(self) -> None:
        if self._is_stale and self.is_current:
            self._replan()

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
            if self._decision is not None and self._decision.is_attached:
                self._decision.show_failure(error)
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
            self._table.start_over()
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
        """Change the needed context, from that of the workload's turn to the model's useful range."""
        needs, chosen = self.library.needs, self.chosen
        shortest = replace(needs, given_n_ctx=1).n_ctx
        largest = max(_LARGEST_N_CTX, (chosen and chosen.plan.n_ctx_train) or 0)
        n_ctx = self.library.setup.n_ctx or needs.n_ctx
        self._take_needs(replace(needs, given_n_ctx=min(max(round(n_ctx * factor) + added, shortest), largest)))

    def action_edit_needs(self) -> None:
        self.app.push_screen(SettingsDialog(PICK, self.library.needs), self._take_needs)

    def _take_needs(self, needs: Needs | None) -> None:
        if needs is not None and needs != self.library.needs:
            self.library.needs = needs
            self._replan()

    def action_pick(self) -> None:
        """Show the whole decision; it is renewed with the quants of this screen."""
        from ggbench.tui.screens.pick import PickScreen, PickTask

        library, budget = self.library, self.budget
        entry, made = library.entry, library.pick
        if entry is None or made is None or budget is None:
            return

        def measure(candidate: Candidate) -> None:
            setup, row = replace(candidate.setup, n_ctx=candidate.n_ctx), library.row_of(candidate)
            self.ask_to_measure([(entry.model, (row.name,))], [row], setup, row.name)

        def pull(candidate: Candidate) -> None:
            if (file := candidate.to_run) is not None:  # for a twin, its published file
                self.find_targets(None, [(file.model, (file.quant,))])

        task = PickTask(entry.title, budget, self.action_edit_needs, measure, pull)
        self._decision = PickScreen(task, made)
        self.app.push_screen(self._decision)

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
        """Sort by the next column; after the last, in the order of the pick."""
        order = self.library.order
        if order.key == order.columns[-1].key:
            order.key = None
        else:
            order.sort_by_next()
        self._table.show(self.library)

    def action_reverse_sort(self) -> None:
        self.library.order.reverse()
        self._table.show(self.library)

    def action_choose_card(self) -> None:
        self.app.push_screen(CardPicker(self.card), self._take_card)

    def _take_card(self, choice: CardChoice | None) -> None:
        if choice is not None:
            self.card = choice
            self.library.forget()
            self.show_rows()
            self._replan()

    def take_options(self) -> None:
        """Plan with the new options, which may change the free memory."""
        library, options = self.library, host_of(self).setup
        if options.n_ctx != library.options.n_ctx:
            library.needs = replace(library.needs, given_n_ctx=None)
        library.options = options
        library.forget()
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
        """Plan the chosen model."""
        self.drop("plan")
        self.problems.pop("start", None)
        self._is_planning = self._is_stale = False
        machine, entry, budget = self.machine, self.library.entry, self.budget
        if machine is not None and budget is not None:
            self.query_one(NeedsBar).show_machine(budget, machine.reading, is_here=self.card.is_here)
            if entry is not None and entry.model:
                self._plan(machine.planner, entry, budget)
        self.show_status()

    def _plan(self, planner: Planner, entry: ModelEntry, budget: Budget) -> None:
        library = self.library

        def steps() -> Iterator[Checked | tuple[Pick, Sequence[Checked]] | None]:
            from ggbench.decisions.pick.checks import check
            from ggbench.decisions.pick.recommend import best_way, ranked

            request, pick = library.request(budget), None

            def sized(made: Generator[tuple[Candidate, ...], None, Pick | None]) -> Iterator[tuple[Candidate, ...]]:
                nonlocal pick
                pick = yield from made

            with self._results() as store, closing(planner.decide(entry.model, entry.quants, request, store)) as made:
                for candidates in sized(made):
                    yield best_way([check(each, request.needs) for each in candidates], request.needs)
            if pick is not None:
                yield pick, ranked(pick)
            yield None

        def take(step: Checked | tuple[Pick, Sequence[Checked]] | None) -> None:
            if step is None:  # the end
                self._is_planning = False
            elif isinstance(step, Checked):
                library.add(step)
            else:
                library.take(*step)
                if self._decision is not None and self._decision.is_attached:
                    self._decision.show(step[0])
            if not self._is_draw_due:
                self._is_draw_due = True
                self.call_later(self.show_rows)  # once for all rows that have arrived by then

        self._is_planning = True
        if self._decision is not None and self._decision.is_attached:
            self._decision.show_progress()
        self.perform("plan", steps, take)

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

    def show_rows(self) -> None:
        self._is_draw_due = False
        self._table.show(self.library)
        self._show_memory()
        self.show_status()
        library = self.library
        offered = bool(library.rows), library.can_pull, library.pick is not None
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def show_status(self) -> None:
        """Update the needs, the model's line, the reason of the pick and the message."""
        library, filtered = self.library, self._quant_filter.value
        self.query_one(NeedsBar).needs = needs_in_brief(replace(library.needs, given_n_ctx=library.setup.n_ctx))
        status = library.status(is_machine_known=self.machine is not None, is_planning=self._is_planning)
        self.query_one("#state", Static).update(Text(status, no_wrap=True, overflow="ellipsis"))
        reason = "" if self._is_planning else library.reason()
        self.query_one("#reason", Static).update(Text(reason, overflow="ellipsis"))
        is_first, is_empty = library.entry is None, bool(library.rows) and not library.listed()
        self.query_one("#right").set_class(is_first, "-first").set_class(is_empty, "-empty")
        if is_first or is_empty:
            adds = ["enter adds this to the models"] if _is_place(filtered) else []
            lines = self._first_steps() if is_first else [*library.hidden, *adds]
            self.query_one("#none-shown", Static).update("\n".join(lines))
        problem = next((self.problems[task] for task in _TASKS if task in self.problems), None)
        if problem is not None:
            self.query_one(StatusMessage).show_error(problem)
        else:
            self.query_one(StatusMessage).show(*([self._notice] if self._notice else []))

    def _first_steps(self) -> list[str]:
        """Return what is on this disk, and what to press, in lines of at most 54 columns."""
        found = "" if self._n_here is None else counted(self._n_here, "model") if self._n_here else "No GGUF file"
        return [
            f"{found} found on this disk." if found else "Looking for models on this disk…",
            "",
            "enter  open a family on the left, then a model: its",
            "       quants are planned, nothing is downloaded",
            "/      filter, or type the path of a folder of yours,",
            "       or words to search for on the Hub",
            "e      say what the model is for",
            "?      all keys, and what the marks mean",
        ]


def _is_place(text: str) -> bool:
    """Return whether it is a path or a server's URL, unlike any quant's name."""
    return typed_path(text) is not None or typed_server(text) is not None
