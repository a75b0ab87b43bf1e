"""The Library: the pick and its command on top, models on the left, the quants of one on the right, or the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from ggbench.decisions.pick.needs import needs_in_brief
from ggbench.errors import GgbenchError
from ggbench.fields import config_options
from ggbench.show.answer import Answer
from ggbench.text import sanitize
from ggbench.tui.host import ModelsChanged, host_of
from ggbench.tui.library import pick_in_brief, quants_on_disk
from ggbench.tui.model_list import ModelEntry, best_models, list_models
from ggbench.tui.screens.planning import PlanScreen
from ggbench.tui.widgets.answer_pane import AnswerPane
from ggbench.tui.widgets.bars import FilterInput, KeysFooter, StatusMessage, TopLine, key_links, put
from ggbench.tui.widgets.models_pane import ModelsPane
from ggbench.tui.widgets.quant_panels import MemoryPanel, losses_over_speeds
from ggbench.tui.widgets.tables import QuantsTable

if TYPE_CHECKING:
    from ggbench.decisions.pick.record import Candidate, Pick
    from ggbench.decisions.pick.run_commands import RunSettings
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.quant_rows import QuantRow


_TASKS = ("place", "plan", "store", "search", "machine", "models")
"""If several failed, the screen shows the error of the first."""
_FIRST_STEP = (
    "Open a model with enter; the best here come first, once found. / filters, adds a folder, searches the Hub."
)


class LibraryScreen(PlanScreen):
    """Choose a model, mark its quants, measure or download them."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (180, "-huge")]  # noqa: RUF012 - Textual's
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-tall")]  # noqa: RUF012 - Textual's
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "why", "Why", tooltip="The pick with its alternatives, and what is behind it"),
        Binding("e", "edit_needs", "Needs", tooltip="What the model is for: context, speed, quality"),
        Binding("space", "mark", "Mark", tooltip="Mark or unmark the quant"),
        Binding("b", "measure", "Measure", tooltip="Measure the marked quants, or the chosen one"),
        Binding("y", "copy", "Copy", tooltip="Copy what runs the quant as planned"),
        Binding("p", "pull", "Pull", tooltip="Download the marked quants, or the chosen one"),
        Binding("/", "filter", "Filter", tooltip="Filter the models, add a path, search the Hub"),
        Binding("g", "choose_memory", "GPU", tooltip="Plan for another GPU, or for a size of memory"),
        Binding("o", "choose_options", "Options", tooltip="Options of plans and runs, such as KV types"),
        Binding("r", "reload", "Reload", tooltip="Read disk, free memory and headers again"),
        Binding("escape", "leave", "Back", tooltip="Clear the filter, or go back to the models"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._best: Pick | None = None
        """The pick among the current models, which is shown until one is chosen."""
        self._opened_from: Widget | None = None
        """The list in which the key of an answer was pressed, to which escape leads back."""

    def compose(self) -> ComposeResult:
        yield TopLine("library")
        with Vertical(id="pick", classes="panel"):
            yield Static(_FIRST_STEP, id="answer", markup=False)
            yield Static(id="command", markup=False)
        with Horizontal(id="middle"):
            yield ModelsPane(id="left")
            with Vertical(id="right"):
                yield QuantsTable(id="quants")
                with Horizontal(id="charts"):
                    yield MemoryPanel(classes="panel")
            yield AnswerPane(Answer(""))
        yield StatusMessage()
        yield KeysFooter("/ filter · tab next panel · ")

    def on_mount(self) -> None:
        """Read models and machine, and open the model given at the start."""
        self.query_one("#pick").border_subtitle = key_links("y copy · w why · e needs · g GPU · o options")
        self._pane.border_title = "why"
        self._pane.border_subtitle = key_links("w more, less · y copy · esc back")
        self.set_focus(self._left.models)
        self.show_status()
        self.read_machine()
        opens = host_of(self).opens
        if opens is not None:
            self._left.open(opens)
        self._read_models()

    @on(ModelsChanged)
    def _read_models(self) -> None:
        """List the models; the first time, those of the catalog before the disk was scanned."""
        services, is_first = host_of(self).services, self.catalog is None

        def read() -> Iterator[tuple[Catalog, Sequence[ModelEntry], Sequence[LocalModel] | None]]:
            catalog = services.load_catalog()
            if is_first:
                yield catalog, list_models(catalog, ()), None
            local = services.local_models()
            yield catalog, list_models(catalog, local), local

        def take(read: tuple[Catalog, Sequence[ModelEntry], Sequence[LocalModel] | None]) -> None:
            self.catalog, listed, local = read
            if local is not None:
                has_arrived = self.library.update(quants_on_disk(local, self.catalog))
                if has_arrived and self.planner is not None:
                    self.planner.forget()  # the files found before the download
                    self.forget_best()
                    self.plan_when_shown()
            self.show_rows()
            self._left.list_models(listed, is_complete=local is not None)
            if local is not None and not self._is_stale:
                self.find_best()

        self.perform("models", read, take)

    @on(ModelsPane.PlacesChanged)
    def _take_places(self, message: ModelsPane.PlacesChanged) -> None:
        self.notify(message.notice, markup=False)
        self._read_models()

    @on(events.Paste)
    def _paste(self, event: events.Paste) -> None:
        """Put text pasted or dropped anywhere on the screen into the filter of the models."""
        if lines := event.text.strip().splitlines():
            self._left.input.value = lines[0]
            self.set_focus(self._left.input)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        if task in ("plan", "machine"):
            self.is_planning = False
        elif task == "best":
            self.forget_best()
            del self.problems[task]
        elif task == "search" and not self._left.show_failure():
            del self.problems[task]
        self.show_rows()

    def show_problems(self) -> None:
        self.show_status()

    def show_best(self, pick: Pick | None) -> None:
        self._best = pick
        self._left.show_best(best_models(pick) if pick is not None else ())
        self._show_answer()
        self.show_status()

    @on(ModelsPane.ModelChosen)
    def _take_model(self, message: ModelsPane.ModelChosen) -> None:
        """Plan a model when it is highlighted or, if it needs the network, when it is entered; keys are for it."""
        entry, host = message.entry, host_of(self)
        if message.entered and host.opens_quant is not None:
            self._table.wanted, host.opens_quant = host.opens_quant, None
        if self.library.choose(entry, is_planning=self.is_planning):
            self.remove_class("-open")
            self._table.start_over()
            self.replan(begins=entry is not None and (message.entered or not entry.needs_network))
        else:
            self.show_rows()
        if message.entered:
            self._close(self._table)

    @on(QuantsTable.RowHighlighted, "#quants")
    def _show_chosen(self) -> None:
        """Show the memory and, if there is a pick, the command of the quant at the cursor, which `y` copies."""
        self.query_one(MemoryPanel).shown = self.chosen
        row, picked = self.chosen, None if self.is_planning else self.library.picked
        command = self._command_of(self._candidate) if row is None or picked else ""
        if row is not None and command and row is not picked:
            command = f"{row.title}: {command}"
        put(self.query_one("#command", Static), command)

    def action_why(self) -> None:
        """Show why a pick, or more if that is shown; its quant is at the cursor, for the keys that act on one."""
        if self._pick is None:
            return
        is_shown = self._pane.display
        self._table.go_to(getattr(self.library.best, "name", None))
        self._opened_from = self.focused
        self.add_class("-open")
        self.set_focus(self._pane)
        self._pane.scroll_home(animate=False)
        if is_shown:
            self._pane.action_more()

    def _close(self, focus: Widget | None) -> None:
        """Go to a list, in place of an answer."""
        self.remove_class("-open")
        self.set_focus(focus)

    def _show_answer(self) -> None:
        """Show why a pick; a wide terminal has it beside the quants."""
        pick, budget = self._pick, self.budget
        self._pane.show(Answer("") if pick is None or budget is None else _behind(pick, budget))

    def action_mark(self) -> None:
        if (chosen := self.chosen) is not None:
            self.library.marks ^= {chosen.name}
            self._table.show_library(self.library)
            self.show_status()

    def action_copy(self) -> None:
        """Ask in which form to copy what runs the quant at the cursor."""
        from ggbench.tui.screens.pickers import FormPicker

        if (run := self._run_of(self._candidate)) is None:
            self.notify("nothing to copy: no quant with a file is at the cursor", severity="warning")
        else:
            self.app.push_screen(FormPicker(run))

    @property
    def _pick(self) -> Pick | None:
        """The pick of the chosen model or, until one is chosen, among the current models."""
        return self._best if self.library.entry is None else self.library.pick

    @property
    def _candidate(self) -> Candidate | None:
        """The quant at the cursor or, until a model is chosen, the best here."""
        if self.chosen is not None:
            return self.chosen.candidate
        return None if self._pick is None else self._pick.recommended

    def _run_of(self, candidate: Candidate | None) -> RunSettings | None:
        """Return what runs a candidate as planned; None without a file."""
        if candidate is None or self.budget is None:
            return None
        from ggbench.decisions.pick.show import settings_of

        return settings_of(candidate, self.budget)

    def _command_of(self, candidate: Candidate | None) -> str:
        """Return llama-server's command line; empty without a file."""
        run = self._run_of(candidate)
        return "" if run is None else run.commands.llama_server

    def action_filter(self) -> None:
        # immediate, unlike `focus()`: letters typed right after belong to the filter
        self.set_focus(self._left.input)

    def action_leave(self) -> None:
        """Close the answer, go from the quants to the models, or clear the filter of the models."""
        if self.focused is self._pane:
            self._close(self._opened_from)
            return
        if self._left.has_focus_within:
            self._left.input.clear()
        self.set_focus(self._left.models)

    def action_reload(self) -> None:
        """Read headers, disk, memory and results again."""
        if self.planner is not None:
            self.planner.forget()
        self.forget_best()
        self._read_models()
        self.read_machine()

    @property
    def focus_chain(self) -> list[Widget]:
        """Go from panel to panel by tab, past the filter, which would take the next letter."""
        return [each for each in super().focus_chain if not isinstance(each, FilterInput)]

    @property
    def chosen(self) -> QuantRow | None:
        return self._table.chosen

    @property
    def _left(self) -> ModelsPane:
        return self.query_one(ModelsPane)

    @property
    def _pane(self) -> AnswerPane:
        return self.query_one(AnswerPane)

    @property
    def _table(self) -> QuantsTable:
        return self.query_one(QuantsTable)

    def show_rows(self) -> None:
        self._table.show_library(self.library)
        self._show_losses()
        self._show_answer()
        self.show_status()

    def _show_losses(self) -> None:
        """Draw the losses over the speeds where these differ, in a plot that is made when it is first needed."""
        chart = losses_over_speeds([*self.library.rows.values()], self.library.picked)
        self.set_class(chart is not None, "-losses")
        if chart is not None:
            from ggbench.tui.widgets.curves_plot import CurvesPlot

            plot = next(iter(self.query(CurvesPlot)), None)
            if plot is None:
                plot = CurvesPlot()
                self.query_one("#charts").mount(plot, before=0)
            plot.show([chart])
            plot.border_subtitle = ""

    def show_status(self) -> None:
        """Update the pick with its command, the title of the quants and the error."""
        library, pick = self.library, self.query_one("#pick")
        of_model = "" if library.entry is None else f" of {library.entry.title}"
        n_ctx_train = None if library.best is None else library.best.plan.n_ctx_train
        needs = needs_in_brief(library.all_needs, n_ctx_train)
        options = sanitize(" ".join(("", *config_options(library.options))))
        pick.border_title = Text(f"pick{of_model} for {needs}{options}")
        is_planning = self.is_planning or self.planner is None
        self._table.border_title = Text(library.status(is_planning=is_planning))
        answer = pick_in_brief(self._pick) or ("" if library.entry else _FIRST_STEP)
        put(self.query_one("#answer", Static), "planning…" if library.entry and is_planning else answer)
        self._show_chosen()
        problems = (self.problems[task] for task in _TASKS if task in self.problems)
        self.query_one(StatusMessage).show(next(problems, None))


def _behind(pick: Pick, budget: Budget) -> Answer:
    """Return the reasons of a pick and, of several models, its alternatives, without what the other panels show."""
    from ggbench.decisions.pick.sentences import is_runnable
    from ggbench.decisions.pick.show import pick_answer, settings_of

    best = pick.best if is_runnable(pick) else None
    run = None if best is None else settings_of(best, budget)
    answer = pick_answer(pick, budget, None if run is None else run.commands)
    reasons, *rest = answer.why
    parts = answer.parts if pick.has_rivals else ()
    return replace(answer, text="", command="", parts=(*parts, reasons), why=rest)
