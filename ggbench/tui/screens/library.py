"""The Library: the models on the left, what each of their quants would take on the right, before any download.

What was asked for later wins: an answer of a thread that comes too late is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Input, Static

from ggbench.catalog.models import Catalog
from ggbench.errors import GgbenchError
from ggbench.plan_records import Budget
from ggbench.records import LoadConfig
from ggbench.tui import library_news as news
from ggbench.tui.download_consent import download_question, refusal
from ggbench.tui.library_errands import LibraryErrands
from ggbench.tui.library_models import ModelEntry, found_models, list_models
from ggbench.tui.library_words import hidden_words, start_notices, state_words
from ggbench.tui.messages import ModelsChanged, PullRequested, RunRequested, RunStored
from ggbench.tui.run_length import next_length, run_config
from ggbench.tui.screens.confirm import ConfirmScreen
from ggbench.tui.variants import Measured, Variant, files_here, look_up
from ggbench.tui.widgets.filter_input import FilterInput
from ggbench.tui.widgets.machine_bar import MachineBar
from ggbench.tui.widgets.memory_bar import MemoryBar
from ggbench.tui.widgets.models_pane import ModelsPane
from ggbench.tui.widgets.told import Told
from ggbench.tui.widgets.variants_table import VariantsTable
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.tui.screens.card_picker import Picked


class LibraryScreen(LibraryErrands):
    """Choose a model, mark its quants, have them measured."""

    CSS_PATH = "library.tcss"
    HELP = (
        "Choose a model on the left; the table tells what each of its quants would take and how fast it could be at "
        "best, before any download. Mark some and measure them. A twin needs no download at all."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark", tooltip="Mark a quant, or take its mark away; go on to the next"),
        Binding("b", "start('bench')", "Run", tooltip="Measure what is marked, else the chosen quant"),
        Binding("m", "start('maxctx')", "Maxctx", tooltip="Search the largest n_ctx that works"),
        Binding("p", "start('pull')", "Pull", tooltip="Download what is marked, else the chosen quant"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter the models, or the quants"),
        Binding("f", "toggle_fits", "Fits", tooltip="Hide what does not fit, or show it again"),
        Binding("s", "sort", "Sort", tooltip="Sort by the next column"),
        Binding("S", "turn", "Sort the other way", show=False),
        Binding("n", "change_length", "Tokens of a run: 300, 1,000, 3,000, 10,000", show=False),
        Binding("tab,shift+tab", "other_part", show=False),
        Binding("g", "choose_card", "Plan for another card", show=False),
        Binding("r", "look_again", "Look again at disk, memory and headers", show=False),
        Binding("escape", "leave", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._here: frozenset[tuple[str, str]] = frozenset()
        self._measured: Measured = {}
        self._catalog: Catalog | None = None
        self._machine: news.MachineRead | None = None
        self._card: Budget | None = None
        """The card that is planned for; None plans for this machine."""
        self._entry: ModelEntry | None = None
        self._variants: dict[str, Variant] = {}
        self._marks: dict[str, dict[str, None]] = {}
        """Names by model, in the order in which they were marked."""
        self._n_ctx: int | None = None
        self._asked_n_ctx: int | None = None
        """What was planned of what is being started; None where nothing special was."""
        self._request = 0
        self._is_planning = self._is_draw_due = False
        self._offers = False, False
        """Whether there are quants, and any to download: keys depend on it, and to draw those anew is dear."""
        self._problems: dict[news.Errand, GgbenchError] = {}

    def compose(self) -> ComposeResult:
        """Machine, models beside quants, what is to say, memory."""
        yield MachineBar(id="machine")
        with Horizontal(id="middle"):
            yield ModelsPane(id="left")
            with Vertical(id="right"):
                yield FilterInput("filter these quants by name", id="quant-filter")
                yield VariantsTable(id="variants")
                yield Static(id="none-shown", markup=False)
        yield Told(id="told")
        yield Static(id="state", markup=False)
        yield MemoryBar(id="memory")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Find out what there is, each in a thread of its own."""
        self._left.models.focus()
        self._tell()
        self._read_models(at_first=True)
        self._read_machine(None)
        self._read_results()

    def on_unmount(self) -> None:
        """End the planner's worker."""
        if self._machine is not None:
            self._machine.planner.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they do something."""
        if isinstance(self.focused, Input):
            return action in ("leave", "other_part")
        if action == "mark":
            return bool(self._variants) and self._table.has_focus
        if action == "start" and parameters == ("pull",):
            return self._can_pull
        if action in ("start", "sort", "turn"):
            return bool(self._variants)
        return True

    @on(news.ModelsRead)
    def _take_models(self, message: news.ModelsRead) -> None:
        self._problems.pop("models", None)
        self._catalog = message.catalog
        self._here = files_here(message.local, message.catalog)
        self._left.list_models(list_models(message.catalog, message.local), is_whole=message.is_whole)
        self._look_variants_up()

    @on(news.MachineRead)
    def _take_machine(self, message: news.MachineRead) -> None:
        self._problems.pop("machine", None)
        self._machine = message
        self._replan()

    @on(news.ResultsRead)
    def _take_results(self, message: news.ResultsRead) -> None:
        self._problems.pop("results", None)
        self._measured = message.measured
        self._look_variants_up()

    @on(news.Searched)
    def _take_found(self, message: news.Searched) -> None:
        self._problems.pop("search", None)
        self._left.show_found(message.text, found_models(message.found))
        self._tell()

    @on(news.QuantPlanned)
    def _take_planned(self, message: news.QuantPlanned) -> None:
        if message.request != self._request:
            return
        if message.quant is None:
            self._is_planning = False
            self._tell()
            return
        name = message.quant.name
        self._variants[name] = self._looked_up(Variant(name, message.quant.row))
        if not self._is_draw_due:
            self._is_draw_due = True
            self.call_later(self._show_variants)  # once for all the rows that have come by then

    @on(news.TargetsFound)
    def _start(self, message: news.TargetsFound) -> None:
        """Ask where much would be downloaded, then hand the work to the app."""
        refused = refusal(message.targets, message.download_bytes, is_offline=self._services.hub.offline)
        if refused is not None:
            self._fail("start", refused)
        elif (question := download_question(message.targets, message.download_bytes)) is not None:
            self.app.push_screen(
                ConfirmScreen(question, "Download"), lambda is_wanted: self._hand_over(message) if is_wanted else None
            )
        else:
            self._hand_over(message)

    def _hand_over(self, message: news.TargetsFound) -> None:
        self._marks.clear()
        self._show_variants()
        if message.job == "pull":
            self.post_message(PullRequested(message.targets))
            self.query_one(Told).tell(f"downloading {format_bytes(message.download_bytes)}; 4 shows how far it is")
        else:
            n_ctx, n_gen = self._asked_n_ctx if message.job == "bench" else None, self._host.n_gen
            for words in start_notices(n_ctx, n_gen, is_here=self._card is None):
                self.notify(words, markup=False)
            self.post_message(RunRequested(message.targets, message.job, run_config(n_ctx, n_gen)))

    @on(news.ErrandFailed)
    def _take_failure(self, message: news.ErrandFailed) -> None:
        if message.errand == "plan":
            if message.request != self._request:
                return
            self._is_planning = False
        if message.errand == "search":
            if not self._left.input.value:
                return  # nobody waits for it any more
            self._left.show_failure()
        self._fail(message.errand, message.error)

    @on(ModelsChanged)
    def _look_at_disk_again(self) -> None:
        self._read_models()

    @on(RunStored)
    def _look_at_results_again(self) -> None:
        self._read_results()

    @on(ModelsPane.ModelChosen)
    def _look_at_model(self, message: ModelsPane.ModelChosen) -> None:
        """A model that needs no network is planned as the highlight comes to it."""
        if message.entered or not message.entry.needs_network:
            self._choose(message.entry)
        if message.entered:
            self._table.focus()

    @on(ModelsPane.SearchAsked)
    def _start_search(self, message: ModelsPane.SearchAsked) -> None:
        self._problems.pop("search", None)
        self._tell()
        self._search(message.text)

    @on(Input.Changed, "#quant-filter")
    def _filter_quants(self, event: Input.Changed) -> None:
        self._table.filter(event.value)
        self._show_memory()
        self._tell()

    @on(Input.Changed, "#model-filter")
    def _forget_search(self) -> None:
        if self._problems.pop("search", None) is not None:
            self._tell()

    @on(Input.Submitted, "#quant-filter")
    def _leave_quant_filter(self) -> None:
        self._table.focus()

    @on(DataTable.RowHighlighted, "#variants")
    def _show_memory(self) -> None:
        chosen, budget = self._table.chosen, self._budget
        if chosen is None or budget is None:
            self.query_one(MemoryBar).show_nothing()
        else:
            self.query_one(MemoryBar).show(chosen.name, chosen.plan, budget)

    @on(DataTable.RowSelected, "#variants")
    def _mark_selected(self) -> None:
        self.action_mark()

    @on(DataTable.HeaderSelected, "#variants")
    def _sort_by_header(self, event: DataTable.HeaderSelected) -> None:
        self._table.sort_by(event.column_index)

    @on(VariantsTable.ContextAsked)
    def _change_n_ctx(self, message: VariantsTable.ContextAsked) -> None:
        chosen = self._table.chosen
        if chosen is not None and (n_ctx := self._n_ctx or chosen.plan.n_ctx) is not None:
            self._n_ctx = message.applied_to(n_ctx, chosen.plan.n_ctx_train)
            self._replan()

    def action_mark(self) -> None:
        """Mark the chosen quant, or take its mark away, and go on to the next."""
        self._table.toggle_mark()
        self._tell()

    def action_start(self, job: news.Job) -> None:
        """Measure, search or download what is marked, else the chosen quant."""
        wanted = [(model, tuple(names)) for model, names in self._marks.items() if names]
        chosen = self._table.chosen
        if not wanted and chosen is not None and self._entry is not None:
            wanted = [(self._entry.model, (chosen.name,))]
        if wanted:
            self._problems.pop("start", None)
            planned = {self._entry.model} if self._entry is not None else set()
            self._asked_n_ctx = self._n_ctx if {model for model, _ in wanted} <= planned else None
            self._find_targets(job, wanted, self._catalog)

    def action_filter(self) -> None:
        """Of the models, or of the quants where those are looked at."""
        if self._table.has_focus:
            self.add_class("-filter-quants")
            self.query_one("#quant-filter", Input).focus()
        else:
            self._left.input.focus()

    def action_leave(self) -> None:
        """Out of an input, from the quants to the models, and there out of the filter."""
        if self.focused is self.query_one("#quant-filter"):
            self.query_one("#quant-filter", Input).clear()
            self.remove_class("-filter-quants")
            self._table.focus()
        elif self._left.models.has_focus or self._left.input.has_focus:
            self._left.input.clear()
            self._left.models.focus()
        else:
            self._left.models.focus()

    def action_other_part(self) -> None:
        """Between the models and the quants, past the filters."""
        if self.focused in (self._table, self.query_one("#quant-filter")):
            self._left.models.focus()
        else:
            self._table.focus()

    def action_change_length(self) -> None:
        """The next longer run, after the longest the shortest."""
        self._host.n_gen = next_length(self._host.n_gen)
        self._tell()

    def action_toggle_fits(self) -> None:
        """Hide what does not fit, or show it again."""
        self._table.toggle_fits()
        self._show_memory()
        self._tell()

    def action_sort(self) -> None:
        """By the next column."""
        self._table.sort_by_next()

    def action_turn(self) -> None:
        """Sort the other way round."""
        self._table.sort_backwards()

    def action_choose_card(self) -> None:
        """Plan for a card that need not be here."""
        from ggbench.tui.screens.card_picker import CardPicker

        self.app.push_screen(CardPicker(self._card), self._take_card)

    def _take_card(self, picked: Picked | None) -> None:
        if picked is not None:
            self._card, self._variants = picked.budget, {}
            self._show_variants()
            self._replan()

    def action_look_again(self) -> None:
        """Forget what was read of headers, disk, memory and results."""
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
    def _table(self) -> VariantsTable:
        return self.query_one(VariantsTable)

    @property
    def _can_pull(self) -> bool:
        return any(not variant.is_here and not variant.is_twin for variant in self._variants.values())

    @property
    def _budget(self) -> Budget | None:
        return self._card or (None if self._machine is None else self._machine.budget)

    def _choose(self, entry: ModelEntry) -> None:
        if self._entry is not None and entry.key == self._entry.key and self._variants:
            return
        self._entry, self._variants, self._n_ctx = entry, {}, None
        self._show_variants()
        self._replan()

    def _replan(self) -> None:
        """Plan the chosen model anew; the quant under the cursor first."""
        self._request += 1
        self._is_planning = False
        for errand in ("plan", "start"):
            self._problems.pop(errand, None)
        machine, entry, budget = self._machine, self._entry, self._budget
        if machine is not None and budget is not None:
            self.query_one(MachineBar).show(budget, machine.reading, is_here=self._card is None)
            if entry is not None and entry.model:
                self._is_planning = True
                chosen = self._table.chosen
                first, config = chosen.name if chosen else None, LoadConfig(n_ctx=self._n_ctx)
                self._plan(self._request, machine.planner, entry, budget, config, first)
        self._tell()

    def _looked_up(self, variant: Variant) -> Variant:
        return variant if self._entry is None else look_up(variant, self._entry, self._here, self._measured)

    def _look_variants_up(self) -> None:
        self._variants = {name: self._looked_up(variant) for name, variant in self._variants.items()}
        self._show_variants()

    def _show_variants(self) -> None:
        marks = {} if self._entry is None else self._marks.setdefault(self._entry.model, {})
        self._is_draw_due = False
        self._table.show(self._variants, marks)
        self._show_memory()
        self._tell()
        offers = bool(self._variants), self._can_pull
        if offers != self._offers:
            self._offers = offers
            self.refresh_bindings()

    def _fail(self, errand: news.Errand, error: GgbenchError) -> None:
        self._problems[errand] = error
        self._tell()

    def _tell(self) -> None:
        """What went wrong, and under it what is shown and what is hidden."""
        table, n_marked, n_gen = self._table, sum(map(len, self._marks.values())), self._host.n_gen
        words = state_words(
            self._entry,
            table,
            n_marked,
            n_gen,
            is_machine_known=self._machine is not None,
            is_planning=self._is_planning,
        )
        is_empty = bool(self._variants) and not table.n_shown
        self.set_class(is_empty, "-none-shown")
        if is_empty:
            self.query_one("#none-shown", Static).update("\n".join(hidden_words(table)))
        self.query_one("#state", Static).update(Text(words, no_wrap=True, overflow="ellipsis"))
        problem = next((self._problems[errand] for errand in news.ERRANDS if errand in self._problems), None)
        if problem is None:
            self.query_one(Told).tell()
        else:
            self.query_one(Told).tell_error(problem)
